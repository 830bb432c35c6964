// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

// recipe is a digest of everything that an image follows from. It is empty where that is not known without building it.
// What is compiled is known by the names that the build cache gives it.
func recipe(o options) (string, error) {
	if !o.byContent || len(o.platforms) != 1 {
		return "", nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, path := range []string{self, o.roots} {
		content, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		fmt.Fprintf(sum, "%d\n", len(content))
		_, _ = sum.Write(content)
	}
	fmt.Fprintf(sum, "%q\n", []string{o.module, o.pkg, o.name, o.version, o.commit, o.date.String(), o.platforms[0].String()})
	if o.tree != "" {
		err := addDigests(sum, o.tree)
		return fmt.Sprintf("%x", sum.Sum(nil)), err
	}
	cmd := exec.Command("go", "list", "-trimpath", "-buildvcs=false", "-tags", o.tags(), "-deps", "-export", "-f", "{{.ImportPath}} {{.BuildID}}", o.pkg)
	cmd.Dir, cmd.Env = o.module, append(os.Environ(), o.platforms[0].environment()...)
	cmd.Stdout, cmd.Stderr = sum, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("list what %s is made of: %w", o.pkg, err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// addDigests reads the files that are there already, which takes a fraction of the time of packing them.
func addDigests(sum io.Writer, tree string) error {
	entries, err := addTree(nil, tree)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fmt.Fprintf(sum, "%q %o\n", e.name, e.mode)
		if e.from == "" {
			continue
		}
		content, err := os.ReadFile(e.from)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%x\n", sha256.Sum256(content))
	}
	return nil
}

// note is the file beside an archive that says what it was made of, and which tag that has.
func (o options) note() string { return o.archive() + ".recipe" }

// madeBefore finds the tag of an image that was made by the same recipe and is still as it was written.
func (o options) madeBefore(recipe string) (tag string, found bool) {
	content, err := os.ReadFile(o.note())
	if err != nil || recipe == "" {
		return "", false
	}
	before, tag, _ := strings.Cut(strings.TrimSpace(string(content)), " ")
	return tag, before == o.stamp(recipe)
}

// stamp ties a recipe to the files that were made by it.
func (o options) stamp(recipe string) string {
	sum := sha256.New()
	_, _ = io.WriteString(sum, recipe)
	for _, path := range []string{o.archive(), o.keepAs} {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(sum, " %s %d %d", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// remember is for madeBefore.
func (o options) remember(recipe string) error {
	if recipe == "" {
		return nil
	}
	return os.WriteFile(o.note(), []byte(strings.Join([]string{o.stamp(recipe), o.version}, " ")+"\n"), 0o644)
}
