// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"iter"
	"maps"
	"reflect"
	"strings"
	"sync"
)

var fieldCache sync.Map

// fieldsOf returns the JSON fields of a struct by name, with embedded structs
// resolved by the rules of encoding/json.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if cached, ok := fieldCache.Load(t); ok {
		return cached.(map[string]reflect.Type)
	}
	out := map[string]reflect.Type{}
	level := []reflect.Type{t}
	seen, taken := map[reflect.Type]bool{t: true}, map[string]bool{}
	for len(level) > 0 {
		here, next := map[string][]candidate{}, []reflect.Type(nil)
		for _, s := range level {
			next = append(next, collect(s, here, seen)...)
		}
		for name, found := range here {
			if winner, ok := dominant(found); ok && !taken[name] {
				out[name] = winner
			}
			taken[name] = true
		}
		level = next
	}
	fieldCache.Store(t, out)
	return out
}

type candidate struct {
	t      reflect.Type
	tagged bool
}

// collect puts the fields of one struct into here and returns the structs
// embedded in it, whose fields are one level deeper.
func collect(s reflect.Type, here map[string][]candidate, seen map[reflect.Type]bool) []reflect.Type {
	var embedded []reflect.Type
	for i := range s.NumField() {
		f := s.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if f.Anonymous && name == "" && inner.Kind() == reflect.Struct {
			if !seen[inner] {
				seen[inner] = true
				embedded = append(embedded, inner)
			}
			continue
		}
		if !f.IsExported() {
			continue
		}
		tagged := name != ""
		if !tagged {
			name = f.Name
		}
		here[name] = append(here[name], candidate{f.Type, tagged})
	}
	return embedded
}

// dominant picks among fields of one name at one depth: a tagged one before
// untagged ones, and none when that does not decide.
func dominant(found []candidate) (reflect.Type, bool) {
	var tagged []candidate
	for _, c := range found {
		if c.tagged {
			tagged = append(tagged, c)
		}
	}
	if len(tagged) > 0 {
		found = tagged
	}
	return found[0].t, len(found) == 1
}

// nearest returns the known name that a misspelt one most likely means, or
// nothing when no name is close.
func nearest(name string, known map[string]reflect.Type) string {
	return Nearest(name, maps.Keys(known))
}

// Nearest is the same for names of any kind. Of several that are as near, it is the first in the alphabet.
func Nearest(name string, known iter.Seq[string]) string {
	const longest = 64
	if len(name) > longest {
		return ""
	}
	best, distance := "", 1+max(1, len(name)/3)
	for candidate := range known {
		if strings.EqualFold(candidate, name) {
			return candidate
		}
		d := edits(name, candidate)
		if d < distance || d == distance && best != "" && candidate < best {
			best, distance = candidate, d
		}
	}
	return best
}

// edits counts the letters to insert, remove, replace or swap with a neighbour
// to get from one word to the other.
func edits(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
