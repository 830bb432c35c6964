// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/modelplane/modelplane/internal/process"
)

// gate lets those read metrics whom the API server permits: it reviews the token, then the right to get the path.
// controller-runtime has such a filter too, which answers a wrong token with 500 and a line in the error log, so that
// anyone could fill the log; here it is 401 and silence.
type gate struct {
	who    authenticator.Request
	rights authorizer.Authorizer
}

// newGate asks as the manager. Answers are remembered for a short while, so that scraping costs next to nothing
// and a permission that is taken away ends soon.
func newGate(cfg *rest.Config, httpClient *http.Client) (*gate, error) {
	tokens, err := authenticationclient.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	permissions, err := authorizationclient.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	retry := &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 3}
	who, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserver.AnonymousAuthConfig{Enabled: false},
		TokenAccessReviewClient:  tokens,
		TokenAccessReviewTimeout: 10 * time.Second,
		WebhookRetryBackoff:      retry,
		CacheTTL:                 time.Minute,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("review tokens for metrics: %w", err)
	}
	rights, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: permissions,
		WebhookRetryBackoff:       retry,
		AllowCacheTTL:             time.Minute,
		DenyCacheTTL:              10 * time.Second,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("review permissions for metrics: %w", err)
	}
	return &gate{who: who, rights: rights}, nil
}

// may fits process.Authorizer.
func (g *gate) may(req *http.Request) error {
	known, ok, err := g.who.AuthenticateRequest(req)
	if err != nil || !ok {
		return &process.Refusal{Code: http.StatusUnauthorized, Message: "send a valid bearer token"}
	}
	user, verb, path := known.User.GetName(), strings.ToLower(req.Method), req.URL.Path
	decision, _, err := g.rights.Authorize(req.Context(), authorizer.AttributesRecord{User: known.User, Verb: verb, Path: path})
	if err != nil {
		return fmt.Errorf("ask the API server whether %s may: %w", user, err)
	}
	if decision != authorizer.DecisionAllow {
		return &process.Refusal{Code: http.StatusForbidden, Message: fmt.Sprintf("%s may not %s %s", user, verb, path)}
	}
	return nil
}
