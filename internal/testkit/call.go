// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Call is what a request asks of the API server. Verbs are those of RBAC, and
// "apply" for a patch that is a server-side apply.
type Call struct {
	Verb string
	// Group is empty for the core group.
	Group string
	// Resource is the plural; for requests that are not about a resource, as
	// discovery and health, it is the path.
	Resource    string
	Subresource string
}

// Target names what the call is about: pods, apps/deployments,
// apps/deployments/status, /apis/apps/v1.
func (c Call) Target() string {
	name := c.Resource
	if c.Group != "" {
		name = c.Group + "/" + name
	}
	if c.Subresource != "" {
		name += "/" + c.Subresource
	}
	return name
}

// mutating are the verbs that change something on the server.
var mutating = []string{"create", "update", "patch", "apply", "delete", "deletecollection"}

// Mutating tells whether the verb changes something.
func (c Call) Mutating() bool { return slices.Contains(mutating, c.Verb) }

// lease tells whether the call is a sign of life of a leader or a node, which
// follows the clock and not the work.
func (c Call) lease() bool { return c.Group == "coordination.k8s.io" && c.Resource == "leases" }

// requestInfo reads paths with the eyes of the server itself.
var requestInfo = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

func callOf(req *http.Request) Call {
	info, err := requestInfo.NewRequestInfo(req)
	if err != nil || !info.IsResourceRequest {
		return Call{Verb: strings.ToLower(req.Method), Resource: req.URL.Path}
	}
	call := Call{Verb: info.Verb, Group: info.APIGroup, Resource: info.Resource, Subresource: info.Subresource}
	if call.Verb == "patch" && strings.HasPrefix(req.Header.Get("Content-Type"), "application/apply-patch+") {
		call.Verb = "apply"
	}
	return call
}

// roundTripper is a function that carries out a request.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// wrap returns a copy of cfg whose requests pass through around, which is given
// the call and the way on to the server.
func wrap(cfg *rest.Config, around func(call Call, req *http.Request, next http.RoundTripper) (*http.Response, error)) *rest.Config {
	wrapped := rest.CopyConfig(cfg)
	wrapped.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			return around(callOf(req), req, next)
		})
	})
	return wrapped
}
