// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
)

// Sizes of a page: what a client gets that asks for none, and the most.
const (
	defaultPage = 1000
	maxPage     = 1000
	maxToken    = 1024
)

func bad(message string) error { return &entity.Invalid{Message: message} }

// get answers with one entity.
func (a *API) get(c collection) func(context.Context, *store.Store, *http.Request) (answer, error) {
	return func(ctx context.Context, s *store.Store, req *http.Request) (answer, error) {
		r, err := byPath(ctx, s.Get, req, c.kinds)
		return answer{http.StatusOK, r}, err
	}
}

// byPath finds the entity whose id is in the path.
func byPath(ctx context.Context, get func(context.Context, store.Query) (*entity.Record, error), req *http.Request, kinds []*entity.Kind) (*entity.Record, error) {
	id, err := entity.ParseID("id", req.PathValue("id"))
	if err != nil {
		return nil, err
	}
	r, err := get(ctx, store.Query{Kinds: kinds, ID: id})
	if errors.Is(err, store.ErrNotFound) {
		err = &notFound{noun(kinds), req.PathValue("id")}
	}
	return r, err
}

// noun is what entities of some kinds are called.
func noun(kinds []*entity.Kind) string {
	if len(kinds) > 1 {
		return "Artifact"
	}
	return kinds[0].Name
}

// find answers with the one entity of a name or of an id that others gave it.
func (a *API) find(c collection) func(context.Context, *store.Store, *http.Request) (answer, error) {
	return func(ctx context.Context, s *store.Store, req *http.Request) (answer, error) {
		values := req.URL.Query()
		q := store.Query{Kinds: c.kinds}
		owned := c.kinds[0].Prefixed()
		switch name, externalID := values.Get("name"), values.Get("externalId"); {
		case externalID != "":
			q.ExternalID = &externalID
			if name != "" {
				q.Name = &name
			}
		case name != "" && !owned:
			q.Name = &name
		case name != "" && values.Get("parentResourceId") != "":
			parent, err := entity.ParseID("parentResourceId", values.Get("parentResourceId"))
			if err != nil {
				return answer{}, err
			}
			q.Name, q.Parent = &name, parent
		case owned:
			return answer{}, bad("either name and parentResourceId, or externalId, must be given")
		default:
			return answer{}, bad("either name or externalId must be given")
		}
		r, err := s.Get(ctx, q)
		return answer{http.StatusOK, r}, err
	}
}

// page is the body of a list.
type page struct {
	Items         []*entity.Record `json:"items"`
	NextPageToken string           `json:"nextPageToken"`
	PageSize      int              `json:"pageSize"`
	Size          int              `json:"size"`
}

// list answers with a page of entities, below another if the path says so.
func (a *API) list(n nested) func(context.Context, *store.Store, *http.Request) (answer, error) {
	return func(ctx context.Context, s *store.Store, req *http.Request) (answer, error) {
		q, err := listQuery(req.URL.Query(), n)
		if err != nil {
			return answer{}, err
		}
		if n.below != "" {
			if q.Parent, err = entity.ParseID("id", req.PathValue("id")); err != nil {
				return answer{}, err
			}
		}
		asked := q.Limit
		q.Limit++ // one more tells whether there is another page
		found, err := s.List(ctx, q)
		if err == nil && len(found) == 0 && q.Parent > 0 { // perhaps because there is no such parent
			_, err = byPath(ctx, s.Get, req, n.of.kinds)
		}
		if err != nil {
			return answer{}, err
		}
		out := page{Items: found, PageSize: pageSize(req)}
		if len(found) > asked {
			out.Items = found[:asked]
			out.NextPageToken = encodeToken(out.Items[asked-1], q.Order)
		}
		out.Items = append([]*entity.Record{}, out.Items...)
		if n.kinds[0] == metricHistory {
			for _, r := range out.Items {
				*r.Name = metricName(*r.Name)
			}
		}
		out.Size = len(out.Items)
		return answer{http.StatusOK, out}, nil
	}
}

// pageSize is what the client asked for, which it reads again in the answer.
func pageSize(req *http.Request) int {
	n, _ := strconv.Atoi(req.URL.Query().Get("pageSize")) // it was read before
	return n
}

// listQuery reads what a client asks of a list.
func listQuery(values url.Values, n nested) (q store.Query, err error) {
	q.Kinds, q.Limit = n.kinds, defaultPage
	if text := values.Get("pageSize"); text != "" {
		size, err := strconv.Atoi(text)
		if err != nil || size < 0 {
			return q, bad("pageSize must be a whole number from 0")
		}
		if size > 0 {
			q.Limit = min(size, maxPage)
		}
	}
	if q.Kinds, err = ofType(n.kinds, values.Get("artifactType")); err != nil {
		return q, err
	}
	if err := sorted(&q, values); err != nil {
		return q, err
	}
	if n.below != "" || n.kinds[0] == metricHistory {
		narrowed(&q, values, n)
	}
	if n.kinds[0] == metricHistory {
		if q.Steps, err = steps(values.Get("stepIds")); err != nil {
			return q, err
		}
	}
	q.Filter, err = filter.Parse(values.Get("filterQuery"))
	return q, err
}

