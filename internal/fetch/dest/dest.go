// SPDX-License-Identifier: Apache-2.0

// Package dest writes what was fetched below one directory and nowhere else: names that lead out of it are refused,
// no symbolic link is made that could lead out, limits hold for whatever is written, and a file has its name only when it
// is complete.
//
// It knows nothing of where files come from.
package dest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

// staging holds files until they are complete.
const staging = ".modelplane-part"

const (
	dirMode  fs.FileMode = 0o755
	fileMode fs.FileMode = 0o644
	execMode fs.FileMode = 0o755
)

// Dir is where files go.
type Dir struct {
	root    *os.Root
	budget  *Budget
	onWrite func(int64) // is told how many bytes were written
	next    atomic.Int64
}

// Open makes the directory if it is missing, and removes what a run that was ended left incomplete.
func Open(name string, budget *Budget, onWrite func(int64)) (*Dir, error) {
	if err := os.MkdirAll(name, dirMode); err != nil {
		return nil, fmt.Errorf("the destination %s cannot be made: %w", name, reason(err))
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("the destination %s cannot be opened: %w", name, reason(err))
	}
	if onWrite == nil {
		onWrite = func(int64) {}
	}
	d := &Dir{root: root, budget: budget, onWrite: onWrite}
	if err := root.RemoveAll(staging); err != nil {
		return nil, errors.Join(fmt.Errorf("the destination %s cannot be written: %w", name, reason(err)), root.Close())
	}
	if err := root.Mkdir(staging, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("the destination %s cannot be written: %w", name, reason(err)), root.Close())
	}
	return d, nil
}

// Close removes everything incomplete.
func (d *Dir) Close() error {
	return errors.Join(d.root.RemoveAll(staging), d.root.Close())
}

// Budget that the directory counts against.
func (d *Dir) Budget() *Budget { return d.budget }

// Clean is the name of a file below the directory, or why there cannot be such a file.
func Clean(name string) (string, error) {
	clean := path.Clean(name)
	switch {
	case name == "", clean == ".", strings.HasSuffix(name, "/"):
		return "", fmt.Errorf("%q names no file", name)
	case strings.ContainsRune(name, 0):
		return "", fmt.Errorf("the name %q contains a zero byte", name)
	case !filepath.IsLocal(clean):
		return "", fmt.Errorf("the name %q leads out of the destination", name)
	case clean == staging, strings.HasPrefix(clean, staging+"/"):
		return "", fmt.Errorf("the name %q is reserved", name)
	}
	return clean, nil
}

// File is a file that is being written. Either Commit or Abort ends it; Abort after Commit does nothing.
type File struct {
	*os.File
	dir      *Dir
	budget   *Budget
	part     string // where it is now
	name     string // where it goes; empty for one that does not stay
	reserved atomic.Int64
	files    int64
	ended    bool
}

// Create starts a file.
func (d *Dir) Create(name string) (*File, error) {
	clean, err := Clean(name)
	if err != nil {
		return nil, err
	}
	if err := d.budget.grow(0, 1); err != nil {
		return nil, err
	}
	f, err := d.create(clean, d.budget)
	if err != nil {
		return nil, errors.Join(err, d.budget.grow(0, -1))
	}
	f.files = 1
	return f, nil
}

// Scratch starts a file that is never going to have a name, such as an archive that is unpacked.
func (d *Dir) Scratch() (*File, error) { return d.create("", d.budget.aside()) }

func (d *Dir) create(name string, budget *Budget) (*File, error) {
	part := d.part()
	file, err := d.root.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, fmt.Errorf("the destination cannot be written: %w", reason(err))
	}
	return &File{File: file, dir: d, budget: budget, part: part, name: name}, nil
}

// part is a name for something that has none yet.
func (d *Dir) part() string { return staging + "/" + strconv.FormatInt(d.next.Add(1), 10) }

// noticeable is how much a file must grow at once for the file system to be asked whether it has room.
const noticeable = 64 << 20

// Reserve counts bytes that are going to be written.
func (f *File) Reserve(size int64) error {
	for {
		have := f.reserved.Load()
		if size <= have {
			return nil
		}
		if size-have >= noticeable {
			if err := f.dir.Room(size - have); err != nil {
				return err
			}
		}
		if err := f.budget.grow(size-have, 0); err != nil {
			return err
		}
		if f.reserved.CompareAndSwap(have, size) {
			return nil
		}
		if err := f.budget.grow(have-size, 0); err != nil {
			return err
		}
	}
}

