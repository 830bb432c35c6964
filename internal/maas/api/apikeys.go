// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/modelplane/modelplane/internal/maas/keys"
	"github.com/modelplane/modelplane/internal/maas/selection"
	"github.com/modelplane/modelplane/internal/maas/store"
)

// createRequest asks for a key.
type createRequest struct {
	Name         string            `json:"name,omitempty" doc:"what the key is for; required unless it is ephemeral"`
	Description  string            `json:"description,omitempty" doc:"more about it"`
	Subscription string            `json:"subscription,omitempty" doc:"who pays; without one, the subscription of the caller that comes first"`
	ExpiresIn    json.RawMessage   `json:"expiresIn,omitempty" doc:"how long it lives: a duration such as 12h or 30d, or a number of seconds"`
	Ephemeral    bool              `json:"ephemeral,omitempty" doc:"a key for an hour at most, which is removed afterwards"`
	Labels       map[string]string `json:"labels,omitempty" doc:"words to find it by; they cannot be changed"`
}

// createResponse is the only place in which a key is shown.
type createResponse struct {
	Key          string            `json:"key" doc:"the key; it is shown once"`
	KeyPrefix    string            `json:"keyPrefix"`
	ID           string            `json:"id"`
	Name         string            `json:"name"`
	Subscription string            `json:"subscription"`
	CreatedAt    string            `json:"createdAt"`
	ExpiresAt    string            `json:"expiresAt,omitempty"`
	Ephemeral    bool              `json:"ephemeral"`
	Labels       map[string]string `json:"labels,omitempty"`
}

// apiKey is a key as lists show it.
type apiKey struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	Description    string            `json:"description,omitempty"`
	Username       string            `json:"username"`
	Subscription   string            `json:"subscription"`
	Tenant         string            `json:"tenant"`
	Groups         []string          `json:"groups,omitempty"`
	CreationDate   string            `json:"creationDate"`
	ExpirationDate string            `json:"expirationDate,omitempty"`
	Status         string            `json:"status" doc:"active, revoked or expired"`
	LastUsedAt     string            `json:"lastUsedAt,omitempty"`
	Ephemeral      bool              `json:"ephemeral"`
	Labels         map[string]string `json:"labels,omitempty"`
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (a *API) show(r *keys.Record) apiKey {
	return apiKey{
		ID: r.ID, Name: r.Name, Description: r.Description, Username: r.Username, Subscription: r.Subscription, Tenant: r.Tenant, Groups: r.Groups,
		CreationDate: timeText(r.Created), ExpirationDate: timeText(r.Expires), Status: string(r.StatusAt(a.Now())), LastUsedAt: timeText(r.LastUsed),
		Ephemeral: r.Ephemeral, Labels: r.Labels,
	}
}

func (a *API) createKey(req *http.Request, who Caller) (answer, error) {
	out, err := a.mint(req, who)
	switch p, refused := errors.AsType[*problem](err); {
	case err == nil:
		a.Metrics.minted.WithLabelValues(a.Tenant, "success").Inc()
	case refused && p.code < http.StatusInternalServerError:
		a.Metrics.minted.WithLabelValues(a.Tenant, "rejected").Inc()
	default:
		a.Metrics.minted.WithLabelValues(a.Tenant, "failure").Inc()
	}
	return out, err
}

func (a *API) mint(req *http.Request, who Caller) (answer, error) {
	if who.ByKey { // what a key made would live on when that key is revoked
		return answer{}, coded(http.StatusForbidden, "an API key makes no keys; send a token of the cluster or of the identity provider", "token_required")
	}
	var ask createRequest
	if err := decode(req, &ask, false); err != nil {
		return answer{}, err
	}
	r, err := a.understand(&ask, who)
	if err != nil {
		return answer{}, told(http.StatusBadRequest, err.Error())
	}
	if r.Subscription, err = a.bind(ask.Subscription, who); err != nil {
		return answer{}, err
	}
	key, err := keys.Mint()
	if err != nil {
		return answer{}, err
	}
	r.Digest = a.Digester.Digest(key)
	if err := a.Store.Create(req.Context(), r); err != nil {
		return answer{}, err
	}
	a.Log.Info("A key was made", "request", requestID(req), "id", r.ID, "user", r.Username, "subscription", r.Subscription, "ephemeral", r.Ephemeral)
	return answer{code: http.StatusCreated, header: noStore(), body: createResponse{
		Key: key.Reveal(), KeyPrefix: key.Display(), ID: r.ID, Name: r.Name, Subscription: r.Subscription, CreatedAt: timeText(r.Created),
		ExpiresAt: timeText(r.Expires), Ephemeral: r.Ephemeral, Labels: r.Labels,
	}}, nil
}

