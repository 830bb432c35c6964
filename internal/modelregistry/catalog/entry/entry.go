// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
)

// Entry is one thing in a catalog, or a part of one. It is never changed once it has been read.
type Entry struct {
	ID           int64
	Source, Name string
	// Created and Updated are milliseconds since 1970; 0 if nobody knows.
	Created, Updated int64
	// Fields are what is shown.
	Fields map[string]any
	Parts  []*Entry
	// Search is the text in which free text is looked for, in lower case.
	Search string

	values map[string]Values
}

// Values are what an entry has for a property.
type Values struct {
	All []filter.Value
	// List: there may be several, and a filter asks whether one of them is so.
	List bool
	// Custom: a property that the owner of the entry has invented.
	Custom bool
	// option: offered as filter, as offered.
	option  bool
	offered string
}

// Bounds of one entry.
const (
	maxName       = 512
	maxParts      = 10_000
	maxProperties = 500
)

// ID is the same in every replica and after every restart. It stays below 2^53, so that no client of JSON rounds it.
func ID(parts ...string) int64 {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return max(int64(binary.BigEndian.Uint64(sum[:8])>>11), 1)
}

// reading is an entry that is being read.
type reading struct {
	*Entry
	kind    *Kind
	unknown map[string]bool
}

// Read makes an entry of an object of a catalog's file. Names of fields that the kind does not have are returned: they are
// left out, because a file that is newer than this program should still be read.
func (k *Kind) Read(source string, object map[string]any) (*Entry, []string, error) {
	r := reading{Entry: &Entry{Source: source, Fields: map[string]any{}, values: map[string]Values{}}, kind: k, unknown: map[string]bool{}}
	err := r.read(object, source)
	return r.Entry, slices.Sorted(maps.Keys(r.unknown)), err
}

