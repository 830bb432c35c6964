// SPDX-License-Identifier: Apache-2.0

// Package directory knows which external providers run a model and what is needed to ask them. It is fed by events, one
// object at a time, and answers from memory; it reads no cluster itself, so that its feeder decides which namespaces and
// which Secrets may be seen at all.
package directory

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Key names an object.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Auth is how to sign in at a provider.
type Auth struct {
	Type   string // apikey, simple, sigv4 or oauth2
	Secret Key
}

// Provider is one way to a model: who runs it, and how to ask.
type Provider struct {
	// Name is that of the ExternalProvider; Kind says what it is, such as openai or anthropic.
	Name, Kind string
	// Endpoint is the provider's host.
	Endpoint string
	// Format is the API that it speaks, such as openai-chat or messages; Path is where, without placeholders. Both are empty for
	// one that speaks all APIs of OpenAI, each where OpenAI has it.
	Format, Path string
	// TargetModel is the provider's name for the model.
	TargetModel string
	Weight      int
	Auth        Auth
	Config      map[string]string
}

// Model is an external model with the providers that can be asked now; those that are switched off, or whose
// ExternalProvider is not there, are not among them.
type Model struct {
	Key       Key
	Name      string // what clients call it
	Providers []Provider
}

// Directory is what the processor asks.
type Directory interface {
	// Model finds an external model by what clients call it, or by "<namespace>/<name>".
	Model(name string) (Model, bool)
	// Credential are the data of a Secret. They must not be changed, logged or kept.
	Credential(secret Key) (map[string][]byte, bool)
}

// ProviderSpec and ModelSpec are objects as the feeder sees them.
type ProviderSpec struct {
	Kind, Endpoint string
	Auth           Auth
	Config         map[string]string
}

// ModelSpec is an ExternalModel.
type ModelSpec struct {
	Name    string
	Created time.Time
	Refs    []ProviderRef
}

// ProviderRef is one provider of a model. Auth and Config go over those of the provider.
type ProviderRef struct {
	Provider                  string
	TargetModel, Format, Path string
	Weight                    int
	Auth                      *Auth
	Config                    map[string]string
}

// Table is a Directory in memory.
type Table struct {
	mu        sync.RWMutex
	models    map[Key]ModelSpec
	providers map[Key]ProviderSpec
	secrets   map[Key]map[string][]byte
	byName    map[string][]Key // who has a name, the oldest first
	// former are models of the former kind, each with its provider; one of the other kind goes before it.
	former map[Key]Former
}

// Former is an ExternalModel of the former kind. Its name is what clients call it.
type Former struct {
	Created  time.Time
	Provider Provider
}

var _ Directory = (*Table)(nil)

// New is a table in which nothing is yet.
func New() *Table {
	return &Table{models: map[Key]ModelSpec{}, providers: map[Key]ProviderSpec{}, secrets: map[Key]map[string][]byte{}, byName: map[string][]Key{}, former: map[Key]Former{}}
}

// PutModel takes an ExternalModel as it is now.
func (t *Table) PutModel(k Key, m ModelSpec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(k)
	m.Name = cmp.Or(m.Name, k.Name)
	t.models[k] = m
	keys := slices.Concat(t.byName[m.Name], []Key{k})
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(t.models[a].Created.Compare(t.models[b].Created), strings.Compare(a.String(), b.String()))
	})
	t.byName[m.Name] = keys
}

// RemoveModel forgets one.
func (t *Table) RemoveModel(k Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(k)
}

func (t *Table) forget(k Key) {
	m, has := t.models[k]
	if !has {
		return
	}
	delete(t.models, k)
	if t.byName[m.Name] = slices.DeleteFunc(t.byName[m.Name], func(other Key) bool { return other == k }); len(t.byName[m.Name]) == 0 {
		delete(t.byName, m.Name)
	}
}

// PutProvider takes an ExternalProvider as it is now.
func (t *Table) PutProvider(k Key, p ProviderSpec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.providers[k] = p
}