// WriteAt writes and counts.
func (f *File) WriteAt(p []byte, at int64) (int, error) {
	if err := f.Reserve(at + int64(len(p))); err != nil {
		return 0, err
	}
	n, err := f.File.WriteAt(p, at)
	f.dir.onWrite(int64(n))
	if err != nil {
		err = fmt.Errorf("the destination cannot be written: %w", reason(err))
	}
	return n, err
}

// Writer writes the file from its beginning to its end.
func (f *File) Writer() io.Writer { return &appender{file: f} }

type appender struct {
	file *File
	at   int64
}

func (a *appender) Write(p []byte) (int, error) {
	n, err := a.file.WriteAt(p, a.at)
	a.at += int64(n)
	return n, err
}

// Commit gives the file its name, after its content is on the disk.
func (f *File) Commit(mode fs.FileMode) error {
	if f.ended {
		return nil
	}
	f.ended = true
	final := fileMode
	if mode&0o111 != 0 {
		final = execMode
	}
	err := errors.Join(f.File.Chmod(final), f.File.Sync(), f.File.Close())
	if err == nil {
		err = f.dir.place(f.part, f.name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s cannot be written: %w", f.name, reason(err)), f.forget())
	}
	return nil
}

// place gives a part its name.
func (d *Dir) place(part, name string) error {
	actual, err := d.resolve(name)
	if err != nil {
		return err
	}
	if err := d.mkdirFor(actual); err != nil {
		return err
	}
	return d.root.Rename(part, actual)
}

// Abort forgets the file and what it counted.
func (f *File) Abort() error {
	if f.ended {
		return nil
	}
	f.ended = true
	return errors.Join(f.File.Close(), f.forget())
}

func (f *File) forget() error {
	err := f.dir.root.Remove(f.part)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.budget.grow(-f.reserved.Load(), -f.files))
}

func (d *Dir) mkdirFor(name string) error {
	if parent := path.Dir(name); parent != "." {
		return d.root.MkdirAll(parent, dirMode)
	}
	return nil
}

// Mkdir makes a directory, for archives that have empty ones.
func (d *Dir) Mkdir(name string) error {
	if clean := path.Clean(name); clean == "." {
		return nil
	}
	clean, err := Clean(strings.TrimSuffix(name, "/"))
	if err != nil {
		return err
	}
	if err := d.budget.grow(0, 1); err != nil {
		return err
	}
	if err := d.root.MkdirAll(clean, dirMode); err != nil {
		return fmt.Errorf("the directory %s cannot be made: %w", clean, reason(err))
	}
	return nil
}

// Link makes a second name for a file that is below the directory already. It must be a file: a second name for a symbolic
// link would lead elsewhere from another place.
func (d *Dir) Link(existing, name string) error {
	from, err := Clean(existing)
	if err != nil {
		return err
	}
	to, err := Clean(name)
	if err != nil {
		return err
	}
	if info, err := d.root.Lstat(from); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("the link %s is a second name of %s, which is no file; pack the file itself", to, from)
	}
	if err := d.budget.grow(0, 1); err != nil {
		return err
	}
	part := d.part()
	err = d.root.Link(from, part)
	if err == nil {
		err = d.place(part, to)
	}
	if err != nil {
		return fmt.Errorf("the link %s cannot be made: %w", to, reason(err))
	}
	return nil
}

// Remove takes away what is there, or all for ".".
func (d *Dir) Remove(name string) error {
	if name != "." {
		clean, err := Clean(name)
		if err != nil {
			return err
		}
		return d.remove(clean)
	}
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("the destination cannot be read: %w", reason(err))
	}
	for _, entry := range entries {
		if entry.Name() == staging {
			continue
		}
		if err := d.remove(entry.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) remove(clean string) error {
	if err := d.root.RemoveAll(clean); err != nil {
		return fmt.Errorf("%s cannot be removed: %w", clean, reason(err))
	}
	return nil
}

// Replace makes way for a directory where a file is, or the other way round.
func (d *Dir) Replace(name string, dir bool) error {
	clean, err := Clean(strings.TrimSuffix(name, "/"))
	if err != nil {
		return err
	}
	info, err := d.root.Lstat(clean)
	if err != nil || info.IsDir() == dir {
		return nil //nolint:nilerr // nothing is in the way
	}
	return d.remove(clean)
}

// reason takes paths out of errors of the file system: they say where we were, not where the user should look.
func reason(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}
