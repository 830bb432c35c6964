// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// base is where every server of this API has it.
const base = "/api/model_registry/v1alpha3"

// client speaks to a server and keeps how long its answers took.
type client struct {
	http *http.Client
	url  string

	mu    sync.Mutex
	times []time.Duration
}

func newClient(address string, connections int) *client {
	return &client{url: strings.TrimRight(address, "/") + base, http: &http.Client{
		Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: connections},
	}}
}

// entity is what the load looks at of answers.
type entity struct {
	ID            string   `json:"id"`
	Name          string   `json:"name"`
	Owner         string   `json:"owner"`
	State         string   `json:"state"`
	Items         []entity `json:"items"`
	NextPageToken string   `json:"nextPageToken"`
}

func (c *client) call(ctx context.Context, method, path string, body any, want int) (entity, error) {
	var out entity
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return out, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, content)
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	answer, err := c.http.Do(req)
	if err != nil {
		return out, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return out, err
	}
	took := time.Since(began)
	if answer.StatusCode != want {
		return out, fmt.Errorf("%s %s answers %s: %.300s", method, path, answer.Status, text)
	}
	c.mu.Lock()
	c.times = append(c.times, took)
	c.mu.Unlock()
	err = json.Unmarshal(text, &out)
	return out, err
}

func (c *client) createModel(ctx context.Context, name string, i int) (string, error) {
	state := "LIVE"
	if i%10 == 0 {
		state = "ARCHIVED"
	}
	made, err := c.call(ctx, http.MethodPost, "/registered_models", map[string]any{
		"name": name, "owner": fmt.Sprint("owner-", i%100), "description": fmt.Sprint("model number ", i), "state": state,
		"customProperties": map[string]any{
			"team":  map[string]any{"metadataType": "MetadataStringValue", "string_value": fmt.Sprint("team-", i%1000)},
			"score": map[string]any{"metadataType": "MetadataDoubleValue", "double_value": float64(i%1000) / 1000},
		},
	}, http.StatusCreated)
	return made.ID, err
}

func (c *client) createVersion(ctx context.Context, model, name string) error {
	_, err := c.call(ctx, http.MethodPost, "/model_versions", map[string]any{"name": name, "registeredModelId": model, "author": "owner-1"}, http.StatusCreated)
	return err
}

// pages are how many a list is followed, and pageSize how long each is.
const (
	pages    = 3
	pageSize = 20
)

// list reads some pages and checks each entity.
func (c *client) list(ctx context.Context, path string, query url.Values, right func(entity) bool) error {
	query.Set("pageSize", strconv.Itoa(pageSize))
	last := ""
	for range pages {
		page, err := c.call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, http.StatusOK)
		if err != nil {
			return err
		}
		for _, e := range page.Items {
			if !right(e) || e.ID == last {
				return fmt.Errorf("%s?%s answers with %s (%s), which does not belong there", path, query.Encode(), e.Name, e.ID)
			}
			last = e.ID
		}
		if page.NextPageToken == "" {
			return nil
		}
		query.Set("nextPageToken", page.NextPageToken)
	}
	return nil
}

// operation is one thing that clients do, by a number that is different each time.
type operation struct {
	name string
	// filters: a server that does not know filterQuery is not asked.
	filters bool
	do      func(ctx context.Context, c *client, in *content, i int) error
}

var serial atomic.Int64