// RemoveProvider forgets one.
func (t *Table) RemoveProvider(k Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.providers, k)
}

// PutFormer takes an ExternalModel of the former kind as it is now.
func (t *Table) PutFormer(k Key, f Former) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.former[k] = f
}

// RemoveFormer forgets one.
func (t *Table) RemoveFormer(k Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.former, k)
}

// RemoveNamespace forgets all that is in it.
func (t *Table) RemoveNamespace(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.models {
		if k.Namespace == namespace {
			t.forget(k)
		}
	}
	in := func(k Key) bool { return k.Namespace == namespace }
	maps.DeleteFunc(t.providers, func(k Key, _ ProviderSpec) bool { return in(k) })
	maps.DeleteFunc(t.secrets, func(k Key, _ map[string][]byte) bool { return in(k) })
	maps.DeleteFunc(t.former, func(k Key, _ Former) bool { return in(k) })
}

// formerly finds a model of the former kind: the oldest of several that have a name.
func (t *Table) formerly(name string) (Model, bool) {
	var found *Key
	if namespace, own, is := strings.Cut(name, "/"); is {
		if k := (Key{namespace, own}); t.former[k].Provider.Name != "" {
			found = &k
		}
	} else {
		for k, f := range t.former {
			if k.Name == name && (found == nil || cmp.Or(f.Created.Compare(t.former[*found].Created), strings.Compare(k.Namespace, found.Namespace)) < 0) {
				found = &k
			}
		}
	}
	if found == nil {
		return Model{}, false
	}
	return Model{Key: *found, Name: found.Name, Providers: []Provider{t.former[*found].Provider}}, true
}

// PutSecret takes the data of a Secret over.
func (t *Table) PutSecret(k Key, data map[string][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.secrets[k] = data
}

// RemoveSecret forgets one.
func (t *Table) RemoveSecret(k Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.secrets, k)
}

// Model of a name: among several that have it, the oldest, so that one made later takes no traffic away.
func (t *Table) Model(name string) (Model, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var key Key
	if keys := t.byName[name]; len(keys) > 0 {
		key = keys[0]
	} else if namespace, own, is := strings.Cut(name, "/"); is {
		key = Key{namespace, own}
	}
	spec, has := t.models[key]
	if !has {
		return t.formerly(name)
	}
	out := Model{Key: key, Name: spec.Name}
	for _, ref := range spec.Refs {
		if p, can := t.merge(key.Namespace, ref); can && p.Weight > 0 {
			out.Providers = append(out.Providers, p)
		}
	}
	return out, true
}

// merge is a provider as a model asks it.
func (t *Table) merge(namespace string, ref ProviderRef) (Provider, bool) {
	spec, has := t.providers[Key{namespace, ref.Provider}]
	if !has {
		return Provider{}, false
	}
	out := Provider{
		Name: ref.Provider, Kind: spec.Kind, Endpoint: spec.Endpoint, Format: ref.Format, TargetModel: ref.TargetModel,
		Weight: ref.Weight, Auth: spec.Auth, Config: map[string]string{},
	}
	maps.Copy(out.Config, spec.Config)
	maps.Copy(out.Config, ref.Config)
	if ref.Auth != nil {
		out.Auth = *ref.Auth
	}
	out.Path = fill(ref.Path, out.Config)
	return out, true
}

// fill replaces {key} by that key of the settings; one that is not there stays as it is.
func fill(path string, config map[string]string) string {
	if !strings.Contains(path, "{") {
		return path
	}
	pairs := make([]string, 0, 2*len(config))
	for _, key := range slices.Sorted(maps.Keys(config)) {
		pairs = append(pairs, "{"+key+"}", config[key])
	}
	return strings.NewReplacer(pairs...).Replace(path)
}

// Credential of a Secret.
func (t *Table) Credential(secret Key) (map[string][]byte, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	data, has := t.secrets[secret]
	return data, has
}
