// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// postgresStarter is the program that the image starts, below the directory in which this one is called.
const postgresStarter = "./test/e2e/postgres"

// What the image has of PostgreSQL: what its server needs, and what people call in it by name, in a bash.
var (
	postgresServer = []string{"postgres", "initdb", "pg_isready"}
	postgresTools  = []string{"psql", "pg_dump", "pg_restore"}
)

// postgresTree has the programs of the newest PostgreSQL of this machine, with all that they read.
func postgresTree(ctx context.Context) (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%w: PostgreSQL is not installed; install it with: apt-get install --no-install-recommends postgresql", errUnavailable)
	}
	slices.Sort(found)
	home := filepath.Dir(filepath.Dir(found[len(found)-1]))
	source, err := os.ReadFile(filepath.Join(postgresStarter, "main.go"))
	if err != nil {
		return "", err
	}
	recipe := slices.Concat([]string{home, string(source)}, postgresServer, postgresTools)
	return ensure(ctx, "postgres-"+filepath.Base(home), strings.Join(recipe, " "), func(tree string) error {
		return fillPostgres(ctx, home, tree)
	})
}

func fillPostgres(ctx context.Context, home, tree string) error {
	tell("copying PostgreSQL %s", filepath.Base(home))
	for _, program := range postgresServer {
		if err := copyFile(filepath.Join(home, "bin", program), filepath.Join(tree, home, "bin", program)); err != nil {
			return err
		}
	}
	for _, tool := range postgresTools {
		if err := copyFile(filepath.Join(home, "bin", tool), filepath.Join(tree, "usr/bin", tool)); err != nil {
			return err
		}
	}
	everything := func(string, fs.DirEntry) bool { return false }
	if err := copyTree(filepath.Join("/usr/share/postgresql", filepath.Base(home)), filepath.Join(tree, "/usr/share/postgresql", filepath.Base(home)), everything); err != nil {
		return err
	}
	for _, library := range []string{"plpgsql.so", "dict_snowball.so"} {
		if err := copyFile(filepath.Join(home, "lib", library), filepath.Join(tree, home, "lib", library)); err != nil {
			return err
		}
	}
	for _, to := range []string{"modelplane-postgres", "usr/libexec/check-container"} {
		build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(tree, to), postgresStarter)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build the program that starts it: %w", err)
		}
	}
	if err := addPrograms(tree, append([]string{"bash"}, tools...)...); err != nil {
		return err
	}
	return addLibraries(tree)
}
