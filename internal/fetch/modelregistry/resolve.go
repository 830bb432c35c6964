// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/transfer"
	"github.com/modelplane/modelplane/internal/kube/address"
)

const apiPath = "/api/model_registry/v1alpha3"

// Bounds of what is asked.
const (
	patience   = 2 * time.Minute
	probing    = 10 * time.Second
	pageLimit  = 16 << 20
	pageSize   = 100
	scanSize   = 1000
	mostPages  = 1000
	archived   = "ARCHIVED"
	artifacts  = "model-artifact"
	sortNewest = "DESC"
)

// Found is where a model is, and what it is in the registry.
type Found struct {
	URI, Registry, Model, Version string
	// Archived says that the version was put away, which only a name still finds.
	Archived bool
}

// Resolve asks the registry where the model is.
func (s *Source) Resolve(ctx context.Context, c *transfer.Client) (Found, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, doubt := s.meanings[0], ""
	if m.guess && !s.answers(ctx, c, m.at) {
		if len(s.meanings) == 1 {
			return Found{}, fmt.Errorf("%s does not answer as a model registry, and none is configured; check the host, or set "+
				"modelRegistryUrl of storageInitializer in inferenceservice-config", m.at)
		}
		doubt = fmt.Sprintf(" (%s does not answer as a registry itself)", m.at)
		m = s.meanings[1]
	}
	found, err := s.look(ctx, &asker{source: s, client: c, at: m.at}, m)
	var missing *missing
	if errors.As(err, &missing) {
		missing.doubt = doubt
	}
	return found, err
}

// answers tells whether a host is a registry. It is asked without a token: it may be anybody's.
func (s *Source) answers(ctx context.Context, c *transfer.Client, at *registry) bool {
	ask := transfer.Request{URL: at.url + apiPath + "/registered_models?pageSize=1"}
	body, err := c.Once(ctx, ask, pageLimit, probing)
	if sure := at.near; sure && err != nil && transfer.Status(err)/100 != 4 {
		body, _, err = c.Do(ctx, ask, pageLimit) // nobody would name a model like a Service
	}
	if err != nil {
		refused := transfer.Status(err) == http.StatusUnauthorized || transfer.Status(err) == http.StatusForbidden
		return refused && (at.near || strings.ContainsAny(strings.TrimPrefix(at.url, "https://"), ".:"))
	}
	var page struct{ Items, Size, PageSize json.RawMessage }
	return json.Unmarshal(body, &page) == nil && (page.Items != nil || page.Size != nil || page.PageSize != nil)
}

// missing is what a registry does not have.
type missing struct{ what, registry, doubt, next string }

func (m *missing) Error() string {
	return fmt.Sprintf("the model registry %s has no %s%s; %s", m.registry, m.what, m.doubt, m.next)
}

// entity is what is needed of models, versions and artifacts.
type entity struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	State        string `json:"state"`
	URI          string `json:"uri"`
	ArtifactType string `json:"artifactType"`
	Created      string `json:"createTimeSinceEpoch"`
}

func (s *Source) look(ctx context.Context, a *asker, m meaning) (Found, error) {
	found := Found{Registry: a.at.String(), Model: m.model}
	what := fmt.Sprintf("registered model %q", m.model)
	model, err := a.byName(ctx, m.model, "/registered_model", nil, "/registered_models")
	if err != nil {
		return found, a.told(what, err)
	}
	if model == nil {
		return found, &missing{what, a.at.String(), "", "check the name and which registry is asked, or register the model"}
	}
	version, err := a.version(ctx, model.ID, m.version)
	what = fmt.Sprintf("version %q of the registered model %q", m.version, m.model)
	switch {
	case err != nil:
		return found, a.told(what, err)
	case version == nil && m.version == "":
		return found, &missing{fmt.Sprintf("version of the registered model %q that is not archived", m.model), a.at.String(), "",
			"register one, restore one, or name the version"}
	case version == nil:
		return found, &missing{what, a.at.String(), "", "check the name of the version, or register it"}
	}
	found.Version, found.Archived = version.Name, version.State == archived
	what = fmt.Sprintf("model artifact with a uri in version %q of the registered model %q", version.Name, m.model)
	if found.URI, err = a.uri(ctx, version.ID); err != nil {
		return found, a.told(what, err)
	}
	if found.URI == "" {
		return found, &missing{what, a.at.String(), "", "register where the model is stored"}
	}
	return found, usable(found)
}

// usable refuses addresses that mean something else here than where they were written down.
func usable(f Found) error {
	shown := address.Shown(f.URI)
	scheme, _, found := strings.Cut(f.URI, "://")
	switch strings.ToLower(scheme) {
	case "pvc":
		return fmt.Errorf("the model registry says %s, but a claim must be mounted before the registry can be asked; write %s as storageUri", shown, shown)
	case Scheme:
		return fmt.Errorf("the model registry says %s, which leads back to a registry; register where the model is stored", shown)
	case "file":
		found = false
	}
	if !found {
		return fmt.Errorf("the model registry says %s, a path that only means something where it was registered; register an address that "+
			"others can fetch from", shown)
	}
	return nil
}

// asker asks one registry.
type asker struct {
	source *Source
	client *transfer.Client
	at     *registry
}

