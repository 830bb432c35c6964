// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/modelplane/modelplane/internal/maas/payload/config"
	"github.com/modelplane/modelplane/internal/maas/payload/enforcer"
	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
)

// fieldToHeader copies a field of the body to a header, by which the gateway chooses a route.
type fieldToHeader struct {
	Field  string `yaml:"fieldName"`
	Header string `yaml:"headerName"`
}

func newFieldToHeader(p config.Plugin, _ *World) (any, error) {
	f := fieldToHeader{Field: "model", Header: "X-Gateway-Model-Name"}
	if err := p.Parameters(&f); err != nil {
		return nil, err
	}
	if f.Field == "" || f.Header == "" || strings.ContainsAny(f.Header, ": \t") {
		return nil, p.Errorf("fieldName and headerName must not be empty, and the header must be one")
	}
	return f, nil
}

// Request sets the header, or takes away one that the client has made up. Where the path names the model, the body's must not
// choose the route: what is paid for and what answers would be two.
func (f fieldToHeader) Request(_ context.Context, x *exchange.Exchange) error {
	value := ""
	byPath := strings.EqualFold(f.Header, exchange.ModelHeader) && exchange.PathModel(x.Path) != ""
	if x.Body != nil && !byPath && !x.NoModel {
		value = x.Body.String(f.Field)
	}
	x.Lead(f.Header, value)
	return nil
}

// guard keeps what the gateway knows of the caller, and the caller's credentials, from whoever runs the model.
type guard struct{}

func (guard) Request(_ context.Context, x *exchange.Exchange) error {
	for _, name := range x.Headers.Names("x-maas-") {
		x.Headers.Remove(name)
	}
	x.Headers.Remove("authorization")
	x.Headers.Remove("x-api-key")
	return nil
}

// streamUsage has streams end with what they cost. Only the APIs that know the field get it.
type streamUsage struct{}

func (streamUsage) Request(_ context.Context, x *exchange.Exchange) error {
	if !x.Stream() || x.Format != enforcer.ChatCompletions && x.Format != enforcer.Completions {
		return nil
	}
	options := map[string]json.RawMessage{}
	if raw := x.Body.Raw("stream_options"); len(raw) > 0 && json.Unmarshal(raw, &options) != nil {
		return exchange.Refuse(http.StatusBadRequest, "stream_options is not an object")
	}
	if options == nil { // it was null
		options = map[string]json.RawMessage{}
	}
	if string(options["include_usage"]) == "true" {
		return nil
	}
	options["include_usage"] = json.RawMessage("true")
	text, err := json.Marshal(options)
	if err != nil {
		return err
	}
	return x.Body.Set("stream_options", text)
}
