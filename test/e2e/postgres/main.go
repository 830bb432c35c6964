// SPDX-License-Identifier: Apache-2.0

// Command postgres starts a PostgreSQL in a container, by the variables and paths that images of it have on OpenShift:
// POSTGRESQL_USER, POSTGRESQL_PASSWORD and POSTGRESQL_DATABASE, data below /var/lib/pgsql/data, and check-container. The
// password is set anew at every start. It is for tests only.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const data = "/var/lib/pgsql/data/userdata"

func main() {
	run := start
	if filepath.Base(os.Args[0]) == "check-container" {
		run = check
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// program is one of PostgreSQL's.
func program(name string) (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err == nil && len(found) == 0 {
		err = errors.New("there is no " + name)
	}
	if err != nil {
		return "", err
	}
	return found[len(found)-1], nil
}

func command(name string, args ...string) (*exec.Cmd, error) {
	path, err := program(name)
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd, err
}

func check() error {
	cmd, err := command("pg_isready", "-h", "127.0.0.1", "-q")
	if err != nil {
		return err
	}
	return cmd.Run()
}

func start() error {
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		if err := initialize(); err != nil {
			return err
		}
	}
	if err := users(); err != nil {
		return err
	}
	path, err := program("postgres")
	if err != nil {
		return err
	}
	return syscall.Exec(path, []string{
		path, "-D", data, "-c", "listen_addresses=*", "-c", "unix_socket_directories=", "-c", "dynamic_shared_memory_type=mmap",
	}, os.Environ())
}

// initialize makes the files, first beside their place: what was killed in the middle begins again.
func initialize() error {
	if err := os.RemoveAll(data + ".new"); err != nil {
		return err
	}
	cmd, err := command("initdb", "-D", data+".new", "--username=postgres", "--auth=scram-sha-256", "--pwfile=/dev/stdin", "--locale=C", "--encoding=UTF8")
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(os.Getenv("POSTGRESQL_PASSWORD") + "\n")
	if err := cmd.Run(); err != nil {
		return err
	}
	rules, err := os.OpenFile(filepath.Join(data+".new", "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = rules.WriteString("host all all all scram-sha-256\n")
	if err := errors.Join(err, rules.Close()); err != nil {
		return err
	}
	return os.Rename(data+".new", data)
}

// users are written by the server itself, before it listens.
func users() error {
	cmd, err := command("postgres", "--single", "-j", "-D", data, "-c", "dynamic_shared_memory_type=mmap", "postgres")
	if err != nil {
		return err
	}
	name := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	user, database := name(os.Getenv("POSTGRESQL_USER")), name(os.Getenv("POSTGRESQL_DATABASE"))
	password := "'" + strings.ReplaceAll(os.Getenv("POSTGRESQL_PASSWORD"), "'", "''") + "'"
	statements := []string{"ALTER ROLE " + user + " WITH LOGIN PASSWORD " + password}
	if _, err := os.Stat(filepath.Join(data, "users")); errors.Is(err, os.ErrNotExist) {
		statements = []string{"CREATE ROLE " + user + " WITH LOGIN PASSWORD " + password, "CREATE DATABASE " + database + " OWNER " + user}
	}
	cmd.Stdin = strings.NewReader(strings.Join(statements, ";\n\n") + ";\n\n")
	if err := cmd.Run(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(data, "users"), nil, 0o600)
}
