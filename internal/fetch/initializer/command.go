// SPDX-License-Identifier: Apache-2.0

// Package initializer is the command storage-initializer: the init container that fetches models before a model server
// starts. It understands flags and tells Kubernetes of failures; fetching is package fetch's.
package initializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/fetch"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
)

// flags are those of the command line, and what check made of them.
type flags struct {
	options                fetch.Options
	maxSize, lastWordsFile string
	log                    process.LogOptions
	pairs                  []fetch.Pair
	handler                slog.Handler
}

// New is the command.
func New() *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   "storage-initializer SOURCE DESTINATION [SOURCE DESTINATION ...]",
		Short: "Fetch models, as the init container of a model server",
		Long: "Fetches each SOURCE into the directory DESTINATION. A source is an address: s3://, gs://, hf://, oci://, https://, http://, " +
			"model-registry://, file:// or a path. Credentials come from the environment, as KServe has them.",
		Example: "  modelplane-pod storage-initializer s3://models/iris /mnt/models",
		PreRunE: func(c *cobra.Command, args []string) error {
			if err := command.FromEnv(c.Flags(), os.LookupEnv); err != nil {
				return err
			}
			return f.check(args)
		},
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context()) },
	}
	f.register(c)
	return c
}

func (f *flags) register(c *cobra.Command) {
	set, o := c.Flags(), &f.options
	set.IntVar(&o.Parallel, "parallel", 8, "requests that are under way at the same time")
	set.StringVar(&f.maxSize, "max-size", "0", "most bytes that all models may have, for example 20Gi; 0 for no limit but the disk's")
	set.Int64Var(&o.Limits.Files, "max-files", 100_000, "most files that all models may have; 0 for no limit")
	set.Int64Var(&o.Ratio.Most, "max-ratio", 200, "how many times its size an archive may unpack to; 0 for no limit")
	set.DurationVar(&o.ProgressEvery, "progress-every", 5*time.Second, "how often progress is logged; 0 for never")
	set.StringVar(&f.lastWordsFile, "termination-log", "/dev/termination-log", "file for the reason of a failure, if it exists")
	set.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	set.StringVar(&f.log.Format, "log-format", "json", "json or text")
}

// check understands flags and arguments; whatever it refuses is a wrong call.
func (f *flags) check(args []string) error {
	var err error
	if f.pairs, err = fetch.Pairs(args); err != nil {
		return err
	}
	if f.handler, err = process.NewLogHandler(os.Stderr, f.log); err != nil {
		return err
	}
	if f.options.Limits.Bytes, err = parseSize(f.maxSize); err != nil {
		return fmt.Errorf("--max-size %w", err)
	}
	if f.options.Parallel < 1 || f.options.Parallel > 256 {
		return fmt.Errorf("--parallel must be from 1 to 256, not %d", f.options.Parallel)
	}
	if f.options.Limits.Files < 0 || f.options.Ratio.Most < 0 || f.options.ProgressEvery < 0 {
		return errors.New("--max-files, --max-ratio and --progress-every must not be negative")
	}
	return nil
}

// ratioFree is what an archive may unpack to whatever its size.
const ratioFree = 256 << 20

func (f *flags) run(ctx context.Context) error {
	log := process.SetLog(f.handler)
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	f.options.Env, f.options.Log = os.Getenv, log
	f.options.Ratio.Free = ratioFree
	err := fetch.Run(ctx, f.pairs, f.options)
	if err == nil {
		return nil
	}
	if failed := fetch.Tell(f.lastWordsFile, err); failed != nil {
		log.Warn("The reason of the failure cannot be written for Kubernetes", "file", f.lastWordsFile, "err", failed.Error())
	}
	log.Error(err.Error())
	return &command.Failure{Err: err, Logged: true}
}
