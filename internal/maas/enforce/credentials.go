// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"net/http"
	"strings"
)

// credential is how a client says who it is.
type credential struct {
	kind credentialKind
	text string
}

type credentialKind int

const (
	nobody    credentialKind = iota // nothing was said
	ambiguous                       // more than one thing was said
	apiKey
	token
)

const (
	// KeyPrefix is how every API key begins.
	KeyPrefix = "sk-oai-"
	// maxCredential is the longest that is looked at.
	maxCredential = 16 << 10
)

// credentialOf reads them from Authorization, and an API key from X-Api-Key where Authorization has none. A header that
// comes twice with different values is no answer: the next one to read it could take the other.
func credentialOf(h http.Header) credential {
	bearer, ok := single(h.Values("Authorization"))
	if !ok {
		return credential{kind: ambiguous}
	}
	scheme, text, _ := strings.Cut(bearer, " ")
	if !strings.EqualFold(scheme, "bearer") {
		text = ""
	}
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, KeyPrefix) {
		return bounded(apiKey, text)
	}
	key, ok := single(h.Values("X-Api-Key"))
	switch {
	case !ok:
		return credential{kind: ambiguous}
	case strings.HasPrefix(key, KeyPrefix):
		return bounded(apiKey, key)
	case text == "":
		return credential{}
	}
	return bounded(token, text)
}

func bounded(kind credentialKind, text string) credential {
	if len(text) > maxCredential || strings.ContainsAny(text, " ,\t\r\n") {
		return credential{kind: ambiguous}
	}
	return credential{kind, text}
}

// single is the one value of a header; empty without one.
func single(values []string) (string, bool) {
	out := ""
	for i, v := range values {
		v = strings.TrimSpace(v)
		if i > 0 && v != out {
			return "", false
		}
		out = v
	}
	return out, true
}

// harmless headers of our family may come from clients: the subscription is theirs to choose, and the others are of old
// clients and mean nothing.
var harmless = map[string]bool{"x-maas-subscription": true, "x-maas-return-all-models": true, "x-maas-tenant": true}

// forged is a header by which a client says who it is, which is for the gateway to say. Servers behind it may take an
// underscore for a hyphen.
func forged(h http.Header) string {
	for name := range h {
		plain := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		if strings.HasPrefix(plain, "x-maas-") && (!harmless[plain] || strings.Contains(name, "_")) {
			return plain
		}
	}
	return ""
}

// subscriptionOf is what the client asks for: the last value that is not empty.
func subscriptionOf(h http.Header) string {
	values := h.Values("X-Maas-Subscription")
	for i := len(values) - 1; i >= 0; i-- {
		if v := strings.TrimSpace(values[i]); v != "" {
			return v
		}
	}
	return ""
}
