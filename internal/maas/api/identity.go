// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/maas/enforce"
	"github.com/modelplane/modelplane/internal/maas/keys"
)

// Headers of identities, which gateways set.
const (
	headerUsername     = "X-MaaS-Username"
	headerGroup        = "X-MaaS-Group"
	headerSubscription = "X-MaaS-Subscription"
)

// Caller is who asks; nobody if the name is empty.
type Caller struct {
	Username string
	Groups   []string
	// ByKey tells that an API key was shown, which is bound to Subscription.
	ByKey        bool
	Subscription string
}

// Reviewer tells whose token it is: nil for nobody's, enforce.ErrRefused for one that is not good here.
type Reviewer func(ctx context.Context, token string) (*Caller, error)

// Identity finds out who asks.
type Identity struct {
	Cache *keys.Cache
	// Review is nil where there is no Kubernetes to ask.
	Review Reviewer
	// Gateway tells whether a request comes from a gateway that has shown who it is; nil: none does.
	Gateway func(*http.Request) bool
}

// Of a request. Without any credentials it is nobody, unless somebody is needed.
func (i *Identity) Of(req *http.Request, needed bool) (Caller, error) {
	if i.Gateway != nil && i.Gateway(req) {
		return fromGateway(req, needed)
	}
	token, shown := bearer(req)
	switch {
	case !shown && needed:
		return Caller{}, unauthenticated("Authentication required")
	case !shown:
		return Caller{}, nil
	case strings.HasPrefix(token, keys.Prefix):
		return i.byKey(req, token)
	case i.Review == nil:
		return Caller{}, unauthenticated("the bearer token is not valid")
	}
	who, err := i.Review(req.Context(), token)
	switch {
	case errors.Is(err, enforce.ErrRefused):
		return Caller{}, told(http.StatusForbidden, "the token was not made for this service, or names who only the cluster may name")
	case err != nil:
		return Caller{}, &problem{answer: cannotTell(req), cause: err}
	case who == nil:
		return Caller{}, unauthenticated("the bearer token is not valid")
	}
	who.Groups = withAuthenticated(who.Groups)
	return *who, nil
}

func cannotTell(req *http.Request) answer {
	const message = "it cannot be told who you are; try again in a moment"
	out := told(http.StatusServiceUnavailable, message).answer
	if isNested(req.URL.Path) {
		out = nested(http.StatusServiceUnavailable, message, "server_error").answer
	}
	out.header = map[string]string{"Retry-After": "1"}
	return out
}

func (i *Identity) byKey(req *http.Request, token string) (Caller, error) {
	v, err := i.Cache.Validate(req.Context(), token)
	switch {
	case err != nil:
		return Caller{}, err
	case !v.Valid && v.Reason != keys.ReasonNoSubscription:
		return Caller{}, unauthenticated("the API key is not valid: " + v.Reason)
	case !v.Valid:
		return Caller{}, nested(http.StatusForbidden, "API key has no subscription bound", "permission_error")
	}
	return Caller{Username: v.Record.Username, Groups: v.Record.Groups, ByKey: true, Subscription: v.Record.Subscription}, nil
}

// unauthenticated has the shape that clients know for identities that are not there.
func unauthenticated(message string) *problem {
	p := authFailure(http.StatusUnauthorized, message, "001")
	p.header = map[string]string{"WWW-Authenticate": "Bearer"}
	return p
}

func authFailure(code int, message, ref string) *problem {
	return &problem{answer: answer{code: code, body: map[string]string{"error": message, "exceptionCode": "AUTH_FAILURE", "refId": ref}}}
}

// bearer token of a request, or the API key in the header that clients of messages use.
func bearer(req *http.Request) (string, bool) {
	header := req.Header.Get("Authorization")
	if scheme, token, ok := strings.Cut(header, " "); ok && strings.EqualFold(scheme, "Bearer") && strings.TrimSpace(token) != "" {
		return strings.TrimSpace(token), true
	}
	if key := strings.TrimSpace(req.Header.Get("X-Api-Key")); header == "" && strings.HasPrefix(key, keys.Prefix) {
		return key, true
	}
	return "", header != ""
}

// fromGateway reads the headers that a gateway has set.
func fromGateway(req *http.Request, needed bool) (Caller, error) {
	const message = "Exception thrown while generating token"
	name, groups := strings.TrimSpace(req.Header.Get(headerUsername)), strings.TrimSpace(req.Header.Get(headerGroup))
	switch {
	case name == "" && groups == "" && !needed:
		return Caller{}, nil
	case name == "":
		return Caller{}, authFailure(http.StatusInternalServerError, message, "001")
	case groups == "":
		return Caller{}, authFailure(http.StatusInternalServerError, message, "002")
	}
	list, err := parseGroups(groups)
	if err != nil {
		return Caller{}, authFailure(http.StatusInternalServerError, message, "003")
	}
	token, _ := bearer(req)
	return Caller{Username: name, Groups: list, ByKey: strings.HasPrefix(token, keys.Prefix), Subscription: lastOf(req, headerSubscription)}, nil
}

// maxGroups bounds what a header may make us look up.
const maxGroups = 1000

// parseGroups understands a JSON array of texts, or a list with spaces in brackets.
func parseGroups(text string) ([]string, error) {
	var out []string
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		inner, opens := strings.CutPrefix(text, "[")
		inner, closes := strings.CutSuffix(inner, "]")
		if !opens || !closes || strings.ContainsAny(inner, `"[]{}`) {
			return nil, errors.New("the groups are no JSON array and no list in brackets")
		}
		out = strings.Fields(inner)
	}
	if len(out) > maxGroups {
		return nil, fmt.Errorf("there are %d groups", len(out))
	}
	return out, nil
}

// withAuthenticated adds the group of everybody who has a token.
func withAuthenticated(groups []string) []string {
	const everybody = "system:authenticated"
	if slices.Contains(groups, everybody) {
		return groups
	}
	return append(slices.Clone(groups), everybody)
}

// lastOf is the last value of a header that is not empty: a gateway adds behind what clients say.
func lastOf(req *http.Request, header string) string {
	for _, v := range slices.Backward(req.Header.Values(header)) {
		if v = strings.TrimSpace(v); v != "" {
			return v
		}
	}
	return ""
}