// told says what was asked for, unless the error does.
func (a *asker) told(what string, err error) error {
	return fmt.Errorf("the model registry %s does not tell of the %s: %w", a.at, what, err)
}

func (a *asker) request(path string, query url.Values) transfer.Request {
	return transfer.Request{URL: a.at.url + apiPath + path + "?" + query.Encode(), Sign: func(_ context.Context, r *http.Request) error {
		token, err := a.source.token(a.at)
		if err == nil && token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return err
	}}
}

// byName finds an entity by its exact name; nil if there is none. Some registries compare names as patterns, so that those
// with odd characters find nothing or something else: these are looked for in the list.
func (a *asker) byName(ctx context.Context, name, find string, query url.Values, list string) (*entity, error) {
	q := url.Values{"name": {name}}
	for key, values := range query {
		q[key] = values
	}
	odd := strings.ContainsAny(name, "%_'\"\\`")
	one := &entity{}
	var err error
	if odd {
		var body []byte
		if body, err = a.client.Once(ctx, a.request(find, q), pageLimit, probing); err == nil {
			err = json.Unmarshal(body, one)
		}
	} else {
		err = a.get(ctx, find, q, one)
	}
	status := transfer.Status(err)
	switch {
	case err == nil && one.Name == name && one.ID != "":
		return one, nil
	case odd && (err == nil || status == http.StatusNotFound || status == http.StatusBadRequest || status == http.StatusInternalServerError):
		return a.scan(ctx, name, list)
	case err == nil, status == http.StatusNotFound:
		return nil, nil
	}
	return nil, err
}

func (a *asker) scan(ctx context.Context, name, list string) (*entity, error) {
	var found *entity
	err := a.pages(ctx, list, url.Values{"orderBy": {"ID"}, "pageSize": {strconv.Itoa(scanSize)}}, func(page []entity) bool {
		for i := range page {
			if page[i].Name == name {
				found = &page[i]
			}
		}
		return found != nil
	})
	return found, err
}

// version is the one of that name, or the newest that is not archived; nil if there is none.
func (a *asker) version(ctx context.Context, model, name string) (*entity, error) {
	list := "/registered_models/" + url.PathEscape(model) + "/versions"
	if name != "" {
		return a.byName(ctx, name, "/model_version", url.Values{"parentResourceId": {model}}, list)
	}
	var newest *entity
	err := a.newest(ctx, list, nil, func(page []entity) bool {
		for i := range page {
			if page[i].State != archived && (newest == nil || later(page[i], *newest)) {
				newest = &page[i]
			}
		}
		return newest != nil
	})
	return newest, err
}

// later compares by creation; numbers decide between two of the same moment.
func later(a, b entity) bool {
	if x, y := number(a.Created), number(b.Created); x != y {
		return x > y
	}
	return number(a.ID) > number(b.ID)
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// goneStates are those of artifacts that are no more.
var goneStates = map[string]bool{"MARKED_FOR_DELETION": true, "DELETED": true, "ABANDONED": true}

// uri is that of the newest model artifact that has one, whatever else was added since.
func (a *asker) uri(ctx context.Context, version string) (string, error) {
	var newest *entity
	list := "/model_versions/" + url.PathEscape(version) + "/artifacts"
	err := a.newest(ctx, list, url.Values{"artifactType": {artifacts}}, func(page []entity) bool {
		for i, e := range page {
			if e.ArtifactType == artifacts && e.URI != "" && !goneStates[e.State] && (newest == nil || later(e, *newest)) {
				newest = &page[i]
			}
		}
		return newest != nil
	})
	if newest == nil {
		return "", err
	}
	return newest.URI, nil
}

// newest reads pages from the newest entity on, until one has what is looked for.
func (a *asker) newest(ctx context.Context, path string, query url.Values, look func([]entity) bool) error {
	q := url.Values{"orderBy": {"CREATE_TIME"}, "sortOrder": {sortNewest}, "pageSize": {strconv.Itoa(pageSize)}}
	for key, values := range query {
		q[key] = values
	}
	return a.pages(ctx, path, q, look)
}

func (a *asker) pages(ctx context.Context, path string, query url.Values, look func([]entity) bool) error {
	for range mostPages {
		var page struct {
			Items []entity `json:"items"`
			Next  string   `json:"nextPageToken"`
		}
		if err := a.get(ctx, path, query, &page); err != nil {
			return err
		}
		if look(page.Items) || page.Next == "" || page.Next == query.Get("nextPageToken") {
			return nil
		}
		query.Set("nextPageToken", page.Next)
	}
	return fmt.Errorf("its list has more than %d pages; name the version, or clean the registry up", mostPages)
}

func (a *asker) get(ctx context.Context, path string, query url.Values, into any) error {
	body, _, err := a.client.Do(ctx, a.request(path, query), pageLimit)
	if err != nil {
		return err
	}
	if json.Unmarshal(body, into) != nil {
		return &transfer.Problem{What: "it does not answer as a model registry does", Status: http.StatusOK}
	}
	return nil
}

// Next says what to do about an answer.
func (s *Source) Next(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "give the pod's service account a role in the registry, and its token by " + envFile + " or over https"
	case http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed:
		return "check which address the registry has"
	case 0:
		return "check the address of the registry, its certificate, and the network to it"
	}
	return "try again later, or ask those who run the registry"
}
