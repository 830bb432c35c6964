// SPDX-License-Identifier: Apache-2.0

// Package access asks the API server whether a request may be answered: who the bearer of a token is, and whether they may
// get a Service. It is what a proxy in front of a server would do, without the proxy.
package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/process"
)

// How long an answer of the API server is believed, and how many are kept. A token that was withdrawn is accepted so much
// longer; one that was refused is asked for again sooner.
const (
	believeYes = time.Minute
	believeNo  = 5 * time.Second
	keep       = 4096
	askTime    = 10 * time.Second
	maxToken   = 16 << 10
)

// Reviewer decides about requests for one Service.
type Reviewer struct {
	client             kubernetes.Interface
	namespace, service string
	now                func() time.Time

	mu    sync.Mutex
	known map[[sha256.Size]byte]verdict
}

type verdict struct {
	refusal *process.Refusal // nil: permitted
	until   time.Time
}

// New asks the API server of a configuration about a Service, given as namespace/name.
func New(config *rest.Config, service string) (*Reviewer, error) {
	namespace, name, found := strings.Cut(service, "/")
	if !found || namespace == "" || name == "" {
		return nil, fmt.Errorf("the Service whose readers may call is %q; it must be namespace/name", service)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Reviewer{client: client, namespace: namespace, service: name, now: time.Now, known: map[[sha256.Size]byte]verdict{}}, nil
}

// May is a process.Authorizer.
func (r *Reviewer) May(req *http.Request) error {
	token, found := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !found || token == "" {
		return &process.Refusal{Code: http.StatusUnauthorized, Message: "a bearer token is needed"}
	}
	if len(token) > maxToken {
		return &process.Refusal{Code: http.StatusUnauthorized, Message: "the bearer token is too long"}
	}
	key := sha256.Sum256([]byte(token))
	if v, ok := r.recall(key); ok {
		return v.err()
	}
	ctx, cancel := context.WithTimeout(req.Context(), askTime)
	defer cancel()
	refusal, err := r.ask(ctx, token)
	if err != nil {
		return err
	}
	v := verdict{refusal, r.now().Add(believeYes)}
	if refusal != nil {
		v.until = r.now().Add(believeNo)
	}
	r.remember(key, v)
	return v.err()
}

func (v verdict) err() error {
	if v.refusal == nil {
		return nil
	}
	return v.refusal
}

func (r *Reviewer) recall(key [sha256.Size]byte) (verdict, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.known[key]
	if ok && !r.now().Before(v.until) {
		delete(r.known, key)
		return v, false
	}
	return v, ok
}

func (r *Reviewer) remember(key [sha256.Size]byte, v verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for old := range r.known { // any will do: whoever is forgotten is asked for again
		if len(r.known) < keep {
			break
		}
		delete(r.known, old)
	}
	r.known[key] = v
}

// ask takes two calls: who is it, and may they.
func (r *Reviewer) ask(ctx context.Context, token string) (*process.Refusal, error) {
	review, err := r.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the API server whose token it is: %w", err)
	}
	if !review.Status.Authenticated {
		return &process.Refusal{Code: http.StatusUnauthorized, Message: "the bearer token is not valid"}, nil
	}
	user := review.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	allowed, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: r.namespace, Verb: "get", Version: "v1", Resource: "services", Name: r.service},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the API server what the bearer of the token may: %w", err)
	}
	if !allowed.Status.Allowed {
		return &process.Refusal{
			Code: http.StatusForbidden, Message: fmt.Sprintf("%s may not get the Service %s in the namespace %s, which is needed to call this server", user.Username, r.service, r.namespace),
		}, nil
	}
	return nil, nil //nolint:nilnil // nothing is refused, and nothing wrong
}

// Handler lets through who may; with a nil Reviewer, everybody.
func (r *Reviewer) Handler(next http.Handler, open func(*http.Request) bool, tell func(w http.ResponseWriter, code int, message string), failed func(error)) http.Handler {
	if r == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if open(req) {
			next.ServeHTTP(w, req)
			return
		}
		err := r.May(req)
		refusal, refused := errors.AsType[*process.Refusal](err)
		switch {
		case err == nil:
			next.ServeHTTP(w, req)
		case refused:
			if refusal.Code == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			tell(w, refusal.Code, refusal.Message)
		default:
			failed(err)
			tell(w, http.StatusServiceUnavailable, "it cannot be told whether this is permitted; try again")
		}
	})
}
