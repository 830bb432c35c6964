// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
	"github.com/modelplane/modelplane/internal/modelregistry/catalog/sources"
	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
)

// api answers from the snapshot of the moment.
type api struct {
	now     func() *snapshot
	log     *slog.Logger
	preview http.HandlerFunc
}

// asked is one request.
type asked struct {
	*http.Request
	query url.Values
	*snapshot
}

// Paths of the kinds of entries.
var paths = map[*entry.Kind]string{
	entry.Models:          "/api/model_catalog/v1alpha1/models",
	entry.MCPServers:      "/api/mcp_catalog/v1alpha1/mcp_servers",
	entry.Agents:          "/api/agent_catalog/v1alpha1/agents",
	entry.ServingRuntimes: "/api/serving_runtime_catalog/v1alpha1/serving_runtimes",
}

const sourcesPath = "/api/model_catalog/v1alpha1/sources"

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	get := func(pattern string, answer func(asked) (any, error)) { mux.Handle(pattern, a.get(answer)) }
	for kind, path := range paths {
		get(path, func(r asked) (any, error) { return r.list(kind) })
		get(path+"/filter_options", func(r asked) (any, error) { return r.options(kind) })
		if kind == entry.Models {
			continue
		}
		get(path+"/{id}", func(r asked) (any, error) { return r.one(kind) })
		parts := path + "/{id}/" + kind.Parts.Asset
		get(parts, func(r asked) (any, error) {
			e, err := r.byID(kind)
			if err != nil {
				return nil, err
			}
			return r.parts(e.Parts)
		})
		if kind == entry.MCPServers {
			get(parts+"/{name}", asked.tool)
		}
	}
	get(sourcesPath, asked.sources)
	get(sourcesPath+"/{source}/models/{rest...}", asked.model)
	get("/api/model_catalog/v1alpha1/labels", asked.labels)
	mux.HandleFunc(sourcesPath+"/preview", a.preview)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, missing("There is nothing at this path."))
	})
	return mux
}

func (a *api) get(answer func(asked) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			a.fail(w, r, &refusal{http.StatusMethodNotAllowed, "This can be read only."})
			return
		}
		if len(r.URL.RawQuery) > maxQuery {
			a.fail(w, r, bad("The query has more than %d bytes.", maxQuery))
			return
		}
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil || strings.Contains(r.URL.Path, "\x00") || strings.Contains(r.URL.RawQuery, "%00") {
			a.fail(w, r, bad("The query cannot be read."))
			return
		}
		body, err := answer(asked{r, query, a.now()})
		if err != nil {
			a.fail(w, r, err)
			return
		}
		a.write(w, r, http.StatusOK, body)
	})
}

func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	code, message := http.StatusInternalServerError, "Something went wrong here; the log of the catalog tells what."
	if refused, ok := errors.AsType[*refusal](err); ok {
		code, message = refused.code, refused.message
	} else {
		a.log.Error("A request failed", "path", r.URL.Path, "err", err.Error())
	}
	a.write(w, r, code, map[string]string{"code": http.StatusText(code), "message": message})
}

