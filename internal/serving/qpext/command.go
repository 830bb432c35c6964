// SPDX-License-Identifier: Apache-2.0

package qpext

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/command"
)

type flags struct {
	settings Settings
	log      process.LogOptions
	handler  slog.Handler
}

// NewCommand is the command qpext.
func NewCommand() *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   "qpext [-- PROGRAM [ARGUMENT...]]",
		Short: "Show the metrics of a model server and of Knative's queue-proxy as one",
		Long: "Serves /metrics at AGGREGATE_PROMETHEUS_METRICS_PORT. KSERVE_CONTAINER_PROMETHEUS_METRICS_PORT and _PATH say where the model server has its own. " +
			"A program, which is the queue-proxy's, is started, gets the signals, and ends this one with its own exit code.",
		Args: cobra.ArbitraryArgs,
		PreRunE: func(c *cobra.Command, _ []string) error {
			if err := command.FromEnv(c.Flags(), os.LookupEnv); err != nil {
				return err
			}
			return f.check()
		},
		RunE: func(c *cobra.Command, program []string) error { return f.run(c.Context(), program) },
	}
	// What follows the program is the program's.
	c.Flags().SetInterspersed(false)
	c.Flags().StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	c.Flags().StringVar(&f.log.Format, "log-format", "json", "json or text")
	return c
}

func (f *flags) check() (err error) {
	if f.settings, err = readSettings(os.Getenv); err != nil {
		return err
	}
	f.handler, err = process.NewLogHandler(os.Stderr, f.log)
	return err
}

func (f *flags) run(ctx context.Context, program []string) error {
	log := process.SetLog(f.handler)
	if len(program) > 0 {
		return f.beside(ctx, program, log)
	}
	ctx, stop := process.UntilSignal(ctx)
	defer stop()
	return f.serve(ctx, log)
}

// serve shows metrics until the context ends.
func (f *flags) serve(ctx context.Context, log *slog.Logger) error {
	return process.Program{
		Log: log,
		Servers: []process.Server{{
			Name: "metrics", Address: ":" + strconv.Itoa(f.settings.Port), Handler: NewAggregator(f.settings, log).Handler(),
			Limits: process.Limits{Write: longestTime + usualTime},
		}},
		Timeout: usualTime,
	}.Run(ctx)
}

// beside runs a program and shows metrics as long as it runs. The program matters more: it runs also when metrics cannot be
// shown.
func (f *flags) beside(ctx context.Context, program []string, log *slog.Logger) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	child := exec.CommandContext(ctx, program[0], program[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		return err
	}
	showing, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { f.keepShowing(showing, log) })
	all.Go(func() {
		for {
			select {
			case s := <-signals:
				_ = child.Process.Signal(s) // one that has ended is about to be noticed
			case <-showing.Done():
				return
			}
		}
	})
	err := child.Wait()
	stop()
	all.Wait()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return &exit{ended}
	}
	return err
}

// again is how soon an address that could not be opened is tried again.
const again = 5 * time.Second

func (f *flags) keepShowing(ctx context.Context, log *slog.Logger) {
	for ctx.Err() == nil {
		if err := f.serve(ctx, log); err != nil {
			log.Error("Metrics are not shown; this is tried again", "err", err.Error(), "after", again.String())
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// exit is how the program ended, which has said itself why.
type exit struct{ *exec.ExitError }

// ExitCode is the program's, and for one that a signal ended what a shell would say.
func (e *exit) ExitCode() int {
	if status, ok := e.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return e.ExitError.ExitCode()
}

// Silent says that all is printed already.
func (*exit) Silent() bool { return true }
