// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	link    string // leads there instead
}

// base lists what is in every image, parents before children.
func base(roots string) ([]file, error) {
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
	return out, nil
}

// addTree appends everything below a directory, parents before children. Only the right to execute is kept of each
// file's mode, since the rest follows from the umask of whoever made it.
func addTree(entries []file, dir string) ([]file, error) {
	known := map[string]bool{}
	for _, e := range entries {
		known[e.name] = true
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		entry := file{name: filepath.ToSlash(relative), mode: 0o444, from: path}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			entry = file{name: entry.name + "/", mode: 0o755}
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is neither a file nor a directory", path)
		case info.Mode()&0o111 != 0:
			entry.mode = 0o555
		}
		if !known[entry.name] {
			entries = append(entries, entry)
		}
		return nil
	})
	return entries, err
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
		switch {
		case e.name[len(e.name)-1] == '/':
			header.Typeflag = tar.TypeDir
		case e.link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
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
