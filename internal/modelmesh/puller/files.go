// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// folder holds one directory for each model.
type folder string

// longestName is what file systems allow.
const longestName = 255

// folderName is the one directory of a model below the folder. An id may have any characters; those that mean something
// in a path are escaped, and so is an underscore at the beginning, which marks what is the runtime's own.
func folderName(id string) (string, error) {
	name := url.PathEscape(id)
	if strings.HasPrefix(name, "_") {
		name = "%5F" + name[1:]
	}
	switch {
	case id == "" || name == "." || name == "..":
		return "", mistakef("the id %q is none that a model can have", id)
	case len(name) > longestName:
		return "", mistakef("the id of the model is longer than %d bytes; give it a shorter one", longestName)
	}
	return name, nil
}

// modelOf is the id of the model in a directory.
func modelOf(name string) string {
	if id, err := url.PathUnescape(name); err == nil {
		return id
	}
	return name
}

// add makes the directory of a model.
func (f folder) add(name string) (string, error) {
	dir := filepath.Join(string(f), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("the directory for the model's files cannot be made: %w", reason(err))
	}
	return dir, nil
}

// remove takes a model's directory away; links in it, and not what they lead to.
func (f folder) remove(name string) error {
	root, err := os.OpenRoot(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the directory for models cannot be opened: %w", reason(err))
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	if err := root.RemoveAll(name); err != nil {
		return fmt.Errorf("the model's files cannot be removed: %w", reason(err))
	}
	return nil
}

// list names the directories of models. What begins with an underscore, or a dot, is not ours.
func (f folder) list() ([]string, error) {
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the directory for models cannot be read: %w", reason(err))
	}
	var names []string
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, "_") && !strings.HasPrefix(name, ".") && name != "lost+found" {
			names = append(names, name)
		}
	}
	return names, nil
}

// diskSize is how much the files at a path take, or 0 where that cannot be told. A link is followed, as for claims.
func diskSize(path string) int64 {
	actual, err := filepath.EvalSymlinks(path)
	if err != nil {
		return 0
	}
	total := int64(0)
	err = filepath.WalkDir(actual, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		return 0
	}
	return total
}

// reason takes paths out of errors of the file system.
func reason(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
