// SPDX-License-Identifier: Apache-2.0

// Package rootfs collects the files of a container image around programs that are linked with shared libraries: the
// programs, the loader, and the libraries of this machine that they need. Who makes an image of the files is not its
// business. It must not import anything outside the standard library.
package rootfs

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Collect copies programs and libraries to where they are in the image, and everything they are linked with to where the
// loader looks for it. The files are named by their paths in the image. It returns all paths there, sorted.
func Collect(tree string, roots map[string]string) ([]string, error) {
	files := maps.Clone(roots)
	for _, path := range slices.Sorted(maps.Keys(roots)) {
		if err := addNeeded(files, roots[path]); err != nil {
			return nil, err
		}
	}
	paths := slices.Sorted(maps.Keys(files))
	for _, path := range paths {
		if err := copyFile(files[path], filepath.Join(tree, path)); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// addNeeded follows the names of libraries that a program or library wants, and theirs.
func addNeeded(files map[string]string, path string) error {
	binary, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	defer func() { _ = binary.Close() }()
	if loader := interpreter(binary); loader != "" {
		files[loader] = loader
	}
	names, err := binary.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	for _, name := range names {
		if has(files, name) {
			continue
		}
		found, err := locate(name, binary.Machine)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		files[found] = found
		if err := addNeeded(files, found); err != nil {
			return err
		}
	}
	return nil
}

func has(files map[string]string, name string) bool {
	for path := range files {
		if filepath.Base(path) == name {
			return true
		}
	}
	return false
}

// interpreter is the loader that a program names; empty for libraries.
func interpreter(binary *elf.File) string {
	for _, p := range binary.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(p.Open())
		if err == nil && len(name) > 1 {
			return string(name[:len(name)-1])
		}
	}
	return ""
}

var triplets = map[elf.Machine]string{elf.EM_X86_64: "x86_64-linux-gnu", elf.EM_AARCH64: "aarch64-linux-gnu"}

// locate finds a library where Debian's loader looks without a cache, so that the same path works in the image.
func locate(name string, machine elf.Machine) (string, error) {
	triplet := triplets[machine]
	dirs := []string{"/lib/" + triplet, "/usr/lib/" + triplet, "/lib64", "/lib", "/usr/lib64", "/usr/lib"}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed under any of %v; the packages libc6, libstdc++6 and libgcc-s1 have what is needed on Debian", name, dirs)
}

// copyFile keeps the right to execute, which the loader needs as well as the programs, and makes everything readable.
func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()&0o755 | 0o444
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(mode), out.Close())
}
