// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/fetch"
)

// storage knows where models may come from: one file for each entry of the storage secret, and mounted claims.
type storage struct {
	configs, claims string
	env             func(string) string // the process's own variables, for identities of the pod
}

// longestEntry bounds an entry of the storage secret.
const longestEntry = 1 << 20

// defaultEntry is the key of the entry for models that name none, with _TYPE behind it for those that name a type.
const defaultEntry = "default"

// order is one model to bring, and what its files are to be called.
type order struct {
	kind          string // of storage
	model, schema string // addresses; for a claim, paths in it
	as, schemaAs  string
	env           func(string) string
	claim         string // the directory of the claim; then nothing is fetched
	claimName     string
}

// order finds out where a model is.
func (s storage) order(k *key, at string) (*order, error) {
	entry, err := s.entryFor(k)
	if err != nil {
		return nil, err
	}
	if k.bucket != "" && k.params["bucket"] == "" {
		entry["bucket"] = k.bucket
	}
	for name, value := range k.params {
		if err := override(entry, name, value); err != nil {
			return nil, err
		}
	}
	if err := within(at, k.schema); err != nil {
		return nil, err
	}
	kind, ok := entry["type"].(string)
	if !ok || kind == "" {
		return nil, mistakef("the model does not say where it is stored; set the key of an entry of the storage secret, or the parameter type")
	}
	o := &order{kind: shownKind(kind), as: lastName(at, "_model")}
	if k.schema != "" {
		if o.schemaAs = lastName(k.schema, "_schema.json"); o.schemaAs == o.as {
			o.schemaAs = "_schema.json"
		}
	}
	return o, s.fill(o, kind, entry, at, k.schema)
}

// shownKind keeps words that mean nothing out of metrics.
func shownKind(kind string) string {
	if _, known := kinds[kind]; known || kind == "pvc" {
		return kind
	}
	return unknown
}

// fill sets addresses and variables by the kind of storage.
func (s storage) fill(o *order, kind string, entry map[string]any, at, schema string) error {
	if kind == "pvc" {
		return s.fromClaim(o, text(entry, "name"), at, schema)
	}
	read, ok := kinds[kind]
	if !ok {
		return mistakef("storage of type %q is not known; use one of s3, gcs, azure, http and pvc", kind)
	}
	place, err := read(entry)
	if err != nil {
		return err
	}
	o.model = place.address(at)
	if schema != "" {
		o.schema = place.address(schema)
	}
	o.env = func(name string) string {
		if value, ok := place.env[name]; ok {
			return value
		}
		return s.env(name)
	}
	return nil
}

// entryFor is the entry of the storage secret that a model names, or the one for those that name none. The files are read
// anew each time: a secret that changes is there as soon as the kubelet has written it.
func (s storage) entryFor(k *key) (map[string]any, error) {
	if k.storageKey != nil {
		entry, err := s.entry(*k.storageKey)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the storage secret has no entry %q; add it, or correct the key of the model's storage", *k.storageKey)
		}
		return entry, err
	}
	name := defaultEntry
	if kind := k.params["type"]; kind != "" {
		name += "_" + kind
	}
	entry, err := s.entry(name)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]any{}, nil
	}
	return entry, err
}

func (s storage) entry(name string) (map[string]any, error) {
	if !filepath.IsLocal(name) || strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, "..") {
		return nil, mistakef("%q is no key of an entry of the storage secret", name)
	}
	file, err := os.Open(filepath.Join(s.configs, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("the entry %q of the storage secret cannot be read: %w", name, reason(err))
	}
	defer file.Close() //nolint:errcheck // only read
	content, err := io.ReadAll(io.LimitReader(file, longestEntry+1))
	if err != nil {
		return nil, fmt.Errorf("the entry %q of the storage secret cannot be read: %w", name, reason(err))
	}
	var entry map[string]any
	if len(content) > longestEntry || json.Unmarshal(content, &entry) != nil || entry == nil { // the error would show a part of the secret
		return nil, fmt.Errorf("the entry %q of the storage secret is no JSON object; correct it", name)
	}
	return entry, nil
}

// override sets a text in an entry. Dots in the name lead into objects.
func override(entry map[string]any, name, value string) error {
	words := strings.Split(name, ".")
	for _, word := range words[:len(words)-1] {
		switch inner := entry[word].(type) {
		case nil:
			next := map[string]any{}
			entry[word] = next
			entry = next
		case map[string]any:
			entry = inner
		default:
			return mistakef("the storage parameter %q would go into something that is no object in the entry of the storage secret; correct its name", name)
		}
	}
	last := words[len(words)-1]
	if old, ok := entry[last]; ok {
		if _, ok := old.(string); !ok {
			return mistakef("the storage parameter %q would replace something that is no text in the entry of the storage secret; correct its name", name)
		}
	}
	entry[last] = value
	return nil
}