// understand checks what was asked for. Its errors are for the client.
func (a *API) understand(ask *createRequest, who Caller) (*keys.Record, error) {
	now := a.Now().UTC().Truncate(time.Microsecond)
	if strings.TrimSpace(ask.Name) == "" && ask.Ephemeral {
		ask.Name = fmt.Sprintf("ephemeral-%d", now.UnixNano())
	}
	name, err := keys.Name(ask.Name)
	if err != nil {
		return nil, err
	}
	if !storable(name, ask.Description, ask.Subscription, who.Username) {
		return nil, errors.New("a text has characters that cannot be kept")
	}
	if err := errors.Join(keys.Description(ask.Description), keys.Labels(ask.Labels), keys.Groups(who.Groups)); err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	want, wanted, err := keys.ParseExpiresIn(ask.ExpiresIn)
	if err != nil {
		return nil, err
	}
	life, err := keys.Lifetime(want, wanted, ask.Ephemeral, a.MaxDays)
	if err != nil {
		return nil, err
	}
	return &keys.Record{
		ID: uuid.NewString(), Tenant: a.Tenant, Username: who.Username, Name: name, Description: ask.Description, Groups: who.Groups, Labels: ask.Labels,
		Ephemeral: ask.Ephemeral, Stored: keys.Active, Created: now, Expires: now.Add(life).Truncate(time.Microsecond),
	}, nil
}

// bind chooses the subscription of a new key.
func (a *API) bind(name string, who Caller) (string, error) {
	name = strings.TrimSpace(name)
	if name == "" {
		s, err := a.Index.Default(who.Username, who.Groups)
		if e, ok := errors.AsType[*selection.Error](err); ok && e.Code == selection.ModelUnhealthy {
			return "", coded(http.StatusBadRequest, e.Message, "subscription_not_ready")
		} else if err != nil {
			return "", coded(http.StatusBadRequest, err.Error(), "invalid_subscription")
		}
		return s.Name, nil
	}
	choice, err := a.Index.Select(selection.Request{Username: who.Username, Groups: who.Groups, Subscription: name})
	if err != nil { // somebody else's is not told from one that is not there
		return "", coded(http.StatusBadRequest, fmt.Sprintf("subscription %q does not exist or is not yours; list yours at /v1/subscriptions", name), "invalid_subscription")
	}
	switch s := choice.Subscription; {
	case !s.Deleted.IsZero():
		return "", coded(http.StatusBadRequest, fmt.Sprintf("subscription %q is being deleted; choose another", s.Name), "subscription_not_ready")
	case s.Phase == selection.Failed:
		return "", coded(http.StatusForbidden, fmt.Sprintf("subscription %q has failed; ask its administrator to look at its status", s.Name), "subscription_not_ready")
	case s.Phase == selection.Active || s.Phase == selection.Degraded || s.Phase == selection.Pending:
		return s.Name, nil
	default:
		return "", coded(http.StatusBadRequest, fmt.Sprintf("subscription %q is not ready yet; try again in a moment", s.Name), "subscription_not_ready")
	}
}

// searchRequest asks for keys.
type searchRequest struct {
	Filters    searchFilters `json:"filters,omitzero"`
	Sort       searchSort    `json:"sort,omitzero"`
	Pagination searchPage    `json:"pagination,omitzero"`
}

