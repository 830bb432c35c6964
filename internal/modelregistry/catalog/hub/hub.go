// SPDX-License-Identifier: Apache-2.0

// Package hub reads models from a Hugging Face hub, or from something that answers like one. It asks for what it was told to
// and no more, and never lets the token it was given out of the requests: not into an error, not into a log.
package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
	"github.com/modelplane/modelplane/internal/modelregistry/catalog/sources"
)

// DefaultURL is where the hub is if nobody says otherwise, DefaultTokenVariable where its token is.
const (
	DefaultURL           = "https://huggingface.co"
	DefaultTokenVariable = "HF_API_KEY"
)

// Bounds of what is asked for and taken.
const (
	// DefaultModels is per pattern.
	DefaultModels = 500
	maxModels     = 10_000
	maxAnswer     = 8 << 20
	maxReadme     = 512 << 10
	page          = 100
	oneRequest    = 30 * time.Second
)

// Sync intervals.
const (
	DefaultInterval = 24 * time.Hour
	minInterval     = time.Minute
)

// Hub is one source of type hf.
type Hub struct {
	base  *url.URL
	token string
	// Interval is how often it is read.
	Interval time.Duration

	patterns  []pattern
	selection sources.Selection
	models    int
	client    *http.Client
}

// New understands a source. getenv finds the token.
func New(s sources.Source, getenv func(string) string) (*Hub, error) {
	h := &Hub{Interval: DefaultInterval, models: DefaultModels, client: &http.Client{Timeout: oneRequest}}
	if s.Kind != entry.Models {
		return nil, errors.New("the type hf has models only")
	}
	included, excluded := s.Included, s.Excluded
	if organization := s.Text("allowedOrganization"); organization != "" {
		included, excluded = within(organization, included), within(organization, excluded)
		if len(included) == 0 {
			included = []string{organization + "/*"}
		}
	}
	if len(included) == 0 {
		return nil, errors.New("includedModels must name models or organizations, such as org/model or org/*")
	}
	for _, one := range included {
		p, err := understand(one)
		if err != nil {
			return nil, err
		}
		h.patterns = append(h.patterns, p)
	}
	h.selection = sources.Selection{Included: included, Excluded: excluded}
	if err := h.settings(s); err != nil {
		return nil, err
	}
	variable := s.Text("apiKeyEnvVar")
	if variable == "" {
		variable = DefaultTokenVariable
	}
	// Anything else in that variable is somebody else's secret.
	if token := s.Text("apiKey"); strings.HasPrefix(token, "hf_") {
		h.token = token
	} else if token := getenv(variable); strings.HasPrefix(token, "hf_") {
		h.token = token
	}
	return h, nil
}

func (h *Hub) settings(s sources.Source) error {
	address := s.Text("url")
	if address == "" {
		address = DefaultURL
	}
	var err error
	if h.base, err = url.Parse(strings.TrimSuffix(address, "/")); err != nil || h.base.Host == "" || h.base.Scheme != "https" && h.base.Scheme != "http" || h.base.User != nil {
		return errors.New("url must be an address that begins with https://")
	}
	if interval := s.Text("syncInterval"); interval != "" {
		d, err := time.ParseDuration(interval)
		if err != nil || d <= 0 {
			return fmt.Errorf("syncInterval %q is no time such as 24h", interval)
		}
		h.Interval = max(d, minInterval)
	}
	for _, name := range []string{"maxModels", "modelLimit"} {
		value, ok := s.Properties[name]
		if !ok {
			continue
		}
		n, err := strconv.Atoi(fmt.Sprint(value))
		if err != nil || n < 0 {
			return fmt.Errorf("%s must be a number", name)
		}
		h.models = n
	}
	if h.models == 0 {
		h.models = maxModels
	}
	h.models = min(h.models, maxModels)
	return nil
}

// within puts patterns below an organization, so that nothing of another one is ever asked for.
func within(organization string, patterns []string) []string {
	out := make([]string, len(patterns))
	for i, p := range patterns {
		out[i] = organization + "/" + strings.TrimPrefix(p, organization+"/")
	}
	return out
}

// pattern is a model, or the models of an organization whose names begin so.
type pattern struct {
	model                string
	organization, prefix string
}

