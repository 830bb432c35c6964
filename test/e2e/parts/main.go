// SPDX-License-Identifier: Apache-2.0

// Command parts gets together what the end-to-end tests need of others, from this machine and the package index of Python.
// What it has made once it finds again. Envoy is not among it: hack/envoy fetches that, as for `make up`.
//
//	go run ./test/e2e/parts tree     prints the directory with all files of an image of MLflow: Python, the packages that
//	                                       the server needs, the shared libraries and the shell that both need
//	go run ./test/e2e/parts python   prints a Python that can import mlflow, from the same directory
//	go run ./test/e2e/parts sdk      prints a Python that can import kserve, the SDK of people who serve models
//	go run ./test/e2e/parts mlmd     prints a Python that can import ml_metadata, in which the known model registry stores
//	go run ./test/e2e/parts registry prints a Python that can import model_registry, the client of model registries
//	go run ./test/e2e/parts postgres prints the directory with all files of an image of PostgreSQL but the program that starts it
//
// Standard output carries a path and nothing else. The exit code is 3 when there is no suitable Python or the packages
// cannot be had, so that a caller can tell this from a mistake.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// mlflowVersion is the one that Modelplane supports.
const mlflowVersion = "3.14.0"

// packages are what the image of the server contains: MLflow, its Kubernetes workspaces, PostgreSQL and S3.
// SQLAlchemy 2.1 would take psycopg for an address that names no driver, with which MLflow's registry does not work.
var packages = []string{"mlflow==" + mlflowVersion, "mlflow-kubernetes-plugins", "sqlalchemy<2.1", "psycopg2-binary", "boto3"}

// program is what the image starts when nobody names a command. Its name is the image's.
const program = "modelplane-mlflow"

// errUnavailable marks what this machine cannot give.
var errUnavailable = errors.New("unavailable")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "parts:", err)
	if errors.Is(err, errUnavailable) {
		os.Exit(3)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string) error {
	verbs := map[string]func(context.Context, python) (string, error){
		"tree": mlflowTree, "python": mlflowPython, "sdk": sdk.python, "mlmd": mlmd.python, "registry": registryClient.python, "postgres": postgresTree,
	}
	if len(args) != 1 || verbs[args[0]] == nil {
		return errors.New("use: parts tree, python, sdk, mlmd, registry or postgres")
	}
	versions := wanted
	if args[0] == "mlmd" {
		versions = mlmdWanted
	}
	py, err := findPython(ctx, versions)
	if err != nil {
		return err
	}
	path, err := verbs[args[0]](ctx, py)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, path)
	return err
}

func mlflowTree(ctx context.Context, py python) (string, error) {
	return ensure(ctx, "mlflow-"+mlflowVersion, py, packages, fill)
}

func mlflowPython(ctx context.Context, py python) (string, error) {
	tree, err := mlflowTree(ctx, py)
	return filepath.Join(tree, py.inImage()), err
}

// ensure fills a directory beside the wanted one and renames it, so that what exists is complete.
func ensure(ctx context.Context, name string, py python, packages []string, fill func(context.Context, python, string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	recipe := sha256.Sum256([]byte(strings.Join(packages, " ")))
	dir := filepath.Join(cache, "modelplane", fmt.Sprintf("%s-python%s-%x", name, py.Version, recipe[:4]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), "."+name+".")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	if err := fill(ctx, py, temp); err != nil {
		return "", err
	}
	return dir, errors.Join(os.Chmod(temp, 0o755), os.Rename(temp, dir))
}

func fill(ctx context.Context, py python, tree string) error {
	tell("copying Python %s", py.Version)
	if err := py.copyTo(tree); err != nil {
		return err
	}
	tell("fetching MLflow %s and what it needs (two minutes)", mlflowVersion)
	if err := py.install(ctx, tree); err != nil {
		return err
	}
	tell("compiling it, so that pods start quickly")
	if err := py.compile(ctx, tree); err != nil {
		return err
	}
	if err := addPrograms(tree, tools...); err != nil {
		return err
	}
	return addLibraries(tree)
}

func tell(format string, args ...any) { fmt.Fprintf(os.Stderr, "    "+format+"\n", args...) }
