// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/modelplane/modelplane/internal/fetch/dest"
	"github.com/modelplane/modelplane/internal/fetch/unpack"
)

// local is a path in the container, mostly in a volume. It is copied, because the server's container may not have it.
type local string

// deepest bounds directories below each other, which links may make endless.
const deepest = 64

func (l local) copy(ctx context.Context, r *run, into *dest.Dir) error {
	info, err := os.Stat(string(l))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such file or directory; check the path, and that the volume is mounted")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("permission denied; check which user may read it, or set securityContext.fsGroup of the pod")
	case err != nil:
		return errors.New("it cannot be read")
	}
	dir, name := filepath.Split(string(l))
	if info.IsDir() {
		dir, name = string(l), "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return unreadable(dir, err)
	}
	defer root.Close() //nolint:errcheck // only read
	files, err := listLocal(root, name)
	if err != nil {
		return err
	}
	return r.copyAll(ctx, root, files, into)
}

// localFile is a file below the root and the name that it gets.
type localFile struct {
	path, name string
	size       int64
	mode       fs.FileMode
}

func listLocal(root *os.Root, name string) ([]localFile, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	if !info.IsDir() {
		return []localFile{{name, path.Base(name), info.Size(), info.Mode()}}, nil
	}
	return walk(root, name, 0)
}

// walk lists files below a directory. Links are followed as far as they stay below the root. Names that begin with two
// dots are the inner workings of mounted ConfigMaps and Secrets.
func walk(root *os.Root, dir string, depth int) ([]localFile, error) {
	if depth > deepest {
		return nil, fmt.Errorf("%s has more than %d directories below each other; look for links that lead back", dir, deepest)
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return nil, unreadable(dir, err)
	}
	var out []localFile
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") || entry.Name() == "lost+found" {
			continue
		}
		at := path.Join(dir, entry.Name())
		info, err := root.Stat(at)
		if err != nil {
			return nil, unreadable(at, err)
		}
		switch {
		case info.IsDir():
			below, err := walk(root, at, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		case info.Mode().IsRegular():
			out = append(out, localFile{at, at, info.Size(), info.Mode()})
		default:
			return nil, fmt.Errorf("%s is neither file nor directory; remove it", at)
		}
	}
	return out, nil
}

func unreadable(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: permission denied; check which user may read it, or set securityContext.fsGroup of the pod", name)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist, or is a link to something that does not; check what is in the volume", name)
	case strings.Contains(err.Error(), "escapes"):
		return fmt.Errorf("%s is a link that leads out of the model; put the file itself there", name)
	}
	return fmt.Errorf("%s cannot be read", name)
}

func (r *run) copyAll(ctx context.Context, root *os.Root, files []localFile, into *dest.Dir) error {
	if len(files) == 0 {
		return errors.New("it has no files; check the path")
	}
	var total int64
	for _, f := range files {
		total += f.size
	}
	if err := into.Budget().Fits(total); err != nil {
		return err
	}
	if err := into.Room(total); err != nil {
		return err
	}
	r.progress.expect(int64(len(files)), total)
	if len(files) == 1 && unpack.Known(files[0].name) {
		return r.unpackLocal(root, files[0], into)
	}
	buffer := make([]byte, 1<<20)
	for _, f := range files {
		if err := copyLocal(ctx, root, f, into, buffer); err != nil {
			return err
		}
		r.progress.finished()
	}
	return nil
}

func (r *run) unpackLocal(root *os.Root, f localFile, into *dest.Dir) error {
	archive, err := root.Open(f.path)
	if err != nil {
		return unreadable(f.path, err)
	}
	defer archive.Close() //nolint:errcheck // only read
	if err := unpack.Extract(archive, f.size, f.name, into, r.Ratio); err != nil {
		return inFile(f.name, err)
	}
	r.progress.finished()
	return nil
}

func copyLocal(ctx context.Context, root *os.Root, f localFile, into *dest.Dir, buffer []byte) error {
	from, err := root.Open(f.path)
	if err != nil {
		return unreadable(f.path, err)
	}
	defer from.Close() //nolint:errcheck // only read
	to, err := into.Create(f.name)
	if err != nil {
		return err
	}
	defer to.Abort() //nolint:errcheck // does nothing after Commit, and the first error counts
	if _, err := io.CopyBuffer(to.Writer(), until{ctx, from}, buffer); err != nil {
		return inFile(f.name, err)
	}
	return to.Commit(f.mode)
}

// until ends a copy when nobody wants it any more.
type until struct {
	ctx  context.Context
	from io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.from.Read(p)
}