func understand(s string) (pattern, error) {
	s = strings.Trim(strings.TrimSpace(s), "/")
	organization, name, _ := strings.Cut(s, "/")
	switch {
	case organization == "" || strings.Contains(organization, "*") || strings.Contains(name, "/"),
		strings.Contains(strings.TrimSuffix(name, "*"), "*"), strings.HasSuffix(s, "/"):
		return pattern{}, fmt.Errorf("%q is none of org/model, org/* and org/prefix*; a whole hub cannot be listed", s)
	case strings.HasSuffix(name, "*"):
		return pattern{organization: organization, prefix: strings.TrimSuffix(name, "*")}, nil
	}
	return pattern{model: s}, nil
}

// answer is a status that is not 200.
type answer struct {
	code  int
	after time.Duration
}

func (a *answer) Error() string {
	switch a.code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("the hub answers %d; check the token and whether it may read this", a.code)
	case http.StatusTooManyRequests:
		return "the hub answers 429, too many requests; it is asked again later"
	}
	return fmt.Sprintf("the hub answers %d", a.code)
}

// pointless tells that further requests would get the same answer.
func pointless(err error) bool {
	a, ok := errors.AsType[*answer](err)
	return ok && (a.code == http.StatusTooManyRequests || a.code == http.StatusUnauthorized || a.code >= http.StatusInternalServerError)
}

// get asks for a path below the base. What the hub says about a failure is not passed on.
func (h *Hub) get(ctx context.Context, path string, query url.Values, limit int64) ([]byte, http.Header, error) {
	u := *h.base
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "/")+path, query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, nil, errors.New("the address of the hub cannot be used")
	}
	req.Header.Set("User-Agent", "modelplane-catalog")
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return nil, nil, fmt.Errorf("ask the hub: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, nil, &answer{code: resp.StatusCode, after: min(time.Duration(max(seconds, 0))*time.Second, time.Hour)}
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read what the hub answers: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, nil, fmt.Errorf("the hub answers with more than %d bytes", limit)
	}
	return data, resp.Header, nil
}

// RetryAfter is how long the hub wants to be left alone after a failure; 0 if it does not say.
func RetryAfter(err error) time.Duration {
	if a, ok := errors.AsType[*answer](err); ok {
		return a.after
	}
	return 0
}

// Names are the models that the patterns stand for, allowed or not, and the patterns that could not be looked up.
func (h *Hub) Names(ctx context.Context) (names, failed []string, err error) {
	for _, p := range h.patterns {
		if p.model != "" {
			names = append(names, p.model)
			continue
		}
		listed, err := h.list(ctx, p)
		if err != nil {
			if pointless(err) || ctx.Err() != nil {
				return nil, nil, err
			}
			failed = append(failed, fmt.Sprintf("%s/%s*: %v", p.organization, p.prefix, err))
			continue
		}
		names = append(names, listed...)
	}
	slices.Sort(names)
	return slices.Compact(names), failed, nil
}

func (h *Hub) list(ctx context.Context, p pattern) ([]string, error) {
	var names []string
	query := url.Values{"author": {p.organization}, "limit": {strconv.Itoa(page)}}
	if p.prefix != "" {
		query.Set("search", p.prefix)
	}
	for asked := 0; asked <= maxModels/page; asked++ {
		data, header, err := h.get(ctx, "/api/models", query, maxAnswer)
		if err != nil {
			return nil, err
		}
		var listed []struct{ ID, ModelID string }
		if err := json.Unmarshal(data, &listed); err != nil {
			return nil, errors.New("the hub answers with something that is no list of models")
		}
		for _, m := range listed {
			name := m.ID
			if name == "" {
				name = m.ModelID
			}
			organization, rest, _ := strings.Cut(name, "/")
			if !strings.EqualFold(organization, p.organization) || !strings.HasPrefix(strings.ToLower(rest), strings.ToLower(p.prefix)) {
				continue // a hub searches loosely
			}
			if names = append(names, name); len(names) == h.models {
				return names, nil
			}
		}
		cursor := nextCursor(header.Get("Link"))
		if cursor == "" || len(listed) == 0 {
			break
		}
		query.Set("cursor", cursor)
	}
	return names, nil
}

// nextCursor is in the header Link, in the address whose rel is next.
func nextCursor(link string) string {
	for _, one := range strings.Split(link, ",") {
		address, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(one), "<"), ">")
		if !ok || !strings.Contains(rest, `rel="next"`) {
			continue
		}
		if u, err := url.Parse(address); err == nil {
			return u.Query().Get("cursor")
		}
	}
	return ""
}

// Allows a model by its name.
func (h *Hub) Allows(name string) bool { return h.selection.Allows(name) }
