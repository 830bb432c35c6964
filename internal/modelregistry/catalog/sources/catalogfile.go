// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
)

// MaxEntries is how many entries a source may have.
const MaxEntries = 20_000

// Read is what became of a source.
type Read struct {
	Entries []*entry.Entry
	// Failed are entries that could not be read, with the reason.
	Failed []string
	// Unknown are names of fields that nobody knows.
	Unknown []string
}

// Objects of a catalog's file.
func Objects(kind *entry.Kind, data []byte) ([]map[string]any, []string, error) {
	decoded, err := decode(data)
	if err != nil {
		return nil, nil, err
	}
	outer, ok := decoded.(map[string]any)
	if !ok {
		return nil, nil, errors.New("the file is not an object")
	}
	var unknown []string
	for name := range outer {
		if name != kind.Key && name != "source" {
			unknown = append(unknown, name)
		}
	}
	items, ok := outer[kind.Key].([]any)
	if !ok {
		return nil, nil, fmt.Errorf("the file has no list %q", kind.Key)
	}
	if len(items) > MaxEntries {
		return nil, nil, fmt.Errorf("there are more than %d %s", MaxEntries, kind.Key)
	}
	objects := make([]map[string]any, 0, len(items))
	for _, item := range items {
		object, _ := item.(map[string]any) // what is no object has no name, and is told of for that
		objects = append(objects, object)
	}
	return objects, unknown, nil
}

// Entries of a source. One that cannot be read does not keep the others away.
func (s Source) Entries(objects []map[string]any) Read {
	var out Read
	selection := Selection{Included: s.Included, Excluded: s.Excluded}
	names, ids := map[string]bool{}, map[int64]bool{}
	for i, object := range objects {
		name, _ := object["name"].(string)
		if name != "" && !selection.Allows(name) {
			continue
		}
		e, unknown, err := s.Kind.Read(s.ID, object)
		if err == nil && (names[e.Name] || ids[e.ID]) {
			err = errors.New("the name is there twice")
		}
		for _, u := range unknown {
			if !slices.Contains(out.Unknown, u) {
				out.Unknown = append(out.Unknown, u)
			}
		}
		if err != nil {
			if name == "" {
				name = fmt.Sprintf("%s[%d]", s.Kind.Key, i)
			}
			out.Failed = append(out.Failed, name+": "+err.Error())
			continue
		}
		names[e.Name], ids[e.ID] = true, true
		out.Entries = append(out.Entries, e)
	}
	return out
}

// Told is what failed, for a person, and not more of it than can be read.
func Told(failed []string) string {
	const shown = 5
	if len(failed) <= shown {
		return strings.Join(failed, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(failed[:shown], "; "), len(failed)-shown)
}