type searchFilters struct {
	Username            string            `json:"username,omitempty" doc:"whose keys; those of others are for administrators"`
	Status              []string          `json:"status,omitempty" doc:"active, revoked or expired; without any, all"`
	Subscription        string            `json:"subscription,omitempty"`
	IncludeEphemeral    bool              `json:"includeEphemeral,omitempty"`
	LabelsContain       map[string]string `json:"labelsContain,omitempty" doc:"labels that must all be there"`
	CreatedAfter        string            `json:"createdAfter,omitempty" doc:"RFC 3339"`
	CreatedBefore       string            `json:"createdBefore,omitempty" doc:"RFC 3339"`
	ExpiresAfter        string            `json:"expiresAfter,omitempty" doc:"RFC 3339"`
	ExpiresBefore       string            `json:"expiresBefore,omitempty" doc:"RFC 3339"`
	LastUsedAfter       string            `json:"lastUsedAfter,omitempty" doc:"RFC 3339"`
	NameContains        string            `json:"nameContains,omitempty" doc:"in any case"`
	DescriptionContains string            `json:"descriptionContains,omitempty" doc:"in any case"`
	HasExpiration       *bool             `json:"hasExpiration,omitempty"`
	HasBeenUsed         *bool             `json:"hasBeenUsed,omitempty"`
}

type searchSort struct {
	By    string `json:"by,omitempty" doc:"created_at (default), expires_at, last_used_at or name"`
	Order string `json:"order,omitempty" doc:"asc or desc (default); what has no value comes last"`
}

type searchPage struct {
	Limit  *int   `json:"limit,omitempty" doc:"50 without one, 100 at most"`
	Offset int    `json:"offset,omitempty" doc:"how many to leave out; next_cursor is cheaper"`
	Cursor string `json:"cursor,omitempty" doc:"next_cursor of the page before"`
}

type searchResponse struct {
	Object     string   `json:"object"`
	Data       []apiKey `json:"data"`
	HasMore    bool     `json:"has_more"`
	NextCursor string   `json:"next_cursor,omitempty"`
}

const usualPage, largestPage = 50, 100

func (a *API) searchKeys(req *http.Request, who Caller) (answer, error) {
	var ask searchRequest
	if err := decode(req, &ask, true); err != nil {
		return answer{}, err
	}
	q, err := ask.query()
	if err != nil {
		return answer{}, told(http.StatusBadRequest, err.Error())
	}
	q.Tenant, q.Now = a.Tenant, a.Now()
	if who.Username == "" { // nobody has no keys
		return answer{code: http.StatusOK, header: noStore(), body: searchResponse{Object: "list", Data: []apiKey{}}}, nil
	}
	if err := a.whose(req, who, &q); err != nil {
		return answer{}, err
	}
	found, more, err := a.Store.Search(req.Context(), q)
	if err != nil {
		return answer{}, err
	}
	out := searchResponse{Object: "list", Data: make([]apiKey, 0, len(found)), HasMore: more}
	for _, r := range found {
		out.Data = append(out.Data, a.show(r))
	}
	if more {
		out.NextCursor = encodeCursor(q.Sort, q.Ascending, store.PositionOf(found[len(found)-1], q.Sort))
	}
	return answer{code: http.StatusOK, header: noStore(), body: out}, nil
}

// whose keys are listed: one's own, and for administrators everybody's or those of the user they name.
func (a *API) whose(req *http.Request, who Caller, q *store.Query) error {
	if q.Username == who.Username {
		return nil
	}
	admin, err := a.Admin(req.Context(), who)
	switch {
	case err != nil && q.Username == "": // their own are theirs to see in any case
		a.Log.Warn("It could not be told who is an administrator", "request", requestID(req), "err", err.Error())
		q.Username = who.Username
	case err != nil:
		return &problem{answer: cannotTell(req), cause: err}
	case !admin && q.Username != "":
		return told(http.StatusForbidden, "the keys of other users are for administrators; leave the username out for your own")
	case !admin:
		q.Username = who.Username
	}
	return nil
}

