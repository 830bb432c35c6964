// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// ask is one thing that was asked of the API server, or that a rule permits to ask. The name is empty where a rule
// covers all names.
type ask struct{ group, resource, name, verb string }

func (a ask) String() string {
	out := a.verb + " " + a.resource
	if a.group != "" {
		out += "." + a.group
	}
	if a.name != "" {
		out += " " + a.name
	}
	return out
}

// wire stands between a process and the API server and notes what passes. It works on another process too, which a
// wrapped transport does not.
type wire struct {
	config *rest.Config // of the process

	mu      sync.Mutex
	asked   map[ask]bool
	refused []string
}

var requests = request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// listen returns a wire whose configuration carries the same credentials as cfg.
func listen(t *testing.T, cfg *rest.Config) *wire {
	t.Helper()
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(cfg.CAData) {
		t.Fatal("the API server's authority cannot be read")
	}
	w := &wire{asked: map[ask]bool{}}
	server := httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		FlushInterval:  -1, // events of a watch are passed on at once
		ModifyResponse: w.note,
		ErrorHandler:   func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	w.config = rest.CopyConfig(cfg)
	w.config.Host = server.URL
	w.config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return w
}

func (w *wire) note(response *http.Response) error {
	req := response.Request
	info, err := requests.NewRequestInfo(req)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized {
		w.refused = append(w.refused, fmt.Sprintf("%d: %s %s", response.StatusCode, req.Method, req.URL))
	}
	if info.IsResourceRequest {
		w.asked[ask{info.APIGroup, withSub(info.Resource, info.Subresource), info.Name, info.Verb}] = true
	}
	return nil
}

func withSub(resource, sub string) string {
	if sub == "" {
		return resource
	}
	return resource + "/" + sub
}

// seen returns what was refused and what was asked so far.
func (w *wire) seen() (refused []string, asked map[ask]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.refused), maps.Clone(w.asked)
}

// unused are the permissions that nothing asked made use of.
func unused(rules []rbacv1.PolicyRule, asked map[ask]bool) []string {
	var out []string
	for _, rule := range rules {
		for _, permitted := range permissions(rule) {
			needed := false
			for a := range asked {
				needed = needed || a.group == permitted.group && a.resource == permitted.resource &&
					a.verb == permitted.verb && (permitted.name == "" || permitted.name == a.name)
			}
			if !needed {
				out = append(out, permitted.String())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func permissions(rule rbacv1.PolicyRule) []ask {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var out []ask
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				for _, verb := range rule.Verbs {
					out = append(out, ask{group, resource, name, verb})
				}
			}
		}
	}
	return out
}

func TestUnused(t *testing.T) {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"mine"}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"list"}},
	}
	asked := map[ask]bool{{"", "secrets", "mine", "get"}: true, {"", "secrets", "other", "update"}: true, {"apps", "deployments", "x", "list"}: true}
	if got := strings.Join(unused(rules, asked), ", "); got != "update secrets mine" {
		t.Errorf("unused: %q", got)
	}
}
