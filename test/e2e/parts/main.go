// SPDX-License-Identifier: Apache-2.0

// Command parts gets together what the tests need of others, from this machine, its package manager and the package index
// of Python. What it has made once it finds again. Envoy is not among it: hack/envoy fetches that, as for `make up`.
//
//	go run ./test/e2e/parts debian   installs what is missing of Debian; it prints nothing
//	go run ./test/e2e/parts tree     prints the directory with all files of an image of MLflow: Python, the packages that
//	                                       the server needs, the shared libraries and the shell that both need
//	go run ./test/e2e/parts python   prints a Python that can import mlflow, from the same directory
//	go run ./test/e2e/parts sdk      prints a Python that can import kserve, the SDK of people who serve models
//	go run ./test/e2e/parts mlmd     prints a Python that can import ml_metadata, in which the known model registry stores
//	go run ./test/e2e/parts registry prints a Python that can import model_registry, the client of model registries
//	go run ./test/e2e/parts models   prints a Python that can import openai and anthropic, the clients of language models
//	go run ./test/e2e/parts postgres prints the directory with all files of an image of PostgreSQL but the program that starts it
//
// Several of these may be named, each of which then prints its line; all stands for every one of them. The failure of one
// does not keep the others back.
//
// Standard output carries paths and nothing else. The exit code is 3 when there is no suitable Python or the packages
// cannot be had, so that a caller can tell this from a mistake.
//
//	go run ./test/e2e/parts lock [mlflow] [sdk] [mlmd] [registry] [models]
//
// writes down anew which versions of Python's packages these are, in the files of the directory locks. Without it they stay
// what they are, on every machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// program is what the image starts when nobody names a command. Its name is the image's.
const program = "modelplane-mlflow"

// errUnavailable marks what this machine cannot give.
var errUnavailable = errors.New("unavailable")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failures := run(ctx, os.Args[1:], os.Stdout)
	stop()
	for _, err := range failures {
		fmt.Fprintln(os.Stderr, "parts:", err)
	}
	os.Exit(exitCode(failures))
}

func exitCode(failures []error) int {
	code := 0
	for _, err := range failures {
		if !errors.Is(err, errUnavailable) {
			return 1
		}
		code = 3
	}
	return code
}

// part is one that a caller may ask for. It returns its path, if it has one.
type part struct {
	verb string
	get  func(context.Context) (string, error)
}

// parts are in the order in which all of them are made: the image of PostgreSQL is of what Debian has.
var parts = []part{
	{"debian", debianPackages}, {"tree", mlflowTree}, {"python", mlflowPython}, {"sdk", sdk.script}, {"mlmd", mlmd.script},
	{"registry", registryClient.script}, {"models", modelClients.script}, {"postgres", postgresTree},
}

func run(ctx context.Context, args []string, out io.Writer) []error {
	if len(args) > 0 && args[0] == "lock" {
		if err := writeLocks(ctx, args[1:]); err != nil {
			return []error{err}
		}
		return nil
	}
	asked, err := askedFor(args)
	if err != nil {
		return []error{err}
	}
	var failures []error
	for _, p := range asked {
		path, err := p.get(ctx)
		if err == nil && path != "" {
			_, err = fmt.Fprintln(out, path)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", p.verb, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failures
}

func askedFor(args []string) ([]part, error) {
	if slices.Equal(args, []string{"all"}) {
		return parts, nil
	}
	var asked []part
	var known []string
	for _, p := range parts {
		known = append(known, p.verb)
	}
	for _, verb := range args {
		i := slices.Index(known, verb)
		if i < 0 {
			asked = nil
			break
		}
		asked = append(asked, parts[i])
	}
	if len(asked) == 0 {
		return nil, fmt.Errorf("use: parts all, parts lock, or any of: parts %s", strings.Join(known, " "))
	}
	return asked, nil
}

func tell(format string, args ...any) { fmt.Fprintf(os.Stderr, "    "+format+"\n", args...) }
