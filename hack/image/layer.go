// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonroot is the user of the image; the number is what Pod Security looks at, the name is for people.
const nonroot = 65532

const rootsPath = "etc/ssl/certs/ca-certificates.crt"

// file is an entry of the layer; a name that ends in a slash is a directory.
type file struct {
	name    string
	mode    int64
	content []byte
	from    string // read from here instead
}

// files lists what is in the image, parents before children.
func files(program, binary, roots string) ([]file, error) {
	out := []file{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o444, content: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", nonroot)},
		{name: "etc/passwd", mode: 0o444, content: fmt.Appendf(nil,
			"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%[1]d:%[1]d:nonroot:/:/sbin/nologin\n", nonroot)},
	}
	if roots != "" {
		switch _, err := os.Stat(roots); {
		case err == nil:
			out = append(out,
				file{name: "etc/ssl/", mode: 0o755},
				file{name: "etc/ssl/certs/", mode: 0o755},
				file{name: rootsPath, mode: 0o444, from: roots})
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return append(out, file{name: program, mode: 0o555, from: binary}), nil
}

// addFile reads "usr/lib/libx.so=build/libx.so". The directories above come before the file.
func addFile(all []file, s string) ([]file, error) {
	name, from, ok := strings.Cut(s, "=")
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if !ok || name == "" || from == "" {
		return nil, fmt.Errorf("%q is not path-in-the-image=file", s)
	}
	for i, c := range name {
		dir := file{name: name[:i] + "/", mode: 0o755}
		if c == '/' && !slices.ContainsFunc(all, func(f file) bool { return f.name == dir.name }) {
			all = append(all, dir)
		}
	}
	return append(all, file{name: name, mode: 0o555, from: from}), nil
}

// layerOf packs the files. It is written to disk once, uncompressed, because it is read several times.
func layerOf(entries []file, path string, level int) (v1.Layer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	err = writeTar(f, entries)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("pack the layer: %w", err)
	}
	return tarball.LayerFromFile(path, tarball.WithCompressionLevel(level),
		tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
}

func writeTar(w io.Writer, entries []file) error {
	out := tar.NewWriter(w)
	for _, e := range entries {
		if e.from != "" {
			var err error
			if e.content, err = os.ReadFile(e.from); err != nil {
				return err
			}
		}
		header := &tar.Header{
			Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Typeflag: tar.TypeReg,
			ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
		}
		if e.name[len(e.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := out.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if _, err := out.Write(e.content); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return out.Close()
}
