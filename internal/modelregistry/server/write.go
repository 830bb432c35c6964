// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
	"github.com/modelplane/modelplane/internal/modelregistry/server/store"
)

// tag tells two states of an entity apart.
func tag(r *entity.Record) string { return `"` + strconv.FormatInt(r.Updated, 10) + `"` }

// create makes an entity. Below another one it belongs to that; there, one with an id in the body is changed instead, and
// so is a metric or a parameter that the run has already.
func (a *API) create(n nested) func(context.Context, *store.Store, *http.Request) (answer, error) {
	return func(ctx context.Context, s *store.Store, req *http.Request) (answer, error) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return answer{}, err
		}
		kind, err := kindOf(n.kinds, body)
		if err != nil {
			return answer{}, err
		}
		said, err := kind.Decode(body)
		if err != nil {
			return answer{}, err
		}
		var told answer
		write := func() error {
			return s.Write(ctx, func(t *store.Tx) error {
				c := creation{t: t, n: n, said: said}
				told, err = c.run(ctx, req)
				return err
			})
		}
		err = write()
		if conflict := (*store.Conflict)(nil); errors.As(err, &conflict) && n.below != "" && repeats(kind) {
			err = write() // somebody else made it at the same time
		}
		return told, err
	}
}

// repeats tells of kinds that a run has one of per name, whose value is written again and again.
func repeats(k *entity.Kind) bool { return k == metric || k == parameter }

