// SPDX-License-Identifier: Apache-2.0

package unpack

import (
	"archive/tar"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/modelplane/modelplane/internal/fetch/dest"
)

// Signs of a layer that something below it is gone.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// Layer lays what one layer of an image has in a directory over what is there, and tells whether it has a file in it.
func Layer(archive io.ReaderAt, size int64, dir string, into *dest.Dir, ratio Ratio) (bool, error) {
	found := false
	bound := &bound{left: ratio.Free + ratio.Most*size, ratio: ratio.Most}
	content := *bound
	buffer := make([]byte, bufferSize)
	err := eachTar(archive, size, bound, func(h *tar.Header, from io.Reader) error {
		name, ok := below(h.Name, dir)
		if !ok {
			return nil
		}
		if gone, ok := removed(name); ok {
			return into.Remove(gone)
		}
		if name == "." {
			return nil
		}
		here := *h
		here.Name = name
		switch h.Typeflag {
		case tar.TypeLink:
			if here.Linkname, ok = below(h.Linkname, dir); !ok {
				return errors.New(path.Join(dir, name) + " is a link out of /" + dir + "; put the file itself there")
			}
		case tar.TypeReg:
			found = true
		}
		if err := into.Replace(name, h.Typeflag == tar.TypeDir); err != nil {
			return err
		}
		return tarEntry(reader{from, &content}, &here, into, buffer)
	})
	return found, err
}

// below is the name relative to a directory at the root of the image; "." for the directory itself.
func below(name, dir string) (string, bool) {
	clean := path.Clean("/" + name)
	if clean == "/"+dir {
		return ".", true
	}
	return strings.CutPrefix(clean, "/"+dir+"/")
}

// removed reads a whiteout: what is gone, or "." for all.
func removed(name string) (string, bool) {
	dir, base := path.Split(name)
	switch {
	case base == opaque:
		return path.Clean(dir), true
	case strings.HasPrefix(base, whiteout):
		return path.Join(dir, strings.TrimPrefix(base, whiteout)), true
	}
	return "", false
}
