// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// gate lets those read metrics whom the API server permits: it reviews the token, then the right to get the path.
// controller-runtime has such a filter too, which answers a wrong token with 500 and a line in the error log, so that
// anyone could fill the log; here it is 401 and silence.
type gate struct {
	who authenticator.Request
	may authorizer.Authorizer
}

// newGate fits metricsserver.Options. Answers are remembered for a short while, so that scraping costs next to nothing
// and a permission that is taken away ends soon.
func newGate(cfg *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
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
	may, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: permissions,
		WebhookRetryBackoff:       retry,
		AllowCacheTTL:             time.Minute,
		DenyCacheTTL:              10 * time.Second,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("review permissions for metrics: %w", err)
	}
	return gate{who: who, may: may}.filter, nil
}

func (g gate) filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path := req.URL.Path
		known, ok, err := g.who.AuthenticateRequest(req)
		if err != nil || !ok {
			log.V(1).Info("Refused a request without a valid token", "path", path)
			http.Error(w, "send a valid bearer token", http.StatusUnauthorized)
			return
		}
		verb := strings.ToLower(req.Method)
		decision, _, err := g.may.Authorize(req.Context(), authorizer.AttributesRecord{User: known.User, Verb: verb, Path: path})
		switch {
		case err != nil:
			log.Error(err, "The API server could not say who may read metrics", "user", known.User.GetName())
			http.Error(w, "the API server could not say whether this is permitted; try again", http.StatusServiceUnavailable)
		case decision != authorizer.DecisionAllow:
			log.V(1).Info("Refused a request without permission", "path", path, "user", known.User.GetName())
			http.Error(w, fmt.Sprintf("%s may not %s %s", known.User.GetName(), verb, path), http.StatusForbidden)
		default:
			next.ServeHTTP(w, req)
		}
	}), nil
}