// narrowed takes name and externalId, which the lists below entities know.
func narrowed(q *store.Query, values url.Values, n nested) {
	if externalID := values.Get("externalId"); externalID != "" {
		q.ExternalID = &externalID
	}
	name := values.Get("name")
	switch {
	case name == "":
	case n.kinds[0] == metricHistory:
		q.HistoryOf = name
	default:
		q.Name = &name
	}
}

func ofType(kinds []*entity.Kind, artifactType string) ([]*entity.Kind, error) {
	if artifactType == "" || len(kinds) == 1 {
		return kinds, nil
	}
	i := slices.IndexFunc(kinds, func(k *entity.Kind) bool { return k.ArtifactType == artifactType })
	if i < 0 {
		return nil, bad("artifactType " + strconv.Quote(artifactType) + " is none of " + strings.Join(artifactTypes(kinds), ", "))
	}
	return kinds[i : i+1], nil
}

func artifactTypes(kinds []*entity.Kind) []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.ArtifactType)
	}
	return out
}

// orders are what lists can be sorted by.
var orders = map[string]store.Order{"": store.ByID, "ID": store.ByID, "CREATE_TIME": store.ByCreated, "LAST_UPDATE_TIME": store.ByUpdated}

// sorted reads the order and where the page begins.
func sorted(q *store.Query, values url.Values) error {
	var known bool
	if q.Order, known = orders[values.Get("orderBy")]; !known {
		return bad("orderBy can be CREATE_TIME, LAST_UPDATE_TIME or ID")
	}
	switch values.Get("sortOrder") {
	case "", "ASC":
	case "DESC":
		q.Desc = true
	default:
		return bad("sortOrder can be ASC or DESC")
	}
	var err error
	if token := values.Get("nextPageToken"); token != "" {
		q.After, err = decodeToken(token)
	}
	return err
}

func encodeToken(last *entity.Record, by store.Order) string {
	value := map[store.Order]int64{store.ByID: last.ID, store.ByCreated: last.Created, store.ByUpdated: last.Updated}[by]
	return base64.StdEncoding.EncodeToString([]byte(strconv.FormatInt(last.ID, 10) + ":" + strconv.FormatInt(value, 10)))
}

func decodeToken(token string) (*store.Cursor, error) {
	text, err := base64.StdEncoding.DecodeString(token)
	id, value, _ := strings.Cut(string(text), ":")
	var c store.Cursor
	if err == nil {
		c.ID, err = strconv.ParseInt(id, 10, 64)
	}
	if err == nil && value != "" {
		c.Value, err = strconv.ParseInt(value, 10, 64)
	}
	if err != nil || len(token) > maxToken {
		return nil, bad("nextPageToken is none that this registry gave; begin with the first page")
	}
	return &c, nil
}

// steps reads numbers with commas between them.
func steps(text string) ([]int64, error) {
	var out []int64
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return nil, bad("stepIds must be whole numbers with commas between them")
		}
		out = append(out, n)
	}
	return out, nil
}

// metricName is the name of the metric that a row of its history is of.
func metricName(stored string) string {
	i := strings.LastIndex(stored, store.HistorySign)
	if i < 0 {
		return stored
	}
	if _, err := strconv.ParseInt(stored[i+len(store.HistorySign):], 10, 64); err != nil {
		return stored
	}
	return stored[:i]
}

// modelOf answers with the model that an inference service serves.
func (a *API) modelOf(ctx context.Context, s *store.Store, req *http.Request) (answer, error) {
	r, err := byPath(ctx, s.Get, req, []*entity.Kind{service})
	if err != nil {
		return answer{}, err
	}
	id, _ := r.Values["registeredModelId"].(int64)
	found, err := s.Get(ctx, store.Query{Kinds: []*entity.Kind{model}, ID: id})
	return answer{http.StatusOK, found}, err
}

// versionOf answers with the version that an inference service serves: the one that it names, or the newest of its model.
func (a *API) versionOf(ctx context.Context, s *store.Store, req *http.Request) (answer, error) {
	r, err := byPath(ctx, s.Get, req, []*entity.Kind{service})
	if err != nil {
		return answer{}, err
	}
	q := store.Query{Kinds: []*entity.Kind{modelVersion}, Limit: 1}
	if id, named := r.Values["modelVersionId"].(int64); named {
		q.ID = id
	} else {
		q.Parent, _ = r.Values["registeredModelId"].(int64)
		q.Order, q.Desc = store.ByCreated, true
	}
	found, err := s.List(ctx, q)
	if err == nil && len(found) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return answer{}, err
	}
	return answer{http.StatusOK, found[0]}, nil
}
