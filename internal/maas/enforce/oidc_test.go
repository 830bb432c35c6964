// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// provider is an identity provider over a socket.
type provider struct {
	*httptest.Server
	rsa   *rsa.PrivateKey
	ec    *ecdsa.PrivateKey
	asked atomic.Int64
	gone  atomic.Bool
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	var err error
	if p.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	if p.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	point, err := p.ec.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.asked.Add(1)
		if p.gone.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": p.URL, "jwks_uri": p.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []map[string]string{
			{"kty": "RSA", "kid": "r", "use": "sig", "n": text(p.rsa.N.Bytes()), "e": "AQAB"},
			{"kty": "EC", "kid": "e", "crv": "P-256", "x": text(point[1:33]), "y": text(point[33:])},
			{"kty": "EC", "kid": "off", "crv": "P-256", "x": text(point[1:33]), "y": text(point[1:33])},
			{"kty": "oct", "kid": "o", "k": "c2VjcmV0"},
		}})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// sign makes a token.
func (p *provider) sign(t *testing.T, algorithm, kid string, claims map[string]any) string {
	t.Helper()
	head, err := json.Marshal(map[string]string{"alg": algorithm, "kid": kid})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(body)
	digest := sha256.Sum256([]byte(signed))
	var signature []byte
	switch algorithm {
	case "RS256":
		signature, err = rsa.SignPKCS1v15(rand.Reader, p.rsa, crypto.SHA256, digest[:])
	case "PS256":
		signature, err = rsa.SignPSS(rand.Reader, p.rsa, crypto.SHA256, digest[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	case "ES256":
		r, s, failed := ecdsa.Sign(rand.Reader, p.ec, digest[:])
		err = failed
		signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func TestOIDC(t *testing.T) {
	p := newProvider(t)
	at := time.Now()
	o, err := NewOIDC(p.Client(), p.URL, "our-client", 5*time.Minute, &house{})
	if err != nil {
		t.Fatal(err)
	}
	o.now = func() time.Time { return at }
	claims := func(change map[string]any) map[string]any {
		out := map[string]any{"iss": p.URL, "sub": "id", "preferred_username": "erin", "azp": "our-client", "aud": "account", "exp": at.Add(time.Minute).Unix(), "groups": []string{"/org/team"}}
		for k, v := range change {
			if out[k] = v; v == nil {
				delete(out, k)
			}
		}
		return out
	}
	erin := Identity{Username: "erin", Groups: []string{"/org/team", "system:authenticated"}}
	good := p.sign(t, "RS256", "r", claims(nil))
	for name, c := range map[string]struct {
		token string
		want  Identity
		err   error
	}{
		"signed with RSA":                  {good, erin, nil},
		"signed with RSA in the other way": {p.sign(t, "PS256", "r", claims(nil)), erin, nil},
		"signed with a curve":              {p.sign(t, "ES256", "e", claims(nil)), erin, nil},
		"without a name":                   {p.sign(t, "RS256", "r", claims(map[string]any{"preferred_username": nil})), Identity{Username: "id", Groups: erin.Groups}, nil},
		"for our client by its audience":   {p.sign(t, "RS256", "r", claims(map[string]any{"azp": nil, "aud": []string{"x", "our-client"}})), erin, nil},
		"for another client":               {p.sign(t, "RS256", "r", claims(map[string]any{"azp": "another"})), Identity{}, ErrRefused},
		"for another, with our audience":   {p.sign(t, "RS256", "r", claims(map[string]any{"azp": "another", "aud": "our-client"})), Identity{}, ErrRefused},
		"for nobody":                       {p.sign(t, "RS256", "r", claims(map[string]any{"azp": nil})), Identity{}, ErrRefused},
		"for nobody at all":                {p.sign(t, "RS256", "r", claims(map[string]any{"azp": nil, "aud": nil})), Identity{}, ErrRefused},
		"expired":                          {p.sign(t, "RS256", "r", claims(map[string]any{"exp": at.Add(-time.Minute).Unix()})), Identity{}, ErrUnknown},
		"without an end":                   {p.sign(t, "RS256", "r", claims(map[string]any{"exp": nil})), Identity{}, ErrUnknown},
		"not yet good":                     {p.sign(t, "RS256", "r", claims(map[string]any{"nbf": at.Add(time.Minute).Unix()})), Identity{}, ErrUnknown},
		"with another key's name":          {p.sign(t, "RS256", "e", claims(nil)), Identity{}, ErrUnknown},
		"with an unknown key":              {p.sign(t, "RS256", "x", claims(nil)), Identity{}, ErrUnknown},
		"with a key that is none":          {p.sign(t, "ES256", "off", claims(nil)), Identity{}, ErrUnknown},
		"with a shared secret":             {p.sign(t, "HS256", "o", claims(nil)), Identity{}, ErrUnknown},
		"not signed":                       {p.sign(t, "none", "r", claims(nil)), Identity{}, ErrUnknown},
		"changed":                          {good[:len(good)-8] + "AAAAAAAA", Identity{}, ErrUnknown},
		"of another provider":              {p.sign(t, "RS256", "r", claims(map[string]any{"iss": "https://another"})), Identity{}, ErrUnknown},
		"named like the cluster's own":     {p.sign(t, "RS256", "r", claims(map[string]any{"preferred_username": "system:admin"})), Identity{}, ErrRefused},
		"with a subject like that":         {p.sign(t, "RS256", "r", claims(map[string]any{"preferred_username": nil, "sub": "Kube:admin"})), Identity{}, ErrRefused},
		"in a group of the cluster":        {p.sign(t, "RS256", "r", claims(map[string]any{"groups": []string{"/org/team", "system:masters"}})), Identity{}, ErrRefused},
		"in a group of its installer":      {p.sign(t, "RS256", "r", claims(map[string]any{"groups": []string{"kubeadm:cluster-admins"}})), Identity{}, ErrRefused},
		"of the cluster":                   {goodToken, Identity{Username: "bob", Groups: []string{"staff", "system:authenticated"}}, nil},
	} {
		who, err := o.Review(t.Context(), c.token)
		if !errors.Is(err, c.err) || err == nil && !cmp.Equal(c.want, who) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
	if n := p.asked.Load(); n != 1 {
		t.Errorf("the provider was asked %d times; tokens that name unknown keys must not make it more", n)
	}
	p.gone.Store(true)
	at = at.Add(40 * time.Second)
	if _, err := o.Review(t.Context(), p.sign(t, "RS256", "r", claims(nil))); err != nil {
		t.Errorf("keys are known for a while: %v", err)
	}
	at = at.Add(5 * time.Minute)
	if _, err := o.Review(t.Context(), p.sign(t, "RS256", "r", claims(nil))); err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrRefused) {
		t.Errorf("the provider is gone: %v", err)
	}
	if _, err := NewOIDC(p.Client(), "http://elsewhere", "c", 0, nil); err == nil {
		t.Error("a provider without TLS")
	}
}

func FuzzOIDC(f *testing.F) {
	o, err := NewOIDC(http.DefaultClient, "https://127.0.0.1:1", "c", time.Hour, nil)
	if err != nil {
		f.Fatal(err)
	}
	o.asked, o.now = time.Now(), time.Now
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovLzEyNy4wLjAuMToxIn0.AAAA")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if who, err := o.Review(t.Context(), token); err == nil {
			t.Fatalf("let in: %+v", who)
		}
	})
}

// FuzzJWK: whatever a provider shows as its keys, there is one that signatures can be checked with, or none.
func FuzzJWK(f *testing.F) {
	f.Add("RSA", "", "AQAB", "AQAB", "", "")
	f.Add("EC", "P-256", "", "", "AAAA", "AAAA")
	f.Fuzz(func(t *testing.T, kind, curve, n, e, x, y string) {
		key := jwk{Kind: kind, Curve: curve, N: n, E: e, X: x, Y: y}.public()
		for _, algorithm := range []string{"RS256", "PS256", "ES256", "ES384", "ES512"} {
			if isSigned(key, algorithm, crypto.SHA256, make([]byte, 32), []byte(n+x)) {
				t.Fatalf("%s: nothing was signed", algorithm)
			}
		}
	})
}
