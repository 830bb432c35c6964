// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"slices"
	"strings"
)

// Selection says by patterns which entries of a source are wanted.
type Selection struct{ Included, Excluded []string }

// Allows a name that is included, or all of them if nothing is, and that is not excluded.
func (s Selection) Allows(name string) bool {
	matches := func(pattern string) bool { return glob(pattern, name) }
	return (len(s.Included) == 0 || slices.ContainsFunc(s.Included, matches)) && !slices.ContainsFunc(s.Excluded, matches)
}

// glob compares the whole name, whatever its case; * stands for any text and nothing else stands for anything.
func glob(pattern, name string) bool {
	pieces := strings.Split(strings.ToLower(strings.TrimSpace(pattern)), "*")
	name = strings.ToLower(name)
	last := len(pieces) - 1
	if last == 0 {
		return name == pieces[0]
	}
	if !strings.HasPrefix(name, pieces[0]) || !strings.HasSuffix(name[len(pieces[0]):], pieces[last]) {
		return false
	}
	name = name[len(pieces[0]) : len(name)-len(pieces[last])]
	for _, piece := range pieces[1:last] {
		at := strings.Index(name, piece)
		if at < 0 {
			return false
		}
		name = name[at+len(piece):]
	}
	return true
}
