// SPDX-License-Identifier: Apache-2.0

// Command modelplane-etcd is the etcd that the chart runs for ModelMesh where there is none, and what copies its content.
//
//	modelplane-etcd serve      one member, in a pod
//	modelplane-etcd backup     writes all keys and values to standard output
//	modelplane-etcd restore    reads them from standard input
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelplane/modelplane/runtimes/etcd/internal/connection"
	"github.com/modelplane/modelplane/runtimes/etcd/internal/keys"
	"github.com/modelplane/modelplane/runtimes/etcd/internal/member"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "modelplane-etcd:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		args = []string{""}
	}
	switch name, args := args[0], args[1:]; name {
	case "serve":
		o, err := member.Parse(args, stderr)
		if err != nil {
			return err
		}
		return member.Run(ctx, o, func() { slog.Info("etcd takes requests", "member", o.Name) })
	case "backup", "restore":
		return copyKeys(ctx, name, args, stdin, stdout, stderr)
	default:
		return fmt.Errorf("%q is not a command: serve, backup or restore", name)
	}
}

func copyKeys(ctx context.Context, name string, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("connection", member.ConnectionFile("/run/etcd"), "file with the JSON of an etcd connection")
	overwrite := flags.Bool("overwrite", false, "restore: let the file win over keys that are there")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client, way, err := connection.Open(*file)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if name == "backup" {
		n, err := keys.Backup(ctx, client, keys.Under(way.RootPrefix), stdout)
		if err == nil {
			fmt.Fprintf(stderr, "%d keys are in the backup\n", n)
		}
		return err
	}
	done, err := keys.Restore(ctx, client, stdin, *overwrite)
	fmt.Fprintf(stderr, "%d keys were restored; %d were there already and stay\n", done.Written, done.Kept)
	return err
}