func (a *api) write(w http.ResponseWriter, r *http.Request, code int, body any) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		a.log.Error("An answer cannot be written", "path", r.URL.Path, "err", err.Error())
		http.Error(w, `{"code":"Internal Server Error","message":"The answer cannot be written."}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes())
}

// several values may be given one by one or separated by commas.
func (r asked) several(name string) ([]string, error) {
	var out []string
	for _, value := range r.query[name] {
		for _, one := range strings.Split(value, ",") {
			if one = strings.TrimSpace(one); one != "" {
				out = append(out, one)
			}
		}
	}
	if len(out) > maxValues {
		return nil, bad("There are more than %d values for %s.", maxValues, name)
	}
	return out, nil
}

func readBool(q url.Values, name string) (bool, error) {
	s := q.Get(name)
	if s == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, bad("%s must be true or false.", name)
	}
	return b, nil
}

// filter is filterQuery, joined with the query of a name.
func (r asked) filter(set *assets) (filter.Expr, error) {
	var terms []filter.Expr
	texts := []string{r.query.Get("filterQuery")}
	if name := r.query.Get("namedQuery"); name != "" && set != nil {
		query, ok := set.queries[name]
		if !ok {
			return nil, bad("There is no named query %q; filter_options shows those there are.", name)
		}
		text, err := query.Text(set.options())
		if err != nil {
			return nil, bad("The named query %q cannot be used now: %v.", name, err)
		}
		texts = append(texts, text)
	}
	for _, text := range texts {
		expr, err := filter.Parse(text)
		if err != nil {
			return nil, bad("%s", err)
		}
		if expr != nil {
			terms = append(terms, expr)
		}
	}
	switch len(terms) {
	case 0:
		return nil, nil //nolint:nilnil // no filter and nothing wrong
	case 1:
		return terms[0], nil
	}
	return filter.And{Terms: terms}, nil
}

// wanted sources; nil if all are.
func (r asked) wanted(kind *entry.Kind) (map[string]bool, error) {
	ids, err := r.several("source")
	if err != nil {
		return nil, err
	}
	labels, err := r.several("sourceLabel")
	switch {
	case err != nil:
		return nil, err
	case len(ids) > 0 && len(labels) > 0:
		return nil, bad("source and sourceLabel cannot be used together; leave one of them out.")
	case len(labels) > 0:
		return r.labelled(kind, labels), nil
	case len(ids) == 0:
		return nil, nil //nolint:nilnil // all of them
	}
	out := map[string]bool{}
	for _, id := range ids {
		out[id] = true
	}
	return out, nil
}

// list answers for entries of any kind.
func (r asked) list(kind *entry.Kind) (any, error) {
	set := r.assets[kind]
	l, err := readListing(r.query, "NAME")
	if err != nil {
		return nil, err
	}
	expr, err := r.filter(set)
	if err != nil {
		return nil, err
	}
	keyOf, err := r.order(&l, kind, expr)
	if err != nil {
		return nil, err
	}
	shape, err := r.shape(kind)
	if err != nil {
		return nil, err
	}
	from, err := r.wanted(kind)
	if err != nil {
		return nil, err
	}
	text, like := strings.ToLower(strings.TrimSpace(r.query.Get("q"))), r.query.Get("name")
	var found []*entry.Entry
	for _, e := range set.entries {
		if (from == nil || from[e.Source]) && (like == "" || filter.Pattern(like).Matches(e.Name)) &&
			strings.Contains(e.Search, text) && matches(e, expr) {
			found = append(found, e)
		}
	}
	return shown(paged(l, found, keyOf), shape), nil
}

// order of entries. Who wants recommendations gets the fastest model first.
func (r asked) order(l *listing, kind *entry.Kind, expr filter.Expr) (func(*entry.Entry) key, error) {
	w, err := readWishes(r.query)
	if err != nil {
		return nil, err
	}
	if kind != entry.Models || !w.recommendations {
		return l.ordering()
	}
	artifacts := partsOnly(expr)
	return func(e *entry.Entry) key {
		measured := slices.DeleteFunc(measurements(e), func(m *entry.Entry) bool { return !holds(m, artifacts, ofParts) })
		latency, ok := w.fastest(measured)
		k := numberKey(latency, ok, strconv.FormatInt(e.ID, 10))
		k.Text = textKey(e.Name, "").Text
		return k
	}, nil
}

// shape is how entries of a kind are shown: MCP servers with their tools, if somebody wants them.
func (r asked) shape(kind *entry.Kind) (func(*entry.Entry) map[string]any, error) {
	plain := func(e *entry.Entry) map[string]any { return e.Fields }
	if kind != entry.MCPServers {
		return plain, nil
	}
	with, err := readBool(r.query, "includeTools")
	if err != nil || !with {
		return plain, err
	}
	limit := 10
	if s := r.query.Get("toolLimit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 0 || limit > 100 {
			return nil, bad("toolLimit must be a number from 0 to 100.")
		}
	}
	return func(e *entry.Entry) map[string]any {
		out, tools := maps.Clone(e.Fields), []any{}
		for _, tool := range e.Parts[:min(limit, len(e.Parts))] {
			tools = append(tools, tool.Fields)
		}
		out["tools"] = tools
		return out
	}, nil
}

func shown(page list[*entry.Entry], shape func(*entry.Entry) map[string]any) list[map[string]any] {
	out := list[map[string]any]{Items: []map[string]any{}, NextPageToken: page.NextPageToken, PageSize: page.PageSize, Size: page.Size}
	for _, e := range page.Items {
		out.Items = append(out.Items, shape(e))
	}
	return out
}

func (r asked) byID(kind *entry.Kind) (*entry.Entry, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if e, ok := r.assets[kind].byID[id]; ok && err == nil {
		return e, nil
	}
	return nil, missing("There is no entry %q in %s.", r.PathValue("id"), kind.Asset)
}

func (r asked) one(kind *entry.Kind) (any, error) {
	e, err := r.byID(kind)
	if err != nil {
		return nil, err
	}
	shape, err := r.shape(kind)
	if err != nil {
		return nil, err
	}
	return shape(e), nil
}

func (r asked) tool() (any, error) {
	e, err := r.byID(entry.MCPServers)
	if err != nil {
		return nil, err
	}
	for _, tool := range e.Parts {
		if tool.Name == r.PathValue("name") {
			return map[string]any{"serverId": e.Fields["id"], "serverName": e.Name, "tool": tool.Fields}, nil
		}
	}
	return nil, missing("The server %q has no tool %q.", e.Name, r.PathValue("name"))
}

// parts answers for artifacts, tools and versions.
func (r asked) parts(all []*entry.Entry) (any, error) {
	l, err := readListing(r.query, "NAME")
	if err != nil {
		return nil, err
	}
	expr, err := r.filter(nil)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(l.order, ".") && !slices.Contains([]string{"ID", "NAME", "CREATE_TIME", "LAST_UPDATE_TIME"}, strings.ToUpper(l.order)) {
		l.order = "ID" // so the interface promises
	}
	keyOf, err := l.ordering()
	if err != nil {
		return nil, err
	}
	types, err := r.several("artifactType")
	if err != nil {
		return nil, err
	}
	former, err := r.several("artifact_type")
	if err != nil {
		return nil, err
	}
	types = append(types, former...)
	for _, t := range types {
		if !slices.Contains([]string{entry.ModelArtifact, entry.MetricsArtifact, "template-artifact"}, t) {
			return nil, bad("artifactType %q is unknown; use %s or %s.", t, entry.ModelArtifact, entry.MetricsArtifact)
		}
	}
	var found []*entry.Entry
	for _, part := range all {
		if t, _ := part.Fields["artifactType"].(string); (len(types) == 0 || slices.Contains(types, t)) && holds(part, expr, "") {
			found = append(found, part)
		}
	}
	return shown(paged(l, found, keyOf), func(e *entry.Entry) map[string]any { return e.Fields }), nil
}

// model answers below a source. Names have slashes in them, so what follows the name is told from it by what there is.
func (r asked) model() (any, error) {
	find := func(name string) *entry.Entry {
		return r.assets[entry.Models].byName[[2]string{r.PathValue("source"), name}]
	}
	rest := strings.TrimSuffix(r.PathValue("rest"), "/")
	if name, ok := strings.CutSuffix(rest, "/artifacts/performance"); ok {
		if e := find(name); e != nil {
			return r.performance(e)
		}
	}
	if name, ok := strings.CutSuffix(rest, "/artifacts"); ok {
		if e := find(name); e != nil {
			return r.parts(e.Parts)
		}
	}
	if e := find(rest); e != nil {
		return e.Fields, nil
	}
	return nil, missing("There is no model %q in the source %q.", rest, r.PathValue("source"))
}

func (r asked) performance(e *entry.Entry) (any, error) {
	w, err := readWishes(r.query)
	if err != nil {
		return nil, err
	}
	expr, err := r.filter(nil)
	if err != nil {
		return nil, err
	}
	measured := slices.DeleteFunc(measurements(e), func(m *entry.Entry) bool { return !holds(m, expr, "") })
	if err := w.check(measured); err != nil {
		return nil, err
	}
	if w.recommendations {
		w.rate = max(w.rate, 1)
		measured = w.recommended(measured)
	}
	return r.parts(w.sized(measured))
}

func (r asked) options(kind *entry.Kind) (any, error) {
	set := r.assets[kind]
	out := map[string]any{"filters": set.options()}
	if len(set.queries) > 0 {
		queries := map[string]map[string]sources.Filter{}
		for name, q := range set.queries {
			queries[name] = q.Resolved(set.options())
		}
		out["namedQueries"] = queries
	}
	return out, nil
}

// asset is the kind that a client means.
func (r asked) asset() (string, error) {
	asset := r.query.Get("assetType")
	if asset != "" && !slices.ContainsFunc(entry.Kinds, func(k *entry.Kind) bool { return k.Asset == asset }) {
		return "", bad("assetType %q is unknown; use models, mcp_servers, agents or serving_runtimes.", asset)
	}
	return asset, nil
}

// shownSource is a source on the wire.
type shownSource struct {
	ID             string   `json:"id"`
	Name           string   `json:"name"`
	Enabled        bool     `json:"enabled"`
	Labels         []string `json:"labels"`
	AssetType      string   `json:"assetType"`
	Status         string   `json:"status"`
	Error          *string  `json:"error,omitempty"`
	IncludedModels []string `json:"includedModels,omitempty"`
	ExcludedModels []string `json:"excludedModels,omitempty"`
}

func (r asked) sources() (any, error) {
	l, err := readListing(r.query, "ID")
	if err != nil {
		return nil, err
	}
	asset, err := r.asset()
	if err != nil {
		return nil, err
	}
	if asset == "" {
		asset = entry.Models.Asset
	}
	byName := strings.EqualFold(l.order, "NAME")
	if !byName && !strings.EqualFold(l.order, "ID") {
		return nil, bad("Sources are ordered by ID or NAME.")
	}
	like := strings.ToLower(r.query.Get("name"))
	var found []shownSource
	for _, s := range r.snapshot.sources {
		if s.Kind.Asset != asset || !strings.Contains(strings.ToLower(s.Name), like) {
			continue
		}
		one := shownSource{ID: s.ID, Name: s.Name, Enabled: s.IsEnabled(), Labels: append([]string{}, s.Labels...), AssetType: asset, Status: s.Status}
		if s.Problem != "" {
			one.Error = &s.Problem
		}
		if s.Kind == entry.Models {
			one.IncludedModels, one.ExcludedModels = s.Included, s.Excluded
		}
		found = append(found, one)
	}
	return paged(l, found, func(s shownSource) key {
		if byName {
			return textKey(s.Name, s.ID)
		}
		return textKey(s.ID, s.ID)
	}), nil
}

func (r asked) labels() (any, error) {
	l, err := readListing(r.query, "")
	if err != nil {
		return nil, err
	}
	asset, err := r.asset()
	if err != nil {
		return nil, err
	}
	type numbered struct {
		sources.Label
		at int
	}
	var found []numbered
	for i, label := range r.snapshot.labels {
		if asset == "" || label.Asset() == asset {
			found = append(found, numbered{label, i})
		}
	}
	page := paged(l, found, func(n numbered) key {
		id := n.Label.Asset() + "/" + n.Label.Name()
		if value := n.Label[l.order]; l.order != "" && value != nil {
			return textKey(*value, id)
		}
		at := float64(n.at)
		if l.down {
			at = -at // those without the key keep their order
		}
		return key{Missing: true, Number: at, ID: id}
	})
	out := list[sources.Label]{Items: []sources.Label{}, NextPageToken: page.NextPageToken, PageSize: page.PageSize, Size: page.Size}
	for _, n := range page.Items {
		out.Items = append(out.Items, n.Label)
	}
	return out, nil
}
