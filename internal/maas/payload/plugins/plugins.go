// SPDX-License-Identifier: Apache-2.0

// Package plugins is what requests and answers go through on their way between a gateway and a model, one step each: reading
// the model's name, deciding whether the request may go on, guarding headers, asking for usage, finding the provider,
// translating, signing in. A plugin sees one exchange at a time and keeps nothing of it; what it needs of the world it is given
// at the start. Secrets are read when they are needed and written into the one header they are for.
package plugins

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/modelplane/modelplane/internal/maas/payload/config"
	"github.com/modelplane/modelplane/internal/maas/payload/directory"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
)

// The types of plugins.
const (
	FieldToHeader  = "body-field-to-header"
	Enforcement    = "maas-enforcement"
	HeadersGuard   = "maas-headers-guard"
	StreamUsage    = "stream-usage-enforcer"
	Resolver       = "model-provider-resolver"
	APITranslation = "api-translation"
	KeyInjection   = "apikey-injection"
)

// World is what plugins need besides a request.
type World struct {
	Directory directory.Directory
	Enforcer  enforcer.Enforcer // nil: none, and a configuration that wants one is refused
	// Cluster is the name by which requests that come back are known; empty: they are not.
	Cluster string
	// DecideTimeout bounds a decision (5 s).
	DecideTimeout time.Duration
	// Client fetches tokens from providers that want one; nil: a client with a timeout.
	Client *http.Client

	Now  func() time.Time // nil: time.Now
	Pick func() uint64    // nil: at random; for requests without an id
}

func (w *World) defaults() {
	if w.Now == nil {
		w.Now = time.Now
	}
	if w.Pick == nil {
		w.Pick = rand.Uint64
	}
	if w.DecideTimeout <= 0 {
		w.DecideTimeout = 5 * time.Second
	}
	if w.Client == nil {
		w.Client = &http.Client{Timeout: 10 * time.Second}
	}
}

// Chain is a pipeline whose plugins are made.
type Chain struct {
	Request  []exchange.RequestPlugin
	Response []exchange.ResponsePlugin
}

// Known tells whether there is such a type of plugin.
func Known(pluginType string) bool {
	_, has := makers[pluginType]
	return has
}

// maker makes a plugin of its parameters.
type maker func(config.Plugin, *World) (any, error)

var makers = map[string]maker{
	FieldToHeader:  newFieldToHeader,
	Enforcement:    newEnforcement,
	HeadersGuard:   func(p config.Plugin, _ *World) (any, error) { return guard{}, none(p) },
	StreamUsage:    func(p config.Plugin, _ *World) (any, error) { return streamUsage{}, none(p) },
	Resolver:       newResolver,
	APITranslation: func(p config.Plugin, w *World) (any, error) { return translation{w}, none(p) },
	KeyInjection:   func(p config.Plugin, w *World) (any, error) { return newKeys(w), none(p) },
}

// none is for plugins without parameters.
func none(p config.Plugin) error { return p.Parameters(&struct{}{}) }

// Make makes the plugins of a pipeline.
func Make(from config.Pipeline, w World) (Chain, error) {
	w.defaults()
	if w.Directory == nil {
		return Chain{}, errors.New("no directory of models")
	}
	var out Chain
	made := map[string]any{}
	get := func(p config.Plugin) (any, error) {
		if have, has := made[p.Name]; has {
			return have, nil
		}
		plugin, err := makers[p.Type](p, &w)
		made[p.Name] = plugin
		return plugin, err
	}
	for _, p := range from.Request {
		plugin, err := get(p)
		if err != nil {
			return Chain{}, fmt.Errorf("the configuration of the plugins cannot be used: %w", err)
		}
		request, is := plugin.(exchange.RequestPlugin)
		if !is {
			return Chain{}, p.Errorf("%s is not for requests", p.Type)
		}
		out.Request = append(out.Request, request)
	}
	for _, p := range from.Response {
		plugin, err := get(p)
		if err != nil {
			return Chain{}, fmt.Errorf("the configuration of the plugins cannot be used: %w", err)
		}
		response, is := plugin.(exchange.ResponsePlugin)
		if !is {
			return Chain{}, p.Errorf("%s is not for answers; take it out of the list response", p.Type)
		}
		out.Response = append(out.Response, response)
	}
	return out, nil
}
