// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Why a request is refused, in the words that clients of the known router find in the header.
const (
	headerReason = "X-Forbidden-Reason"

	reasonNothing   = "No credentials were provided"
	reasonKind      = "Only Bearer tokens are supported"
	reasonUnknown   = "The provided token is unauthenticated"
	reasonForbidden = "Access to the InferenceGraph is not allowed"
)

// accountDir is where every pod has who it is itself.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// Bounds of asking the API server, and how long a token that was let through is let through without asking: who loses the
// right loses it that much later.
const (
	reviewTime  = 10 * time.Second
	reviewBytes = 1 << 20
	reviewsNow  = 32
	mostWaiting = 1000
	mostToken   = 64 << 10
	allowedFor  = 10 * time.Second
	mostAllowed = 1000
)

// Access lets those call who may get the InferenceGraph. Whose token it is, and what that one may do, it asks the API server,
// as the pod's own service account, which needs the role system:auth-delegator.
type Access struct {
	api, dir, namespace, graph string
	client                     *http.Client
	asking                     chan struct{}
	waiting                    atomic.Int64
	now                        func() time.Time

	mu      sync.Mutex
	allowed map[[sha256.Size]byte]time.Time // by tokens, until when
}

// NewAccess reads who the pod is from a directory, and asks the API server at an address.
func NewAccess(api, dir, graph string) (*Access, error) {
	if graph == "" {
		return nil, errors.New("--enable-auth needs --inferencegraph-name, the graph that callers must be allowed to get")
	}
	namespace, err := os.ReadFile(filepath.Join(dir, "namespace"))
	if err != nil {
		return nil, fmt.Errorf("read which namespace this is: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read whom the API server is known by: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("there is no certificate in %s", filepath.Join(dir, "ca.crt"))
	}
	return &Access{
		api: strings.TrimSuffix(api, "/"), dir: dir, namespace: strings.TrimSpace(string(namespace)), graph: graph,
		client: &http.Client{
			Timeout: reviewTime,
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, TLSHandshakeTimeout: reviewTime,
				MaxIdleConnsPerHost: reviewsNow, IdleConnTimeout: idleTime,
			},
			// A token goes where it was meant to go.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		asking: make(chan struct{}, reviewsNow), now: time.Now, allowed: map[[sha256.Size]byte]time.Time{},
	}, nil
}

// apiServer is where pods find the API server.
func apiServer(getenv func(string) string) (string, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return "", errors.New("--enable-auth works in a pod only: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT say where the API server is, and are not set")
	}
	return "https://" + net.JoinHostPort(host, port), nil
}

// refusal is why a request is not let through: our reason, and what the API server says of it.
type refusal []string

func (r refusal) Error() string { return r[0] }

// check lets a request through, or returns a refusal, or another error when nobody could say.
func (a *Access) check(req *http.Request) error {
	kind, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	switch {
	case kind == "":
		return refusal{reasonNothing}
	case !strings.EqualFold(kind, "Bearer"):
		return refusal{reasonKind}
	case token == "" || len(token) > mostToken:
		return refusal{reasonUnknown}
	}
	digest := sha256.Sum256([]byte(token))
	if a.known(digest) {
		return nil
	}
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > mostWaiting {
		return failf(http.StatusServiceUnavailable, "there are %d requests already of which it is not known whether they are allowed; try again later", mostWaiting)
	}
	select {
	case a.asking <- struct{}{}:
		defer func() { <-a.asking }()
	case <-req.Context().Done():
		return context.Cause(req.Context())
	}
	if a.known(digest) { // somebody has asked meanwhile
		return nil
	}
	if err := a.review(req.Context(), token); err != nil {
		return err
	}
	a.remember(digest)
	return nil
}

func (a *Access) known(digest [sha256.Size]byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now().Before(a.allowed[digest])
}

