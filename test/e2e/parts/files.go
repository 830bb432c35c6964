// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tools are the commands that the init containers of the server use.
var tools = []string{"sh", "cat", "chmod", "cp", "cut", "date", "find", "head", "ls", "mkdir", "mv", "printf", "rm", "sha256sum", "sleep", "sort", "test", "touch", "tr"}

// addPrograms puts programs of this machine to where a shell looks for them.
func addPrograms(tree string, names ...string) error {
	for _, name := range names {
		from, err := exec.LookPath(name)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnavailable, err)
		}
		if err := copyFile(from, filepath.Join(tree, "bin", name)); err != nil {
			return err
		}
	}
	return nil
}

// addLibraries puts every library that a program or module of the tree is linked with to where the loader looks for it.
func addLibraries(tree string) error {
	found := map[string]bool{}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !isELF(path) {
			return err
		}
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			return nil //nolint:nilerr // a static program or a module of another architecture
		}
		for line := range strings.Lines(string(out)) {
			if library := linkedWith(line); library != "" && !strings.HasPrefix(library, tree) {
				found[library] = true
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for library := range found {
		to := library
		if !strings.HasPrefix(to, "/lib") && !strings.HasPrefix(to, "/usr/lib") {
			to = filepath.Join("/usr/lib", filepath.Base(library)) // an interpreter's own, found by its path on this machine
		}
		if err := copyFile(library, filepath.Join(tree, to)); err != nil {
			return err
		}
	}
	return nil
}

// linkedWith reads a line of ldd: "libz.so.1 => /lib/…/libz.so.1 (0x…)" or "/lib64/ld-linux-x86-64.so.2 (0x…)".
func linkedWith(line string) string {
	line = strings.TrimSpace(line)
	if _, after, ok := strings.Cut(line, " => "); ok {
		line = after
	}
	path, _, _ := strings.Cut(line, " ")
	if !filepath.IsAbs(path) {
		return ""
	}
	return path
}

func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "\x7fELF"
}

// copyTree follows symbolic links, since an image of files has none.
func copyTree(from, to string, superfluous func(string, fs.DirEntry) bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != from && superfluous(d.Name(), d) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		relative, err := filepath.Rel(from, path)
		if err != nil || d.IsDir() {
			return err
		}
		return copyFile(path, filepath.Join(to, relative))
	})
}

// copyFile keeps the right to execute and makes everything readable.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm()&0o755|0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