func (r *searchRequest) query() (store.Query, error) {
	f := r.Filters
	q := store.Query{
		Username: f.Username, Subscription: f.Subscription, IncludeEphemeral: f.IncludeEphemeral, Labels: f.LabelsContain, NameContains: f.NameContains,
		DescriptionContains: f.DescriptionContains, HasExpiration: f.HasExpiration, HasBeenUsed: f.HasBeenUsed, Limit: usualPage, Offset: r.Pagination.Offset,
	}
	if !storable(f.Username, f.Subscription, f.NameContains, f.DescriptionContains) {
		return q, errors.New("a filter has characters that no key can have, or is too long")
	}
	if err := keys.Labels(f.LabelsContain); err != nil {
		return q, fmt.Errorf("labelsContain: %w", err)
	}
	for _, word := range f.Status {
		s := keys.Status(word)
		if s != keys.Active && s != keys.Revoked && s != keys.Expired {
			return q, fmt.Errorf("status %.40q is unknown; use active, revoked or expired", word)
		}
		if !slices.Contains(q.Statuses, s) {
			q.Statuses = append(q.Statuses, s)
		}
	}
	for _, t := range []struct {
		name, text string
		to         *time.Time
	}{
		{"createdAfter", f.CreatedAfter, &q.CreatedAfter}, {"createdBefore", f.CreatedBefore, &q.CreatedBefore}, {"expiresAfter", f.ExpiresAfter, &q.ExpiresAfter},
		{"expiresBefore", f.ExpiresBefore, &q.ExpiresBefore}, {"lastUsedAfter", f.LastUsedAfter, &q.LastUsedAfter},
	} {
		if err := parseTime(t.text, t.to); err != nil {
			return q, fmt.Errorf("%s must be a time such as 2026-01-31T12:00:00Z", t.name)
		}
	}
	err := r.paging(&q)
	return q, err
}

// parseTime refuses times that databases do not have.
func parseTime(text string, to *time.Time) error {
	if text == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1 || t.Year() > 9999 {
		return errors.New("no time")
	}
	*to = t.UTC()
	return nil
}

func (r *searchRequest) paging(q *store.Query) error {
	by := cmp.Or(r.Sort.By, string(store.ByCreated))
	if !slices.Contains([]store.Sort{store.ByCreated, store.ByExpires, store.ByLastUsed, store.ByName}, store.Sort(by)) {
		return fmt.Errorf("sort.by %.40q is unknown; use created_at, expires_at, last_used_at or name", by)
	}
	order := cmp.Or(r.Sort.Order, "desc")
	if order != "asc" && order != "desc" {
		return fmt.Errorf("sort.order %.40q is unknown; use asc or desc", order)
	}
	q.Sort, q.Ascending = store.Sort(by), order == "asc"
	if limit := r.Pagination.Limit; limit != nil {
		if *limit < 1 {
			return errors.New("pagination.limit must be at least 1")
		}
		q.Limit = min(*limit, largestPage)
	}
	if q.Offset < 0 || q.Offset > 1<<31 {
		return errors.New("pagination.offset must not be negative, nor larger than 2147483648")
	}
	if r.Pagination.Cursor == "" {
		return nil
	}
	position, err := decodeCursor(r.Pagination.Cursor, q.Sort, q.Ascending)
	if err == nil && q.Offset > 0 {
		err = errors.New("pagination.cursor and pagination.offset exclude each other")
	}
	q.After = position
	return err
}

// cursor is a position together with the order that it belongs to.
type cursor struct {
	By        store.Sort `json:"b"`
	Ascending bool       `json:"a,omitempty"`
	store.Position
}