// within refuses paths that lead out of where the storage has the model.
func within(paths ...string) error {
	for _, p := range paths {
		if strings.ContainsRune(p, 0) || slices.Contains(strings.Split(p, "/"), "..") {
			return mistakef("the path %q has two dots between slashes; write it without", p)
		}
	}
	return nil
}

// lastName is what a path ends in.
func lastName(p, otherwise string) string {
	if name := path.Base(p); name != "." && name != "/" {
		return name
	}
	return otherwise
}

func text(entry map[string]any, name string) string {
	value, _ := entry[name].(string) // anything else is as good as nothing
	return value
}

// bring puts the files into the directory.
func (o *order) bring(ctx context.Context, dir string, options fetch.Options) error {
	if o.claim != "" {
		return o.link(dir)
	}
	pairs := []fetch.Pair{{Source: o.model, Destination: dir, As: o.as}}
	if o.schema != "" {
		pairs = append(pairs, fetch.Pair{Source: o.schema, Destination: dir, As: o.schemaAs})
	}
	options.Env = o.env
	return fetch.Run(ctx, pairs, options)
}

// find looks whether what bring would fetch is there.
func (o *order) find(ctx context.Context, options fetch.Options) error {
	if o.claim != "" {
		return o.inClaim(func(string, string) error { return nil })
	}
	options.Env = o.env
	for _, source := range []string{o.model, o.schema} {
		if source == "" {
			continue
		}
		if err := fetch.Find(ctx, source, options); err != nil {
			return err
		}
	}
	return nil
}

// places are where the model and its schema are afterwards; without one, the latter is empty.
func (o *order) places(dir string) (model, schema string) {
	if o.schemaAs != "" {
		schema = filepath.Join(dir, o.schemaAs)
	}
	return filepath.Join(dir, o.as), schema
}

// fromClaim finds the mounted claim. The runtime has it mounted at the same place, so that a link is enough.
func (s storage) fromClaim(o *order, name, at, schema string) error {
	if name == "" {
		return mistakef("storage of type pvc needs the name of a claim; set the parameter name")
	}
	if name != path.Base(name) || !filepath.IsLocal(name) {
		return mistakef("%q is no name of a claim", name)
	}
	o.claim, o.claimName, o.model, o.schema = filepath.Join(s.claims, name), name, at, schema
	if info, err := os.Stat(o.claim); err != nil || !info.IsDir() {
		return fmt.Errorf("the claim %s is not mounted in this pod; add an entry of type pvc with its name to the storage secret, or set allowAnyPVC", name)
	}
	return nil
}

// link makes the model's directory lead into the claim.
func (o *order) link(dir string) error {
	return o.inClaim(func(inside, as string) error {
		if err := os.Symlink(filepath.Join(o.claim, inside), filepath.Join(dir, as)); err != nil {
			return fmt.Errorf("the model cannot be linked: %w", linkReason(err))
		}
		return nil
	})
}

// inClaim visits the model and its schema in the claim, which must be there.
func (o *order) inClaim(visit func(inside, as string) error) error {
	root, err := os.OpenRoot(o.claim)
	if err != nil {
		return fmt.Errorf("the claim %s cannot be opened: %w", o.claimName, reason(err))
	}
	defer root.Close() //nolint:errcheck // only read
	for _, one := range []struct{ at, as string }{{o.model, o.as}, {o.schema, o.schemaAs}} {
		if one.as == "" {
			continue
		}
		inside := path.Clean("./" + one.at)
		if _, err := root.Stat(inside); err != nil {
			return o.missing(one.at, err)
		}
		if err := visit(inside, one.as); err != nil {
			return err
		}
	}
	return nil
}

func (o *order) missing(at string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot find %s in the claim %s; check the path", at, o.claimName)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s in the claim %s may not be read; check who owns it, or set fsGroup", at, o.claimName)
	case strings.Contains(err.Error(), "escapes"):
		return fmt.Errorf("%s in the claim %s is a link that leads out of the claim; put the files themselves there", at, o.claimName)
	}
	return fmt.Errorf("%s in the claim %s cannot be read", at, o.claimName)
}

func linkReason(err error) error {
	var at *os.LinkError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
