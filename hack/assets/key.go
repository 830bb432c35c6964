// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// cacheKey names a build by everything that goes into it: the toolchain and the non-test sources of
// the local module. Test files are left out so that writing a test does not cost a build.
func cacheKey(ctx context.Context, source string) (string, error) {
	env, err := goEnv(ctx, source)
	if err != nil {
		return "", err
	}
	return sourceKey(source, env)
}

func sourceKey(source string, env []byte) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "env %d\n%s\n", len(env), env)
	err := filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !buildInput(d.Name()) {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "file %s %d\n", filepath.ToSlash(rel), len(data))
		sum.Write(data)
		return nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:16], nil
}

func buildInput(name string) bool {
	if name == "go.mod" || name == "go.sum" {
		return true
	}
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}