func (a *Access) remember(digest [sha256.Size]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if len(a.allowed) >= mostAllowed {
		for old, until := range a.allowed {
			if !now.Before(until) {
				delete(a.allowed, old)
			}
		}
	}
	if len(a.allowed) < mostAllowed {
		a.allowed[digest] = now.Add(allowedFor)
	}
}

// The few fields of the reviews that are needed.
type (
	tokenReview struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       struct {
			Token string `json:"token"`
		} `json:"spec"`
		Status struct {
			Authenticated bool   `json:"authenticated"`
			Error         string `json:"error"`
			User          struct {
				Username string `json:"username"`
			} `json:"user"`
		} `json:"status,omitzero"`
	}
	accessReview struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       struct {
			User       string             `json:"user"`
			Attributes resourceAttributes `json:"resourceAttributes"`
		} `json:"spec"`
		Status struct {
			Allowed         bool   `json:"allowed"`
			Reason          string `json:"reason"`
			EvaluationError string `json:"evaluationError"`
		} `json:"status,omitzero"`
	}
	resourceAttributes struct {
		Namespace string `json:"namespace"`
		Verb      string `json:"verb"`
		Group     string `json:"group"`
		Version   string `json:"version"`
		Resource  string `json:"resource"`
		Name      string `json:"name"`
	}
)

// review asks whose a token is, and whether that one may get the graph. As with the known router it is the name that counts,
// and not the groups that it is in.
func (a *Access) review(ctx context.Context, token string) error {
	who := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	who.Spec.Token = token
	if err := a.ask(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", &who); err != nil {
		return fmt.Errorf("ask the API server whose a token is: %w", err)
	}
	if !who.Status.Authenticated || who.Status.User.Username == "" {
		return refuse(reasonUnknown, who.Status.Error)
	}
	may := accessReview{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"}
	may.Spec.User = who.Status.User.Username
	may.Spec.Attributes = resourceAttributes{a.namespace, "get", "serving.kserve.io", "v1alpha1", "inferencegraphs", a.graph}
	if err := a.ask(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &may); err != nil {
		return fmt.Errorf("ask the API server who may call the graph: %w", err)
	}
	if !may.Status.Allowed {
		return refuse(reasonForbidden, may.Status.Reason, may.Status.EvaluationError)
	}
	return nil
}

func refuse(reason string, more ...string) refusal {
	out := refusal{reason}
	for _, one := range more {
		if one != "" {
			out = append(out, one)
		}
	}
	return out
}

// ask sends a review and reads it back with its status. Errors say nothing of what was sent.
func (a *Access) ask(ctx context.Context, path string, review any) error {
	own, err := os.ReadFile(filepath.Join(a.dir, "token")) // which is replaced while the pod lives
	if err != nil {
		return err
	}
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.api+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(own)))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, reviewBytes))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if response.StatusCode != http.StatusCreated && response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %d: %s", response.StatusCode, messageOf(text))
	}
	if err := json.Unmarshal(text, review); err != nil {
		return errors.New("its answer is no review")
	}
	return nil
}

// messageOf is what the API server says of an error.
func messageOf(text []byte) string {
	var status struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(text, &status) // without one, the code has to do
	return cmp.Or(status.Message, "it gives no reason")
}

// Guard lets requests through to the graph that may, before anything of them is read.
func (r *Router) Guard(access *Access) http.Handler {
	if access == nil {
		return r
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		err := access.check(req)
		denied, refused := errors.AsType[refusal](err)
		switch {
		case err == nil:
			r.ServeHTTP(w, req)
		case req.Context().Err() != nil: // nobody is there to hear it
		case refused:
			r.metrics.denied.Inc()
			for _, reason := range denied {
				w.Header().Add(headerReason, reason)
			}
			w.WriteHeader(http.StatusUnauthorized)
		case statusOf(err) == http.StatusServiceUnavailable:
			r.metrics.refused.Inc()
			fail(w, err)
		default:
			r.complain(err)
			fail(w, failf(http.StatusInternalServerError, "it cannot be told whether this request is allowed; see the log of the router"))
		}
	})
}
