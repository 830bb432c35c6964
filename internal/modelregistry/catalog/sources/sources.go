// SPDX-License-Identifier: Apache-2.0

// Package sources reads where a catalog's entries come from: the files that list sources, the files that list entries, and
// the directories with measurements of models. Everything it reads was written by somebody else and is bounded. It watches
// nothing and asks nobody over the network.
package sources

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
)

// Source is where entries of one kind come from.
type Source struct {
	Kind     *entry.Kind
	ID, Name string
	// Type is yaml or hf.
	Type    string
	Enabled *bool
	// Labels are nil if nobody said anything.
	Labels     []string
	Properties map[string]any
	// Dir is that of the file in which the properties are; relative paths begin there.
	Dir                string
	Included, Excluded []string
}

// IsEnabled unless somebody says otherwise.
func (s Source) IsEnabled() bool { return s.Enabled == nil || *s.Enabled }

// Text is a property of the source.
func (s Source) Text(name string) string {
	text, _ := s.Properties[name].(string)
	return text
}

// Path of the file that lists the entries; empty if there is none.
func (s Source) Path() string {
	path := s.Text("yamlCatalogPath")
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.Dir, path)
}

// File is what one sources file says.
type File struct {
	Sources []Source
	Labels  []Label
	Queries map[string]Query
}

// Label describes a label of sources to people. Its keys are free, but for name, which may be null.
type Label map[string]*string

// Asset is the kind of entries that the label is for.
func (l Label) Asset() string {
	if asset := l["assetType"]; asset != nil && *asset != "" {
		return *asset
	}
	return entry.Models.Asset
}

// Name tells labels apart, with their kind. The label of sources without a label has none.
func (l Label) Name() string {
	if name := l["name"]; name != nil {
		return *name
	}
	return "\x00"
}

// Query is a filter that has a name.
type Query struct {
	Asset   string
	Filters map[string]Filter
}

// Filter compares one property.
type Filter struct {
	Operator string `json:"operator"`
	Value    any    `json:"value"`
}

// UnmarshalJSON reads both forms: the properties themselves, or below filters, beside an assetType.
func (q *Query) UnmarshalJSON(data []byte) error {
	var outer map[string]json.RawMessage
	if err := json.Unmarshal(data, &outer); err != nil {
		return err
	}
	if filters, ok := outer["filters"]; ok {
		var wrapped struct {
			Asset   string          `json:"assetType"`
			Filters json.RawMessage `json:"filters"`
		}
		if err := strictly(data, &wrapped); err != nil {
			return err
		}
		q.Asset, data = wrapped.Asset, filters
	}
	if q.Asset == "" {
		q.Asset = entry.Models.Asset
	}
	return strictly(data, &q.Filters)
}

// document is a sources file.
type document struct {
	Catalogs               []source         `json:"catalogs"`
	ModelCatalogs          []source         `json:"model_catalogs"`
	MCPCatalogs            []source         `json:"mcp_catalogs"`
	AgentCatalogs          []source         `json:"agent_catalogs"`
	ServingRuntimeCatalogs []source         `json:"serving_runtime_catalogs"`
	Labels                 []Label          `json:"labels"`
	NamedQueries           map[string]Query `json:"namedQueries"`
}

type source struct {
	ID         string         `json:"id"`
	Name       string         `json:"name"`
	Type       string         `json:"type"`
	Enabled    *yes           `json:"enabled"`
	Labels     []string       `json:"labels"`
	AssetType  string         `json:"assetType"`
	Properties map[string]any `json:"properties"`

	IncludedModels  []string `json:"includedModels"`
	ExcludedModels  []string `json:"excludedModels"`
	IncludedServers []string `json:"includedServers"`
	ExcludedServers []string `json:"excludedServers"`
	IncludedAgents  []string `json:"includedAgents"`
	ExcludedAgents  []string `json:"excludedAgents"`
}

// yes is what people write for true.
type yes bool

// UnmarshalJSON understands yes and no, too.
func (y *yes) UnmarshalJSON(data []byte) error {
	switch strings.ToLower(strings.Trim(string(data), `"`)) {
	case "true", "yes", "on":
		*y = true
	case "false", "no", "off":
		*y = false
	default:
		return errors.New("enabled must be true or false")
	}
	return nil
}

// Bounds of what is read.
const (
	MaxSourcesFile = 1 << 20
	MaxCatalogFile = 32 << 20
	maxSources     = 500
	maxLabels      = 500
	maxQueries     = 200
	maxPatterns    = 1000
)

// ReadFile reads a file that may not be larger than the limit.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, nil
}

func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// Parse reads a sources file. A key that has no meaning is refused: it would be a setting that does nothing.
func Parse(data []byte, dir string) (*File, error) {
	data, err := toJSON(data)
	if err != nil {
		return nil, err
	}
	var d document
	if err := strictly(data, &d); err != nil {
		return nil, err
	}
	out := &File{Labels: d.Labels, Queries: d.NamedQueries}
	for _, group := range []struct {
		kind *entry.Kind
		list []source
	}{
		{entry.Models, d.Catalogs}, {entry.Models, d.ModelCatalogs}, {entry.MCPServers, d.MCPCatalogs},
		{entry.Agents, d.AgentCatalogs}, {entry.ServingRuntimes, d.ServingRuntimeCatalogs},
	} {
		for _, s := range group.list {
			one, err := s.understand(group.kind, dir)
			if err != nil {
				return nil, err
			}
			out.Sources = append(out.Sources, one)
		}
	}
	if err := out.check(); err != nil {
		return nil, err
	}
	return out, nil
}