// kindOf finds out what the body is, where that can be several things.
func kindOf(kinds []*entity.Kind, body []byte) (*entity.Kind, error) {
	if len(kinds) == 1 {
		return kinds[0], nil
	}
	artifactType, err := entity.ArtifactType(body)
	if err != nil {
		return nil, err
	}
	if artifactType == "" {
		return nil, &entity.Invalid{Missing: true, Message: "required field 'artifactType' is zero value."}
	}
	found, err := ofType(kinds, artifactType)
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// creation is one entity that is being made.
type creation struct {
	t    *store.Tx
	n    nested
	said *entity.Record
	// parent is the entity in the path; nil if there is none.
	parent *entity.Record
}

func (c *creation) run(ctx context.Context, req *http.Request) (answer, error) {
	var err error
	if c.n.below != "" {
		if c.parent, err = byPath(ctx, c.t.Get, req, c.n.of.kinds); err != nil {
			return answer{}, err
		}
		if found, err := c.existing(ctx); err != nil || found != nil {
			return c.change(ctx, found, err)
		}
	}
	r := *c.said
	r.ID, r.Values = 0, map[string]any{}
	for name, value := range c.said.Values {
		r.Values[name] = value
	}
	above, err := c.belongs(&r)
	if err != nil {
		return answer{}, err
	}
	if err := r.Complete(); err != nil {
		return answer{}, err
	}
	if above == 0 && r.Kind.Parent != nil && r.Kind.Parent.Field != "" {
		above, _ = r.Values[r.Kind.Parent.Field].(int64)
	}
	if err := c.check(ctx, &r); err != nil {
		return answer{}, err
	}
	if err := c.t.Insert(ctx, &r, above); err != nil {
		return answer{}, err
	}
	return answer{http.StatusCreated, &r}, c.remember(ctx, &r)
}

// existing is the entity that the body means, if there is one.
func (c *creation) existing(ctx context.Context) (*entity.Record, error) {
	q := store.Query{Kinds: []*entity.Kind{c.said.Kind}}
	switch {
	case c.said.ID > 0:
		q.ID = c.said.ID
	case c.parent.Kind == run && repeats(c.said.Kind) && c.said.Name != nil && *c.said.Name != "":
		q.Name, q.Parent = c.said.Name, c.parent.ID
	default:
		return nil, nil //nolint:nilnil // there is none, and nothing wrong
	}
	found, err := c.t.Get(ctx, q)
	if errors.Is(err, store.ErrNotFound) && c.said.ID == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	if errors.Is(err, store.ErrNotFound) {
		err = &notFound{c.said.Kind.Name, strconv.FormatInt(c.said.ID, 10)}
	}
	return found, err
}

// change writes what the body says into the entity that it means, which belongs to the one in the path from then on.
func (c *creation) change(ctx context.Context, found *entity.Record, err error) (answer, error) {
	if err == nil {
		err = found.Change(c.said)
	}
	if err == nil {
		err = c.check(ctx, found)
	}
	if err == nil {
		err = c.t.Update(ctx, found, c.said.Custom != nil)
	}
	if err == nil && found.Kind.Table == entity.Artifacts {
		err = c.t.Attach(ctx, found, c.parent.ID)
	}
	if err != nil {
		return answer{}, err
	}
	return answer{http.StatusOK, found}, c.remember(ctx, found)
}

// belongs writes into the entity to whom it belongs, as the path says, and returns that one's id.
func (c *creation) belongs(r *entity.Record) (int64, error) {
	if c.parent == nil {
		return 0, nil
	}
	if p := r.Kind.Parent; p != nil && p.Field != "" {
		if said, there := r.Values[p.Field].(int64); there && said != c.parent.ID {
			return 0, bad(fmt.Sprintf("field %s is %d, but the path says %d", p.Field, said, c.parent.ID))
		}
		r.Values[p.Field] = c.parent.ID
	}
	if c.parent.Kind == run && r.Kind.Table == entity.Artifacts {
		r.Values["experimentRunId"], r.Values["experimentId"] = c.parent.ID, c.parent.Values["experimentId"]
	}
	return c.parent.ID, nil
}

// check refuses references to what is not there, and deployments of what may not be deployed.
func (c *creation) check(ctx context.Context, r *entity.Record) error {
	if err := checkReferences(ctx, c.t, r); err != nil {
		return err
	}
	if r.Kind != serveModel {
		return nil
	}
	id, _ := r.Values["modelVersionId"].(int64)
	version, err := c.t.Get(ctx, store.Query{Kinds: []*entity.Kind{modelVersion}, ID: id})
	if err != nil {
		return err
	}
	switch gated, private := version.Custom["hf_gated"], version.Custom["hf_private"]; {
	case isText(private, "true"):
		return bad("the model version is of a private model (hf_private), which cannot be served")
	case gated != nil && !isText(gated, "") && !isText(gated, "false"):
		return bad("the model version is of a gated model (hf_gated), which cannot be served")
	}
	return nil
}

func isText(v entity.Value, text string) bool {
	s, ok := v.(string)
	return ok && s == text
}

// checkReferences asks for everything at once that the entity refers to.
func checkReferences(ctx context.Context, t *store.Tx, r *entity.Record) error {
	refs := map[string]store.Reference{}
	for _, f := range r.Kind.Fields {
		if id, said := r.Values[f.Name].(int64); said && f.Type == entity.ID && f.At != entity.InPath {
			refs[f.Name] = store.Reference{Kind: f.Of, ID: id}
		}
	}
	missing, err := t.Missing(ctx, refs)
	if err == nil && len(missing) > 0 {
		var words []string
		for _, name := range missing {
			words = append(words, fmt.Sprintf("%s is %d, but there is no such %s", name, refs[name].ID, refs[name].Kind))
		}
		err = bad(strings.Join(words, "; "))
	}
	return err
}

// remember adds to the history of a metric what it is now.
func (c *creation) remember(ctx context.Context, r *entity.Record) error {
	if r.Kind != metric || c.parent == nil || c.parent.Kind != run {
		return nil
	}
	name := *r.Name + store.HistorySign + strconv.FormatInt(r.Updated, 10)
	past := &entity.Record{Kind: metricHistory, Name: &name, Values: map[string]any{}, Custom: r.Custom, Description: r.Description}
	for _, f := range metricHistory.Fields {
		if value, there := r.Values[f.Name]; there {
			past.Values[f.Name] = value
		}
	}
	return c.t.Insert(ctx, past, c.parent.ID)
}

// update changes what the client says of an entity, and nothing else.
func (a *API) update(col collection) func(context.Context, *store.Store, *http.Request) (answer, error) {
	return func(ctx context.Context, s *store.Store, req *http.Request) (answer, error) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return answer{}, err
		}
		var r *entity.Record
		err = s.Write(ctx, func(t *store.Tx) error {
			if r, err = byPath(ctx, t.Get, req, col.kinds); err != nil {
				return err
			}
			if wanted := req.Header.Get("If-Match"); wanted != "" && wanted != "*" && !slices.Contains(splitTags(wanted), tag(r)) {
				return store.ErrChanged
			}
			said, err := r.Kind.Decode(body)
			if err != nil {
				return err
			}
			if err := r.Change(said); err != nil {
				return err
			}
			if err := checkReferences(ctx, t, r); err != nil {
				return err
			}
			return t.Update(ctx, r, said.Custom != nil)
		})
		return answer{http.StatusOK, r}, err
	}
}

func splitTags(header string) []string {
	var out []string
	for part := range strings.SplitSeq(header, ",") {
		out = append(out, strings.TrimPrefix(strings.TrimSpace(part), "W/"))
	}
	return out
}
