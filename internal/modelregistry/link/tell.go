// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelplane/modelplane/internal/engine"
)

// Entry is what a registry is to know of a service, and the request of both calls.
type Entry struct {
	Registry Registry
	// Environment is the namespace, and Name the service's own with its UID.
	Environment, Name string
	// ID, Model and Version are ids in the registry, as the labels say; the first or the second may be empty.
	ID, Model, Version string
	Runtime, URL       string
}

// String says what the registry is told, for people. Before a service is made nobody knows its UID.
func (e Entry) String() string {
	name := e.Name
	if strings.HasSuffix(name, "/") {
		name += "UID"
	}
	text := fmt.Sprintf("%s is told of inference service %s in serving environment %s", e.Registry.URL, name, e.Environment)
	for _, part := range [][2]string{
		{"id", e.ID}, {"registered model", e.Model}, {"model version", e.Version}, {"runtime", e.Runtime}, {"url", e.URL},
	} {
		if part[1] != "" {
			text += ", " + part[0] + " " + part[1]
		}
	}
	return text
}

// Told is what the registry made of it.
type Told struct{ ID string }

// States of a service in a registry.
const (
	deployed   = "DEPLOYED"
	undeployed = "UNDEPLOYED"
)

// servingEnvironment is that of the registry, of which no more is needed.
type servingEnvironment struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name"`
}

// inferenceService is that of the registry.
type inferenceService struct {
	ID          string           `json:"id,omitempty"`
	Name        string           `json:"name,omitempty"`
	Model       string           `json:"registeredModelId,omitempty"`
	Environment string           `json:"servingEnvironmentId,omitempty"`
	Version     string           `json:"modelVersionId,omitempty"`
	Runtime     string           `json:"runtime,omitempty"`
	State       string           `json:"desiredState,omitempty"`
	Properties  map[string]value `json:"customProperties,omitempty"`
}

// value is one of any type; other people's are handed back as they came.
type value map[string]any

const urlProperty = "url"

func text(s string) value { return value{"metadataType": "MetadataStringValue", "string_value": s} }

// execute makes the calls that plans name. Both may be made any number of times.
func (l *Link) execute(ctx context.Context, _ types.NamespacedName, c engine.Call) (any, error) {
	e, ok := c.Request.(Entry)
	if !ok {
		return nil, fmt.Errorf("the call %s has no entry", c.Name)
	}
	t := teller{client: l.client, Entry: e}
	if c.Name == callEnd {
		return Told{}, t.end(ctx)
	}
	return t.tell(ctx)
}

// teller brings one entry to its registry.
type teller struct {
	*client
	Entry
}

func (t teller) get(ctx context.Context, path string, query url.Values, out any) error {
	return t.call(ctx, t.Registry, http.MethodGet, path, query, nil, out)
}

func (t teller) tell(ctx context.Context) (Told, error) {
	have, environment, err := t.find(ctx, true)
	if err != nil {
		return Told{}, err
	}
	if have == nil {
		if have, err = t.create(ctx, environment); err != nil {
			return Told{}, err
		}
	}
	if have.ID == "" {
		return Told{}, unlike(0)
	}
	if t.Model != "" && have.Model != t.Model {
		return Told{}, failed(0, "inference service %s there belongs to the registered model %s, and that cannot be changed. Set the label "+
			"registered-model-id back, or make the service anew.", have.ID, have.Model)
	}
	return Told{have.ID}, t.patch(ctx, have, t.changes(have))
}

// changes are the fields that are not as they should be; nil if none is.
func (t teller) changes(have *inferenceService) map[string]any {
	out := map[string]any{}
	if have.State != deployed {
		out["desiredState"] = deployed
	}
	if t.Version != "" && have.Version != t.Version {
		out["modelVersionId"] = t.Version
	}
	if t.Runtime != "" && have.Runtime != t.Runtime {
		out["runtime"] = t.Runtime
	}
	now, _ := have.Properties[urlProperty]["string_value"].(string)
	if now != t.URL {
		properties := maps.Clone(have.Properties) // they are replaced as a whole
		if properties == nil {
			properties = map[string]value{}
		}
		if delete(properties, urlProperty); t.URL != "" {
			properties[urlProperty] = text(t.URL)
		}
		out["customProperties"] = properties
	}
	return out
}

func (t teller) patch(ctx context.Context, have *inferenceService, changes map[string]any) error {
	if len(changes) == 0 {
		return nil
	}
	return t.call(ctx, t.Registry, http.MethodPatch, "/inference_services/"+url.PathEscape(have.ID), nil, changes, &inferenceService{})
}

// end notes that the service is no more. What the registry does not know needs no end.
func (t teller) end(ctx context.Context) error {
	have, _, err := t.find(ctx, false)
	if err != nil || have == nil || have.State == undeployed {
		return err
	}
	return t.patch(ctx, have, map[string]any{"desiredState": undeployed})
}

// ofService matches the names that services have in registries; people choose others.
var ofService = regexp.MustCompile(`/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// find looks for the entry, and for its environment, which it makes if asked to. The entry is nil if there is none.
func (t teller) find(ctx context.Context, making bool) (*inferenceService, string, error) {
	if t.ID != "" {
		have := &inferenceService{}
		err := t.get(ctx, "/inference_services/"+url.PathEscape(t.ID), nil, have)
		switch {
		case err == nil && (t.Model == "" || have.Name == t.Name || !ofService.MatchString(have.Name)):
			return have, have.Environment, nil
		case err != nil && !missing(err), t.Model == "" && making:
			return nil, "", err
		}
		// A copy of another service's labels, or the id that another registry gave.
	}
	environment, err := t.environment(ctx, making)
	if err != nil || environment == "" {
		return nil, "", err
	}
	have, err := t.byName(ctx, environment)
	return have, environment, err
}

func (t teller) byName(ctx context.Context, environment string) (*inferenceService, error) {
	have := &inferenceService{}
	err := t.get(ctx, "/inference_service", url.Values{"name": {t.Name}, "parentResourceId": {environment}}, have)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return have, nil
}

// environment is the id of the one that is named after the namespace; empty if there is none and none is to be made.
func (t teller) environment(ctx context.Context, making bool) (string, error) {
	have := servingEnvironment{}
	query := url.Values{"name": {t.Environment}}
	err := t.get(ctx, "/serving_environment", query, &have)
	if !missing(err) || !making {
		if missing(err) {
			err = nil
		}
		return have.ID, err
	}
	err = t.call(ctx, t.Registry, http.MethodPost, "/serving_environments", nil, servingEnvironment{Name: t.Environment}, &have)
	if statusOf(err) == http.StatusConflict { // another service of the namespace was faster
		err = t.get(ctx, "/serving_environment", query, &have)
	}
	return have.ID, err
}

func (t teller) create(ctx context.Context, environment string) (*inferenceService, error) {
	entry := inferenceService{
		Name: t.Name, Model: t.Model, Environment: environment, Version: t.Version, Runtime: t.Runtime, State: deployed,
	}
	if t.URL != "" {
		entry.Properties = map[string]value{urlProperty: text(t.URL)}
	}
	made := &inferenceService{}
	err := t.call(ctx, t.Registry, http.MethodPost, "/inference_services", nil, entry, made)
	if statusOf(err) != http.StatusConflict {
		return made, err
	}
	have, err := t.byName(ctx, environment) // made by a call whose answer was lost
	if err == nil && have == nil {
		err = failed(http.StatusConflict, "it has another entry of that name (409). Look at its inference services.")
	}
	return have, err
}
