// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/subtle"
	"crypto/x509"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/maas/pass"
)

// headerGateway is how a gateway without a client certificate shows who it is.
const headerGateway = "X-MaaS-Gateway-Token"

// GatewayTrust recognises a gateway: by a certificate that was checked in the handshake and is in one of some names, or by a
// secret that it shares with this server. Without names and secret nobody is one.
type GatewayTrust struct {
	// Names in the certificate; "*" for any that the authorities signed.
	Names []string
	// Secret gives the shared one, empty for none.
	Secret func() string
}

// Is fits Identity.
func (g GatewayTrust) Is(req *http.Request) bool {
	if hasName(req, g.Names) {
		return true
	}
	if g.Secret == nil {
		return false
	}
	secret, shown := g.Secret(), req.Header.Get(headerGateway)
	return secret != "" && subtle.ConstantTimeCompare([]byte(secret), []byte(shown)) == 1
}

// hasName tells whether the client has shown a certificate in one of some names.
func hasName(req *http.Request, names []string) bool {
	if req.TLS == nil || len(req.TLS.VerifiedChains) == 0 || len(names) == 0 {
		return false
	}
	return slices.ContainsFunc(certified(req.TLS.PeerCertificates[0]), func(n string) bool { return matches(names, n) })
}

func certified(c *x509.Certificate) []string {
	out := slices.Clone(c.DNSNames)
	for _, u := range c.URIs {
		out = append(out, u.String())
	}
	if c.Subject.CommonName != "" {
		out = append(out, c.Subject.CommonName)
	}
	return out
}

// matches tells whether a name fits one of some patterns, in which * stands for anything without a slash or colon.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if p == "*" {
			return true
		}
		ok, err := path.Match(strings.ReplaceAll(p, ":", "/"), strings.ReplaceAll(name, ":", "/"))
		return ok && err == nil
	})
}

// InternalTrust decides who may use the internal routes: a client certificate in one of some names, a token of a
// Kubernetes account among some, or, for what is asked about each request, a pass.
type InternalTrust struct {
	Names, Accounts []string
	Review          Reviewer
	// Pass tells whether a pass is good now; nil: none is.
	Pass func(shown string) bool
}

// May fits API.Internal.
func (t InternalTrust) May(req *http.Request) error {
	if hasName(req, t.Names) {
		return nil
	}
	if shown := req.Header.Values(pass.Header); len(shown) > 0 {
		return t.byPass(req, shown)
	}
	token, shown := bearer(req)
	if !shown || token == "" || t.Review == nil || strings.HasPrefix(token, "sk-") {
		return unauthenticated("a client certificate or a token of a Kubernetes account is needed")
	}
	who, err := t.Review(req.Context(), token)
	switch {
	case err != nil:
		return &problem{answer: cannotTell(req), cause: err}
	case who == nil:
		return unauthenticated("the bearer token is not valid")
	case !matches(t.Accounts, who.Username):
		return told(http.StatusForbidden, who.Username+" may not use the internal routes; name it in --internal-accounts if it should")
	}
	return nil
}

// byPass lets through who only asks. A pass is shown where many can read it, and opens nothing that changes anything.
func (t InternalTrust) byPass(req *http.Request, shown []string) error {
	switch {
	case t.Pass == nil || len(shown) != 1 || !t.Pass(shown[0]):
		return unauthenticated("the pass is not good, or is no longer")
	case req.Method != http.MethodPost || req.URL.Path != pathValidate && req.URL.Path != pathSelect:
		return told(http.StatusForbidden, "a pass opens only "+pathValidate+" and "+pathSelect)
	}
	return nil
}
