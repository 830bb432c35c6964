// SPDX-License-Identifier: Apache-2.0

// Package unpack extracts archives that nobody vouches for: tar, plain or compressed with gzip or bzip2, and zip. What
// leads out of the destination is refused by the destination; devices and the like are refused here, and so is what
// becomes far larger than an honest archive would.
package unpack

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/modelplane/modelplane/internal/fetch/dest"
)

// Ratio bounds how many times larger than its archive the content may be.
type Ratio struct {
	// Most is the bound; zero means none.
	Most int64
	// Free is how much content is allowed in any case: small texts may compress beyond any ratio.
	Free int64
}

// Unusual are endings of compressed archives that cannot be read.
var unusual = []string{".tar.xz", ".txz", ".tar.zst", ".tar.lzma", ".7z", ".rar"}

// Known tells by a name whether it is an archive that is to be unpacked.
func Known(name string) bool {
	name = strings.ToLower(path.Base(name))
	for _, end := range append([]string{".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".zip"}, unusual...) {
		if strings.HasSuffix(name, end) && len(name) > len(end) {
			return true
		}
	}
	return false
}

// Extract writes the content of an archive of a certain size to the directory. Errors say what is wrong with the archive.
func Extract(archive io.ReaderAt, size int64, name string, into *dest.Dir, ratio Ratio) error {
	for _, end := range unusual {
		if strings.HasSuffix(strings.ToLower(name), end) {
			return fmt.Errorf("archives that end in %s cannot be unpacked; pack the model as .tar.gz or .zip", end)
		}
	}
	bound := &bound{left: ratio.Free + ratio.Most*size, ratio: ratio.Most}
	err := extract(archive, size, into, bound)
	var limit *dest.TooLarge
	if err == nil || errors.As(err, &limit) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("the archive is cut off; upload it again")
	}
	return err
}

func extract(archive io.ReaderAt, size int64, into *dest.Dir, b *bound) error {
	var magic [4]byte
	if n, err := archive.ReadAt(magic[:], 0); n < len(magic) && err != nil {
		return errors.New("the archive is empty or cut off; upload it again")
	}
	if bytes.HasPrefix(magic[:], []byte("PK")) {
		return extractZip(archive, size, into, b)
	}
	// Counted before it is parsed, since headers alone can be a bomb, and after, since holes in files are as well.
	content := *b
	buffer := make([]byte, bufferSize)
	entries := 0
	err := eachTar(archive, size, b, func(h *tar.Header, from io.Reader) error {
		entries++
		return tarEntry(reader{from, &content}, h, into, buffer)
	})
	if err == nil && entries == 0 {
		return errors.New("the archive is empty; upload it again")
	}
	return err
}

// eachTar calls for each entry of an archive, which may be compressed.
func eachTar(archive io.ReaderAt, size int64, b *bound, do func(*tar.Header, io.Reader) error) error {
	plain, err := decompress(bufio.NewReaderSize(io.NewSectionReader(archive, 0, size), 128<<10))
	if err != nil {
		return corrupt(err)
	}
	entries := tar.NewReader(reader{plain, b})
	for {
		header, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return corrupt(err)
		}
		if err := do(header, entries); err != nil {
			return err
		}
	}
}

// decompress goes by the first bytes, because names lie.
func decompress(from *bufio.Reader) (io.Reader, error) {
	magic, err := from.Peek(3)
	switch {
	case err != nil:
		return from, nil //nolint:nilerr // too short for anything; the reader of archives says so
	case magic[0] == 0x1f && magic[1] == 0x8b:
		return gzip.NewReader(from)
	case string(magic) == "BZh":
		return bzip2.NewReader(from), nil
	}
	return from, nil
}

func corrupt(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fmt.Errorf("the archive is damaged or of another format than its name says (%w); upload it again", err)
}

// bound stops content that grows beyond its archive.
type bound struct{ left, ratio int64 }

func (b *bound) spend(n int64) error {
	if b.ratio == 0 {
		return nil
	}
	if b.left -= n; b.left < 0 {
		return fmt.Errorf("the archive unpacks to more than %d times its size, which no honest model does; pack it anew, or raise the limit", b.ratio)
	}
	return nil
}

// reader counts what is read of one entry and marks errors of the archive as such.
type reader struct {
	from io.Reader
	b    *bound
}

func (r reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if spent := r.b.spend(int64(n)); spent != nil {
		return n, spent
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = corrupt(err)
	}
	return n, err
}
