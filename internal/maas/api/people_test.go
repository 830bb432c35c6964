// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/maas/enforce"
)

// TestPeopleOfAProvider: who an identity provider vouches for may use the API, without a name or a group of the cluster's own;
// tokens of others are shown to the cluster as ever.
func TestPeopleOfAProvider(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString
	var issuer string
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": issuer, "jwks_uri": issuer + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []map[string]string{{"kty": "RSA", "kid": "r", "n": text(key.N.Bytes()), "e": "AQAB"}}})
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	issuer = server.URL
	sign := func(change func(map[string]any)) string {
		claims := map[string]any{"iss": issuer, "sub": "id", "preferred_username": "erin", "azp": "client", "exp": time.Now().Add(time.Hour).Unix(), "groups": []string{"/org/team"}}
		change(claims)
		body, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		signed := text([]byte(`{"alg":"RS256","kid":"r"}`)) + "." + text(body)
		digest := sha256.Sum256([]byte(signed))
		signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
		if err != nil {
			t.Fatal(err)
		}
		return signed + "." + text(signature)
	}
	cluster := func(_ context.Context, token string) (*Caller, error) {
		if token == "of-the-cluster" {
			return &Caller{Username: "system:serviceaccount:a:b"}, nil
		}
		return nil, nil
	}
	options := enforce.OIDCOptions{Issuer: issuer, ClientID: "client", Refresh: time.Minute}
	if err := options.Check(); err != nil {
		t.Fatal(err)
	}
	review, err := reviewerOf(options, cluster)
	if err != nil {
		t.Fatal(err)
	}
	identity := &Identity{Review: review}
	for name, c := range map[string]struct {
		token string
		user  string
		code  int
	}{
		"somebody":               {sign(func(map[string]any) {}), "erin", 0},
		"of the cluster":         {"of-the-cluster", "system:serviceaccount:a:b", 0},
		"nobody's":               {"nobody's", "", http.StatusUnauthorized},
		"expired":                {sign(func(c map[string]any) { c["exp"] = 1 }), "", http.StatusUnauthorized},
		"for another client":     {sign(func(c map[string]any) { c["azp"] = "another" }), "", http.StatusForbidden},
		"a name of the cluster":  {sign(func(c map[string]any) { c["preferred_username"] = "system:admin" }), "", http.StatusForbidden},
		"a group of the cluster": {sign(func(c map[string]any) { c["groups"] = []string{"system:masters"} }), "", http.StatusForbidden},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/models", http.NoBody)
		req.Header.Set("Authorization", "Bearer "+c.token)
		who, err := identity.Of(req, true)
		p, _ := err.(*problem) //nolint:errorlint // it is one, or nothing
		if who.Username != c.user || c.code == 0 && err != nil || c.code != 0 && (p == nil || p.code != c.code) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
}
