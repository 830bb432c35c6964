// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/modelplane/modelplane/internal/download"
)

// set is what is installed of Python's index for one purpose: packages, and with them all that they need, in the versions
// and with the checksums of a committed file. Otherwise every machine would have what was newest on its first day, and a
// test could fail because of what somebody else published.
type set struct {
	name string
	// packages are what is asked for. The verb lock finds out the rest.
	packages []string
	// pythons are the versions that it runs on, the preferred one first. Each has a file.
	pythons []string
	// fill makes a directory of it.
	fill func(ctx context.Context, py python, packages lock, into string) error
}

// mlflowVersion is the one that Modelplane supports.
const mlflowVersion = "3.14.0"

// mlflow is what the image of the server contains: MLflow, its Kubernetes workspaces, PostgreSQL and S3.
// SQLAlchemy 2.1 would take psycopg for an address that names no driver, with which MLflow's registry does not work.
var mlflow = set{
	"mlflow", []string{"mlflow==" + mlflowVersion, "mlflow-kubernetes-plugins", "sqlalchemy<2.1", "psycopg2-binary", "boto3"},
	[]string{"3.12", "3.13"}, fillMLflow,
}

// sdk is the newest one of KServe, whose way of waiting for a generation the tests use. The versions are what
// docs/python-sdk.md says to install: kubernetes 37 takes no objects of the SDK any more.
var sdk = set{"sdk", []string{"kserve==0.21.0", "kubernetes<37"}, []string{"3.12", "3.13"}, fillClient}

// mlmd is the newest store of ML Metadata, and what makes a server of it. There are packages for some versions of Python alone.
var mlmd = set{"mlmd", []string{"ml-metadata==1.17.1", "grpcio"}, []string{"3.11", "3.10", "3.9"}, fillClient}

// registryClient is the newest one of model registries.
var registryClient = set{"registry", []string{"model-registry==0.3.18"}, []string{"3.12", "3.13"}, fillClient}

// modelClients are those of the two APIs that language models are asked by.
var modelClients = set{"models", []string{"openai==3.51.0", "anthropic==2.10.0"}, []string{"3.12", "3.13"}, fillClient}

var sets = []set{mlflow, sdk, mlmd, registryClient, modelClients}

//go:embed locks
var locks embed.FS

// lock is the text of a file for pip. It names every package with its version and checksums.
type lock string

// lockFile is where a set's packages are written down, below the directory in which this program is called.
func (s set) lockFile(version string) string { return "locks/" + s.name + "-python" + version + ".txt" }

func (s set) lock(version string) (lock, error) {
	text, err := fs.ReadFile(locks, s.lockFile(version))
	return lock(text), err
}

// dir has the set, which is made when it is not there.
func (s set) dir(ctx context.Context) (string, python, error) {
	py, err := findPython(ctx, s.pythons)
	if err != nil {
		return "", py, err
	}
	packages, err := s.lock(py.Version)
	if err != nil {
		return "", py, err
	}
	dir, err := s.make(ctx, py, packages)
	return dir, py, err
}

func (s set) make(ctx context.Context, py python, packages lock) (string, error) {
	return ensure(ctx, s.name+"-python"+py.Version, string(packages), func(temp string) error {
		return s.fill(ctx, py, packages, temp)
	})
}

// script is the Python of a set for a client.
func (s set) script(ctx context.Context) (string, error) {
	dir, _, err := s.dir(ctx)
	return filepath.Join(dir, "python"), err
}

// ensure makes a directory of the cache, whose name depends on what it is made of.
func ensure(ctx context.Context, name, recipe string, fill func(temp string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(recipe))
	dir := filepath.Join(cache, "modelplane", fmt.Sprintf("%s-%x", name, sum[:4]))
	return dir, download.Dir(ctx, os.Stderr, dir, fill)
}

// fillClient makes a script: the interpreter stays where it is, and finds the packages beside the script.
func fillClient(ctx context.Context, py python, packages lock, dir string) error {
	if err := py.fetch(ctx, packages, filepath.Join(dir, "packages")); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\nPYTHONPATH=$(dirname \"$0\")/packages exec %q \"$@\"\n", py.Executable)
	return os.WriteFile(filepath.Join(dir, "python"), []byte(script), 0o755)
}

func mlflowTree(ctx context.Context) (string, error) {
	dir, _, err := mlflow.dir(ctx)
	return dir, err
}

func mlflowPython(ctx context.Context) (string, error) {
	tree, py, err := mlflow.dir(ctx)
	return filepath.Join(tree, py.inImage()), err
}

// fillMLflow makes all files of an image.
func fillMLflow(ctx context.Context, py python, packages lock, tree string) error {
	tell("copying Python %s", py.Version)
	if err := py.copyTo(tree); err != nil {
		return err
	}
	if err := py.install(ctx, packages, tree); err != nil {
		return err
	}
	tell("compiling it, so that pods start quickly")
	if err := py.compile(ctx, tree); err != nil {
		return err
	}
	return errors.Join(addPrograms(tree, tools...), addLibraries(tree))
}
