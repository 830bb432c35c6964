// SPDX-License-Identifier: Apache-2.0

package unpack

import (
	"archive/tar"
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/modelplane/modelplane/internal/fetch/dest"
)

const bufferSize = 256 << 10

// longestTarget bounds the text of a link in a zip archive, which is the content of an entry.
const longestTarget = 4 << 10

func tarEntry(archive io.Reader, h *tar.Header, into *dest.Dir, buffer []byte) error {
	name := strings.TrimPrefix(h.Name, "./")
	switch h.Typeflag {
	case tar.TypeDir:
		return into.Mkdir(name)
	case tar.TypeReg, tar.TypeGNUSparse:
		return writeFile(archive, name, h.Size, h.FileInfo().Mode(), into, buffer)
	case tar.TypeSymlink:
		return into.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return into.Link(strings.TrimPrefix(h.Linkname, "./"), name)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return fmt.Errorf("%s in the archive is neither file nor directory nor link; pack the model without it", name)
}

func writeFile(from io.Reader, name string, size int64, mode fs.FileMode, into *dest.Dir, buffer []byte) error {
	f, err := into.Create(name)
	if err != nil {
		return err
	}
	defer f.Abort() //nolint:errcheck // does nothing after Commit, and the first error counts
	if err := f.Reserve(size); err != nil {
		return err
	}
	if _, err := io.CopyBuffer(f.Writer(), struct{ io.Reader }{from}, buffer); err != nil {
		return err
	}
	return f.Commit(mode)
}

func extractZip(from io.ReaderAt, size int64, into *dest.Dir, b *bound) error {
	archive, err := zip.NewReader(from, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // the destination judges paths
		return corrupt(err)
	}
	if len(archive.File) == 0 {
		return errors.New("the archive is empty; upload it again")
	}
	buffer := make([]byte, bufferSize)
	for _, entry := range archive.File {
		if err := zipEntry(entry, into, b, buffer); err != nil {
			return err
		}
	}
	return nil
}

func zipEntry(entry *zip.File, into *dest.Dir, b *bound, buffer []byte) error {
	mode := entry.Mode()
	if mode.IsDir() {
		return into.Mkdir(entry.Name)
	}
	content, err := entry.Open()
	if err != nil {
		return corrupt(err)
	}
	defer content.Close()
	counted := reader{content, b}
	switch {
	case mode&fs.ModeSymlink != 0:
		target, err := io.ReadAll(io.LimitReader(counted, longestTarget))
		if err != nil {
			return err
		}
		return into.Symlink(string(target), entry.Name)
	case !mode.IsRegular():
		return fmt.Errorf("%s in the archive is neither file nor directory nor link; pack the model without it", entry.Name)
	case entry.UncompressedSize64 > 1<<62:
		return corrupt(errors.New("a size that cannot be"))
	}
	return writeFile(counted, entry.Name, int64(entry.UncompressedSize64), mode, into, buffer)
}