func encodeCursor(by store.Sort, ascending bool, p store.Position) string {
	text, err := json.Marshal(cursor{by, ascending, p})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func decodeCursor(text string, by store.Sort, ascending bool) (*store.Position, error) {
	var c cursor
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	switch {
	case err != nil || !storable(c.ID, c.Name) || c.ID == "" || c.Time.Year() > 9999 || c.Time.Year() < 1:
		return nil, errors.New("pagination.cursor is none; use next_cursor of the page before")
	case c.By != by || c.Ascending != ascending:
		return nil, errors.New("pagination.cursor belongs to another order; keep sort as it was on the page before")
	}
	return &c.Position, nil
}

// revokeRequest ends keys together.
type revokeRequest struct {
	Username     string `json:"username,omitempty"`
	Subscription string `json:"subscription,omitempty"`
	DryRun       bool   `json:"dryRun,omitempty" doc:"count only"`
}

type revokeResponse struct {
	RevokedCount int64  `json:"revokedCount"`
	Message      string `json:"message"`
	DryRun       bool   `json:"dryRun,omitempty"`
}

func (a *API) bulkRevoke(req *http.Request, who Caller) (answer, error) {
	var ask revokeRequest
	if err := decode(req, &ask, false); err != nil {
		return answer{}, err
	}
	switch {
	case ask.Username == "" && ask.Subscription == "":
		return answer{}, told(http.StatusBadRequest, "username or subscription is required; say whose keys are meant")
	case !storable(ask.Username, ask.Subscription):
		return answer{}, told(http.StatusBadRequest, "username or subscription has characters that no key can have")
	}
	if ask.Subscription != "" || ask.Username != who.Username {
		admin, err := a.Admin(req.Context(), who)
		switch {
		case err != nil:
			return answer{}, &problem{answer: cannotTell(req), cause: err}
		case !admin:
			return answer{}, told(http.StatusForbidden, "the keys of others or of a subscription are revoked by administrators")
		}
	}
	scope := store.Scope{Tenant: a.Tenant, Username: ask.Username, Subscription: ask.Subscription}
	if ask.DryRun {
		n, err := a.Store.CountActive(req.Context(), scope, a.Now())
		return ok(revokeResponse{n, fmt.Sprintf("%d active keys would be revoked", n), true}), err
	}
	n, err := a.Store.RevokeAll(req.Context(), scope, a.Now())
	if err != nil {
		return answer{}, err
	}
	a.Cache.ForgetAll()
	a.Log.Info("Keys were revoked", "audit", true, "request", requestID(req), "by", who.Username, "username", ask.Username, "subscription", ask.Subscription, "keys", n)
	return ok(revokeResponse{RevokedCount: n, Message: fmt.Sprintf("%d active keys were revoked", n)}), nil
}

type configResponse struct {
	MaxExpirationDays      int    `json:"max_expiration_days"`
	EphemeralMaxExpiration string `json:"ephemeral_max_expiration"`
}

func (a *API) keyConfig(*http.Request, Caller) (answer, error) {
	return ok(configResponse{a.MaxDays, keys.EphemeralLifetime.String()}), nil
}

var errNoKey = told(http.StatusNotFound, "there is no such API key")

// mine is a key that the caller may see. Others are as if they were not there.
func (a *API) mine(req *http.Request, who Caller) (*keys.Record, error) {
	id := req.PathValue("id")
	if !storable(id) {
		return nil, errNoKey
	}
	r, err := a.Store.Get(req.Context(), a.Tenant, id)
	if errors.Is(err, keys.ErrNotFound) {
		return nil, errNoKey
	}
	if err != nil || r.Username == who.Username {
		return r, err
	}
	if admin, err := a.Admin(req.Context(), who); err != nil || !admin {
		if err != nil {
			a.Log.Warn("It could not be told who is an administrator", "request", requestID(req), "err", err.Error())
		}
		return nil, errNoKey
	}
	return r, nil
}

func (a *API) getKey(req *http.Request, who Caller) (answer, error) {
	r, err := a.mine(req, who)
	if err != nil {
		return answer{}, err
	}
	return answer{code: http.StatusOK, header: noStore(), body: a.show(r)}, nil
}

func (a *API) deleteKey(req *http.Request, who Caller) (answer, error) {
	r, err := a.mine(req, who)
	if err != nil {
		return answer{}, err
	}
	r, err = a.Store.Revoke(req.Context(), a.Tenant, r.ID, a.Now())
	switch {
	case errors.Is(err, keys.ErrNotFound):
		return answer{}, errNoKey
	case err != nil:
		return answer{}, err
	}
	a.Cache.Forget(r.ID) // here at once; elsewhere the database tells
	a.Log.Info("A key was revoked", "audit", true, "request", requestID(req), "id", r.ID, "by", who.Username)
	return ok(a.show(r)), nil
}

func noStore() map[string]string { return map[string]string{"Cache-Control": "no-store"} }