func (r *reading) read(object map[string]any, path ...string) error {
	for name, value := range object {
		f, known := r.kind.fields[name]
		switch {
		case name == r.kind.PartsKey && r.kind.Parts != nil, value == nil:
		case !known:
			r.unknown[name] = true
		default:
			if err := r.field(name, f, value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for name, f := range r.kind.fields {
		if _, ok := r.Fields[name]; !ok && f.fallback != "" && f.shape == text {
			r.text(name, f, f.fallback)
		}
	}
	if err := r.identify(path); err != nil {
		return err
	}
	if err := r.parts(object[r.kind.PartsKey], append(path, r.Name)); err != nil {
		return err
	}
	if r.kind.check != nil {
		return r.kind.check(r.Entry)
	}
	return nil
}

// identify gives the entry its name and number. A model's artifact needs no name: it is told apart by where it lies.
func (r *reading) identify(path []string) error {
	r.Name, _ = r.Fields[cmp.Or(r.kind.name, "name")].(string)
	switch {
	case r.Name == "" && r.kind != modelArtifacts:
		return fmt.Errorf("%s is missing", cmp.Or(r.kind.name, "name"))
	case len(r.Name) > maxName:
		return fmt.Errorf("the name has more than %d bytes", maxName)
	case strings.ContainsFunc(r.Name, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return errors.New("there are control characters in the name")
	}
	uri, _ := r.Fields["uri"].(string)
	r.ID = ID(append(append([]string{r.kind.Asset}, path...), cmp.Or(r.Name, uri))...)
	r.identified()
	return nil
}

// identified shows the number, to readers and to filters.
func (r *reading) identified() {
	id := strconv.FormatInt(r.ID, 10)
	r.Fields["id"] = id
	r.values["id"] = Values{All: []filter.Value{{Type: filter.Int, Int: r.ID}, stringValue(id)}}
	if r.kind.Parts != nil {
		r.Fields["source_id"] = r.Source
		r.values["source_id"] = Values{All: []filter.Value{stringValue(r.Source)}}
	}
}

func (r *reading) parts(value any, path []string) error {
	if r.kind.Parts == nil {
		return nil
	}
	given, ok := value.([]any)
	if value != nil && !ok {
		return fmt.Errorf("%s is not a list", r.kind.PartsKey)
	}
	objects := make([]map[string]any, len(given))
	for i, one := range given {
		if objects[i], ok = one.(map[string]any); !ok {
			return fmt.Errorf("%s[%d] is not an object", r.kind.PartsKey, i)
		}
	}
	var err error
	if r.Parts, err = r.kind.readParts(r.Entry, path, objects, r.unknown); err != nil {
		return err
	}
	r.counted()
	return nil
}

// ReadParts makes parts of an entry that are told of elsewhere.
func (k *Kind) ReadParts(of *Entry, objects []map[string]any) ([]*Entry, error) {
	return k.readParts(of, []string{of.Source, of.Name}, objects, map[string]bool{})
}

func (k *Kind) readParts(of *Entry, path []string, objects []map[string]any, unknown map[string]bool) ([]*Entry, error) {
	if len(of.Parts)+len(objects) > maxParts {
		return nil, fmt.Errorf("there are more than %d %s", maxParts, k.PartsKey)
	}
	seen := map[int64]bool{}
	for _, before := range of.Parts {
		seen[before.ID] = true
	}
	var out []*Entry
	for i, object := range objects {
		part := reading{Entry: &Entry{Source: of.Source, Fields: map[string]any{}, values: map[string]Values{}}, kind: k.Parts, unknown: map[string]bool{}}
		if err := part.read(object, path...); err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", k.PartsKey, i, err)
		}
		for name := range part.unknown {
			unknown[k.PartsKey+"."+name] = true
		}
		if seen[part.ID] && part.Name != "" {
			return nil, fmt.Errorf("%s[%d]: the name %q is there twice", k.PartsKey, i, part.Name)
		}
		for n := 2; seen[part.ID]; n++ { // without names, the same place twice
			part.ID = ID(strconv.FormatInt(part.ID, 10), strconv.Itoa(n))
			part.identified()
		}
		seen[part.ID] = true
		out = append(out, part.Entry)
	}
	return out, nil
}

func (r *reading) counted() {
	if r.kind.Count != "" {
		r.Fields[r.kind.Count] = len(r.Parts)
		r.values[r.kind.Count] = Values{All: number(json.Number(strconv.Itoa(len(r.Parts))))}
	}
}

// field takes over one field.
func (r *reading) field(name string, f field, value any) error {
	switch f.shape {
	case text, license, location:
		s, ok := plain(value)
		if !ok {
			return errors.New("must be text")
		}
		if f.shape == license {
			s = LicenseName(s)
		}
		if f.shape == location {
			if err := checkLocation(s); err != nil {
				return err
			}
		}
		r.text(name, f, s)
	case list:
		return r.list(name, f, value)
	case flag:
		b, ok := value.(bool)
		if !ok {
			return errors.New("must be true or false")
		}
		r.Fields[name] = b
		r.values[name] = Values{All: []filter.Value{{Type: filter.Bool, Bool: b}}}
	case millis:
		return r.millis(name, value)
	case document:
		return r.document(name, value)
	case properties:
		return r.properties(value)
	case locations:
		return r.locations(name, f, value)
	case object, flags:
		r.Fields[name] = value
		r.flatten(name, value, false)
		if m, ok := value.(map[string]any); ok && f.shape == flags {
			for key, one := range m {
				r.flatten(key, one, false)
			}
		}
	case hidden:
	}
	return nil
}

func (r *reading) text(name string, f field, s string) {
	r.Fields[name] = s
	r.set(name, f, Values{All: []filter.Value{stringValue(s)}})
	r.searchable(f, s)
}

func (r *reading) set(name string, f field, v Values) {
	v.option, v.offered = f.option, cmp.Or(f.alias, name)
	r.values[name] = v
	if f.alias != "" {
		v.option = false
		r.values[f.alias] = v
	}
}

func (r *reading) searchable(f field, s string) {
	if f.search && s != "" {
		r.Search += strings.ToLower(s) + "\n"
	}
}

func (r *reading) list(name string, f field, value any) error {
	items, ok := value.([]any)
	if !ok {
		return errors.New("must be a list of texts")
	}
	shown, v := make([]string, 0, len(items)), Values{List: true}
	for _, item := range items {
		s, ok := plain(item)
		if !ok {
			return errors.New("must be a list of texts")
		}
		shown, v.All = append(shown, s), append(v.All, stringValue(s))
		r.searchable(f, s)
	}
	r.Fields[name] = shown
	r.set(name, f, v)
	return nil
}

func (r *reading) millis(name string, value any) error {
	s, _ := plain(value)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return errors.New("must be milliseconds since 1970")
	}
	if name == "createTimeSinceEpoch" {
		r.Created = n
	} else {
		r.Updated = n
	}
	r.Fields[name] = strconv.FormatInt(n, 10)
	r.values[name] = Values{All: []filter.Value{{Type: filter.Int, Int: n}, {Type: filter.Double, Double: float64(n)}, stringValue(s)}}
	return nil
}

func (r *reading) document(name string, value any) error {
	s, ok := value.(string)
	if !ok {
		data, err := json.Marshal(value)
		if err != nil {
			return err
		}
		s = string(data)
	}
	r.Fields[name] = s
	return nil
}

// locations are artifacts that are shown within their entry.
func (r *reading) locations(name string, f field, value any) error {
	items, ok := value.([]any)
	if !ok {
		return errors.New("must be a list of objects with a uri")
	}
	shown := make([]any, 0, len(items))
	for i, item := range items {
		object, ok := item.(map[string]any)
		uri, _ := object["uri"].(string)
		if !ok || uri == "" {
			return fmt.Errorf("[%d] has no uri", i)
		}
		if err := checkLocation(uri); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		if _, has := object["artifactType"]; f.fallback != "" && !has {
			object = maps.Clone(object)
			object["artifactType"] = f.fallback
		}
		shown = append(shown, object)
	}
	r.Fields[name] = shown
	r.flatten(name, shown, true)
	return nil
}

// flatten makes what lies in an object comparable by its dotted name.
func (r *reading) flatten(name string, value any, within bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, one := range value {
			r.flatten(name+"."+key, one, within)
		}
	case []any:
		for _, one := range value {
			r.flatten(name, one, true)
		}
	default:
		v := r.values[name]
		v.All, v.List = append(v.All, scalar(value)...), v.List || within
		r.values[name] = v
	}
}

// schemes under which artifacts may be had.
var schemes = []string{"oci", "http", "https", "s3", "gs", "az", "file", "hf"}

func checkLocation(uri string) error {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme == "" {
		return errors.New("is not an address such as oci://registry/image:tag")
	}
	if !slices.Contains(schemes, strings.ToLower(u.Scheme)) {
		return fmt.Errorf("%q is not one of %s", u.Scheme+"://", strings.Join(schemes, ", "))
	}
	return nil
}

// checkArtifact finds out which of the two types an artifact has.
func checkArtifact(e *Entry) error {
	kind, _ := e.Fields["artifactType"].(string)
	_, located := e.Fields["uri"]
	metrics, _ := e.Fields["metricsType"].(string)
	switch {
	case kind == "" && metrics != "":
		kind = MetricsArtifact
	case kind == "":
		kind = ModelArtifact
	}
	switch {
	case kind == ModelArtifact && !located:
		return errors.New("uri is missing")
	case kind == MetricsArtifact && metrics != PerformanceMetrics && metrics != AccuracyMetrics:
		return fmt.Errorf("metricsType must be %s or %s", PerformanceMetrics, AccuracyMetrics)
	case kind != ModelArtifact && kind != MetricsArtifact:
		return fmt.Errorf("artifactType must be %s or %s", ModelArtifact, MetricsArtifact)
	}
	e.Fields["artifactType"] = kind
	e.values["artifactType"] = Values{All: []filter.Value{stringValue(kind)}}
	return nil
}

func checkServer(e *Entry) error {
	endpoints, _ := e.Fields["endpoints"].(map[string]any)
	if mode, _ := e.Fields["deploymentMode"].(string); mode == "remote" && len(endpoints) == 0 {
		return errors.New("deploymentMode is remote, and there are no endpoints")
	}
	for name, value := range endpoints {
		s, _ := value.(string)
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "ws", "wss"}, u.Scheme) {
			return fmt.Errorf("endpoints.%s is not an address that begins with https://", name)
		}
	}
	return nil
}