// operations are what is measured, in this order: what writes comes last.
var operations = []operation{
	{"get by id", false, func(ctx context.Context, c *client, in *content, i int) error {
		return one(in.name(i))(c.call(ctx, http.MethodGet, "/registered_models/"+in.ids[i], nil, http.StatusOK))
	}},
	{"get by name", false, func(ctx context.Context, c *client, in *content, i int) error {
		return one(in.name(i))(c.call(ctx, http.MethodGet, "/registered_model?name="+url.QueryEscape(in.name(i)), nil, http.StatusOK))
	}},
	{"get version by name", false, func(ctx context.Context, c *client, in *content, i int) error {
		return one("v2")(c.call(ctx, http.MethodGet, "/model_version?name=v2&parentResourceId="+in.ids[i], nil, http.StatusOK))
	}},
	{"versions of a model", false, func(ctx context.Context, c *client, in *content, i int) error {
		found, err := c.call(ctx, http.MethodGet, "/registered_models/"+in.ids[i]+"/versions", nil, http.StatusOK)
		if err == nil && len(found.Items) != versions {
			err = fmt.Errorf("model %s has %d versions", in.ids[i], len(found.Items))
		}
		return err
	}},
	{"list models", false, func(ctx context.Context, c *client, _ *content, _ int) error {
		return c.list(ctx, "/registered_models", url.Values{}, func(entity) bool { return true })
	}},
	{"list newest first", false, func(ctx context.Context, c *client, _ *content, _ int) error {
		return c.list(ctx, "/registered_models", url.Values{"orderBy": {"LAST_UPDATE_TIME"}, "sortOrder": {"DESC"}}, func(entity) bool { return true })
	}},
	filtered("list name LIKE 'x%'", "/registered_models", func(in *content, i int) (string, func(entity) bool) {
		begin := in.name(i)[:len(in.name(i))-2]
		return "name LIKE '" + begin + "%'", func(e entity) bool { return strings.HasPrefix(e.Name, begin) }
	}),
	filtered("list name LIKE '%x%'", "/registered_models", func(in *content, i int) (string, func(entity) bool) {
		part := in.name(i)[len(in.name(i))-4:]
		return "name LIKE '%" + part + "%'", func(e entity) bool { return strings.Contains(e.Name, part) }
	}),
	filtered("list custom property =", "/registered_models", func(_ *content, i int) (string, func(entity) bool) {
		return fmt.Sprintf("team = 'team-%d'", i%1000), func(e entity) bool { return e.Owner == fmt.Sprint("owner-", i%100) }
	}),
	filtered("list owner =", "/registered_models", func(_ *content, i int) (string, func(entity) bool) {
		owner := fmt.Sprint("owner-", i%100)
		return "owner = '" + owner + "'", func(e entity) bool { return e.Owner == owner }
	}),
	filtered("list state =", "/registered_models", func(*content, int) (string, func(entity) bool) {
		return "state = 'ARCHIVED'", func(e entity) bool { return e.State == "ARCHIVED" }
	}),
	filtered("list nothing", "/registered_models", func(_ *content, i int) (string, func(entity) bool) {
		return fmt.Sprintf("team = 'none-%d' AND owner = 'owner-1'", i), func(entity) bool { return false }
	}),
	filtered("list all versions name =", "/model_versions", func(*content, int) (string, func(entity) bool) {
		return "name = 'v3'", func(e entity) bool { return e.Name == "v3" }
	}),
	{"create model and version", false, func(ctx context.Context, c *client, in *content, i int) error {
		id, err := c.createModel(ctx, fmt.Sprintf("new-%s-%d", in.prefix, serial.Add(1)), i)
		if err != nil {
			return err
		}
		return c.createVersion(ctx, id, "v1")
	}},
}

func one(name string) func(entity, error) error {
	return func(e entity, err error) error {
		if err == nil && e.Name != name {
			err = fmt.Errorf("asked for %s, got %s", name, e.Name)
		}
		return err
	}
}

func filtered(name, path string, question func(*content, int) (string, func(entity) bool)) operation {
	return operation{name, true, func(ctx context.Context, c *client, in *content, i int) error {
		query, right := question(in, i)
		return c.list(ctx, path, url.Values{"filterQuery": {query}}, right)
	}}
}

// figures of one operation. Times are those of single requests.
type figures struct {
	Requests   int     `json:"requests"`
	PerSecond  float64 `json:"requestsPerSecond"`
	P50        float64 `json:"p50Milliseconds"`
	P99        float64 `json:"p99Milliseconds"`
	Statements float64 `json:"statementsPerRequest"`
}

// run lets some clients do an operation again and again for a while.
func (o operation) run(ctx context.Context, address string, in *content, clients int, d time.Duration) (figures, error) {
	c := newClient(address, clients)
	defer c.http.CloseIdleConnections()
	errs := make(chan error, clients)
	began := time.Now()
	for n := range clients {
		go func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			var err error
			for err == nil && time.Since(began) < d {
				err = o.do(ctx, c, in, random.IntN(len(in.ids)))
			}
			errs <- err
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			return figures{}, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	took := time.Since(began).Seconds()
	slices.Sort(c.times)
	at := func(share float64) float64 {
		return float64(c.times[int(share*float64(len(c.times)-1))].Microseconds()) / 1000
	}
	return figures{Requests: len(c.times), PerSecond: float64(len(c.times)) / took, P50: at(0.5), P99: at(0.99)}, nil
}

// count does an operation a few times and returns the statements per request.
func (o operation) count(ctx context.Context, address string, in *content, w *wire) (float64, error) {
	c := newClient(address, 1)
	defer c.http.CloseIdleConnections()
	before := w.statements.Load()
	for i := range 10 {
		if err := o.do(ctx, c, in, i%len(in.ids)); err != nil {
			return 0, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return float64(w.statements.Load()-before) / float64(len(c.times)), nil
}

// knowsFilters asks for what is not there: a server that answers with something does not read the question.
func knowsFilters(ctx context.Context, address string) (bool, error) {
	found, err := newClient(address, 1).call(ctx, http.MethodGet, "/registered_models?pageSize=1&filterQuery="+url.QueryEscape("name = 'nobody has this name'"), nil, http.StatusOK)
	return len(found.Items) == 0, err
}
