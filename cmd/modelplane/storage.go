// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modelplane/modelplane/internal/fetch"
	"github.com/modelplane/modelplane/internal/manager"
)

// storageFlags are the flags of modelplane storage-initializer.
type storageFlags struct {
	options                                     fetch.Options
	maxSize, logLevel, logFormat, lastWordsFile string
	pairs                                       []fetch.Pair
	handler                                     slog.Handler
}

func newStorageCommand() *cobra.Command {
	f := &storageFlags{}
	command := &cobra.Command{
		Use:   "storage-initializer SOURCE DESTINATION [SOURCE DESTINATION ...]",
		Short: "Fetch models, as the init container of a model server",
		Long: "Fetches each SOURCE into the directory DESTINATION. A source is an address: s3://, gs://, hf://, oci://, https://, http://, " +
			"file:// or a path. Credentials come from the environment, as KServe has them.",
		Example: "  modelplane storage-initializer s3://models/iris /mnt/models",
		PreRunE: func(c *cobra.Command, args []string) error {
			if err := fromEnv(c.Flags(), os.LookupEnv); err != nil {
				return err
			}
			return f.check(args)
		},
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context()) },
	}
	f.register(command)
	return command
}

func (f *storageFlags) register(command *cobra.Command) {
	flags := command.Flags()
	o := &f.options
	flags.IntVar(&o.Parallel, "parallel", 8, "requests that are under way at the same time")
	flags.StringVar(&f.maxSize, "max-size", "0", "most bytes that all models may have, for example 20Gi; 0 for no limit but the disk's")
	flags.Int64Var(&o.Limits.Files, "max-files", 100_000, "most files that all models may have; 0 for no limit")
	flags.Int64Var(&o.Ratio.Most, "max-ratio", 200, "how many times its size an archive may unpack to; 0 for no limit")
	flags.DurationVar(&o.ProgressEvery, "progress-every", 5*time.Second, "how often progress is logged; 0 for never")
	flags.StringVar(&f.lastWordsFile, "termination-log", "/dev/termination-log", "file for the reason of a failure, if it exists")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "json", "json or text")
}

// check understands flags and arguments; whatever it refuses is a wrong call.
func (f *storageFlags) check(args []string) error {
	var err error
	if f.pairs, err = fetch.Pairs(args); err != nil {
		return err
	}
	if f.handler, err = manager.NewLogHandler(os.Stderr, f.logLevel, f.logFormat); err != nil {
		return err
	}
	size, err := resource.ParseQuantity(f.maxSize)
	if err != nil || size.Sign() < 0 {
		return fmt.Errorf("--max-size %q is no size; write for example 20Gi", f.maxSize)
	}
	f.options.Limits.Bytes = size.Value()
	if f.options.Parallel < 1 || f.options.Parallel > 256 {
		return fmt.Errorf("--parallel must be from 1 to 256, not %d", f.options.Parallel)
	}
	if f.options.Limits.Files < 0 || f.options.Ratio.Most < 0 || f.options.ProgressEvery < 0 {
		return fmt.Errorf("--max-files, --max-ratio and --progress-every must not be negative")
	}
	return nil
}

// ratioFree is what an archive may unpack to whatever its size.
const ratioFree = 256 << 20

func (f *storageFlags) run(ctx context.Context) error {
	setLog(f.handler)
	log := slog.New(f.handler)
	ctx, stop := untilSignal(ctx)
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
	return &failure{err: err, logged: true}
}
