// SPDX-License-Identifier: Apache-2.0

package dest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
)

// Symlink makes a link to something below the directory; the target is as links have it, relative to the link.
//
// What a link leads to may be replaced after it was made, by this archive or the next. Therefore two rules hold for the
// text of every link: it goes up first and then only down, and never further up than the directory that really holds it
// is deep. Whoever follows such links, through however many others, is never above the root.
func (d *Dir) Symlink(target, name string) error {
	clean, err := Clean(name)
	if err != nil {
		return err
	}
	actual, err := d.resolve(clean)
	if err != nil {
		return err
	}
	plain, err := d.target(target, path.Dir(actual))
	if err != nil {
		return fmt.Errorf("the link %q %w", name, err)
	}
	if err := d.budget.grow(0, 1); err != nil {
		return err
	}
	part := d.part()
	err = d.root.Symlink(plain, part)
	if err == nil {
		err = d.place(part, actual)
	}
	if err != nil {
		return fmt.Errorf("the link %s cannot be made: %w", clean, reason(err))
	}
	return nil
}

// target is the text of a link that is in a real directory, in the form that the rules want.
func (d *Dir) target(target, dir string) (string, error) {
	plain := path.Clean(target)
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) || !filepath.IsLocal(path.Join(dir, plain)) {
		return "", errors.New("leads out of the destination")
	}
	// A name before ".." may be left out only if it is no link itself: its parent is elsewhere then.
	at := dir
	for _, element := range strings.Split(target, "/") {
		if element == ".." {
			if d.isLink(at) {
				return "", fmt.Errorf("goes up from %s, which is a link; pack it with a plain target", at)
			}
		}
		at = path.Join(at, element)
	}
	return plain, nil
}

func (d *Dir) isLink(name string) bool {
	if name == "." || !filepath.IsLocal(name) {
		return false
	}
	info, err := d.root.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// mostLinks is how many links may be on one way, as in the kernel.
const mostLinks = 40

// resolve tells where a name is when the links on the way to it are followed; the last element itself is not. What is not there
// yet stays as it is.
func (d *Dir) resolve(name string) (string, error) {
	done, todo := ".", strings.Split(name, "/")
	for links := 0; len(todo) > 1; {
		next := todo[0]
		todo = todo[1:]
		at := path.Join(done, next)
		if !filepath.IsLocal(at) {
			return "", fmt.Errorf("the name %q leads out of the destination", name)
		}
		if !d.isLink(at) {
			done = at
			continue
		}
		if links++; links > mostLinks {
			return "", fmt.Errorf("the name %q goes through more than %d links", name, mostLinks)
		}
		text, err := d.root.Readlink(at)
		if err != nil || path.IsAbs(text) {
			return "", fmt.Errorf("the name %q leads out of the destination", name)
		}
		todo = append(strings.Split(text, "/"), todo...)
	}
	return Clean(path.Join(done, todo[0]))
}
