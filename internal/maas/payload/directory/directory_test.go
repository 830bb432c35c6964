// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestModel(t *testing.T) {
	d := New()
	key := Key{"team", "claude"}
	d.PutModel(key, ModelSpec{Refs: []ProviderRef{
		{Provider: "anthropic", TargetModel: "claude-x", Format: "messages", Path: "/{version}/messages{missing}", Weight: 2,
			Config: map[string]string{"version": "v2"}, Auth: &Auth{Type: "simple", Secret: Key{"team", "other"}}},
		{Provider: "off", Weight: 0},
		{Provider: "unknown", Weight: 1},
	}})
	d.PutProvider(Key{"team", "off"}, ProviderSpec{})
	d.PutProvider(Key{"elsewhere", "unknown"}, ProviderSpec{})
	d.PutProvider(Key{"team", "anthropic"}, ProviderSpec{Kind: "anthropic", Endpoint: "api.example.com",
		Auth: Auth{Type: "apikey", Secret: Key{"team", "key"}}, Config: map[string]string{"version": "v1", "region": "here"}})
	want := Model{Key: key, Name: "claude", Providers: []Provider{{
		Name: "anthropic", Kind: "anthropic", Endpoint: "api.example.com", Format: "messages", Path: "/v2/messages{missing}", TargetModel: "claude-x", Weight: 2,
		Auth: Auth{Type: "simple", Secret: Key{"team", "other"}}, Config: map[string]string{"version": "v2", "region": "here"},
	}}}
	for _, name := range []string{"claude", "team/claude"} {
		got, has := d.Model(name)
		if diff := cmp.Diff(want, got); diff != "" || !has {
			t.Errorf("%s: %s", name, diff)
		}
	}
	d.RemoveModel(key)
	if _, has := d.Model("claude"); has {
		t.Error("it is still there")
	}
}

// TestSameName: the oldest has the name, whatever order they come in.
func TestSameName(t *testing.T) {
	d := New()
	begin := time.Unix(1000, 0)
	d.PutModel(Key{"a", "young"}, ModelSpec{Name: "gpt", Created: begin.Add(time.Hour)})
	d.PutModel(Key{"b", "old"}, ModelSpec{Name: "gpt", Created: begin})
	d.PutModel(Key{"a", "old"}, ModelSpec{Name: "gpt", Created: begin})
	for _, want := range []Key{{"a", "old"}, {"b", "old"}, {"a", "young"}} {
		got, has := d.Model("gpt")
		if !has || got.Key != want {
			t.Errorf("got %v, want %v", got.Key, want)
		}
		d.RemoveModel(want)
	}
	d.PutModel(Key{"a", "x"}, ModelSpec{Name: "one"})
	d.PutModel(Key{"a", "x"}, ModelSpec{Name: "two"})
	if _, has := d.Model("one"); has {
		t.Error("a model has its former name")
	}
}