func (f *File) check() error {
	seen := map[string]bool{}
	for _, s := range f.Sources {
		if seen[s.ID] {
			return fmt.Errorf("the source %q is there twice", s.ID)
		}
		seen[s.ID] = true
	}
	if len(f.Sources) > maxSources || len(f.Labels) > maxLabels || len(f.Queries) > maxQueries {
		return fmt.Errorf("there are more than %d sources, %d labels or %d named queries", maxSources, maxLabels, maxQueries)
	}
	labels := map[[2]string]bool{}
	for i, l := range f.Labels {
		if _, ok := l["name"]; !ok {
			return fmt.Errorf("labels[%d] has no name; use null for sources without a label", i)
		}
		key := [2]string{l.Asset(), l.Name()}
		if labels[key] {
			return fmt.Errorf("labels[%d]: the name is there twice", i)
		}
		labels[key] = true
	}
	for name, q := range f.Queries {
		if _, err := q.Text(nil); err != nil {
			return fmt.Errorf("namedQueries.%s: %w", name, err)
		}
	}
	return nil
}

func (s source) understand(kind *entry.Kind, dir string) (Source, error) {
	if s.ID == "" {
		return Source{}, errors.New("a source has no id")
	}
	if s.AssetType != "" {
		at := slices.IndexFunc(entry.Kinds, func(k *entry.Kind) bool { return k.Asset == s.AssetType })
		if at < 0 {
			return Source{}, fmt.Errorf("source %q: assetType %q is unknown", s.ID, s.AssetType)
		}
		kind = entry.Kinds[at]
	}
	out := Source{Kind: kind, ID: s.ID, Name: s.Name, Type: s.Type, Enabled: (*bool)(s.Enabled), Labels: s.Labels, Properties: s.Properties, Dir: dir}
	for of, lists := range map[*entry.Kind][2][]string{
		entry.Models: {s.IncludedModels, s.ExcludedModels}, entry.MCPServers: {s.IncludedServers, s.ExcludedServers},
		entry.Agents: {s.IncludedAgents, s.ExcludedAgents},
	} {
		switch {
		case of == kind:
			out.Included, out.Excluded = lists[0], lists[1]
		case lists[0] != nil || lists[1] != nil:
			return Source{}, fmt.Errorf("source %q is of %s; what it includes and excludes is named otherwise", s.ID, kind.Asset)
		}
	}
	if err := checkPatterns(out.Included, out.Excluded); err != nil {
		return Source{}, fmt.Errorf("source %q: %w", s.ID, err)
	}
	return out, nil
}

func checkPatterns(included, excluded []string) error {
	if len(included)+len(excluded) > maxPatterns {
		return fmt.Errorf("there are more than %d patterns", maxPatterns)
	}
	for _, pattern := range slices.Concat(included, excluded) {
		if strings.TrimSpace(pattern) == "" {
			return errors.New("a pattern is empty")
		}
	}
	for _, pattern := range included {
		if slices.Contains(excluded, pattern) {
			return fmt.Errorf("%q is both included and excluded", pattern)
		}
	}
	return nil
}

// ParseOne reads a single source of models, as somebody would put it into a file. It needs no id.
func ParseOne(data []byte) (Source, error) {
	data, err := toJSON(data)
	if err != nil {
		return Source{}, err
	}
	var s source
	if err := strictly(data, &s); err != nil {
		return Source{}, err
	}
	if s.ID == "" {
		s.ID = "preview"
	}
	if s.AssetType != "" && s.AssetType != entry.Models.Asset {
		return Source{}, errors.New("only sources of models have a preview")
	}
	return s.understand(entry.Models, "")
}

// Merged is what all sources files say together.
type Merged struct {
	Sources []Source
	Labels  []Label
	Queries map[string]Query
	// Problems are what could not be taken over.
	Problems []string
}

// Merge puts files together. A later one changes single fields of an earlier one's source, label or query.
func Merge(files []*File) Merged {
	out := Merged{Queries: map[string]Query{}}
	for _, f := range files {
		for _, s := range f.Sources {
			out.source(s)
		}
		for _, l := range f.Labels {
			out.label(l)
		}
		for name, q := range f.Queries {
			out.query(name, q)
		}
	}
	return out
}

func (m *Merged) source(s Source) {
	at := slices.IndexFunc(m.Sources, func(before Source) bool { return before.ID == s.ID })
	if at < 0 {
		m.Sources = append(m.Sources, s)
		return
	}
	before := &m.Sources[at]
	if before.Kind != s.Kind {
		m.Problems = append(m.Problems, fmt.Sprintf("The source %q of %s has the id of one of %s and is left out; give it another.", s.ID, s.Kind.Asset, before.Kind.Asset))
		return
	}
	if s.Name != "" {
		before.Name = s.Name
	}
	if s.Type != "" {
		before.Type = s.Type
	}
	if s.Enabled != nil {
		before.Enabled = s.Enabled
	}
	if s.Labels != nil {
		before.Labels = s.Labels
	}
	if s.Properties != nil {
		before.Properties, before.Dir = s.Properties, s.Dir
	}
	if s.Included != nil {
		before.Included = s.Included
	}
	if s.Excluded != nil {
		before.Excluded = s.Excluded
	}
}

func (m *Merged) label(l Label) {
	at := slices.IndexFunc(m.Labels, func(before Label) bool { return before.Asset() == l.Asset() && before.Name() == l.Name() })
	if at < 0 {
		m.Labels = append(m.Labels, l)
		return
	}
	m.Labels[at] = l
}

func (m *Merged) query(name string, q Query) {
	before, ok := m.Queries[name]
	if !ok || before.Asset != q.Asset {
		m.Queries[name] = q
		return
	}
	merged := Query{Asset: q.Asset, Filters: map[string]Filter{}}
	for _, from := range []Query{before, q} {
		for property, f := range from.Filters {
			merged.Filters[property] = f
		}
	}
	m.Queries[name] = merged
}
