// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha256" // hashes of signatures
	_ "crypto/sha512" // hashes of signatures
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// OIDC checks tokens of one identity provider, and leaves all others to somebody else. A token must be signed by a key of the
// provider, be of this time, and be made for our client: its azp is the client, or, where it has none, the client is in its
// audience. A token that says neither is refused.
type OIDC struct {
	issuer, clientID string
	client           *http.Client
	refresh          time.Duration
	next             Tokens
	now              func() time.Time

	asking singleflight.Group

	mu    sync.Mutex
	keys  map[string]crypto.PublicKey
	asked time.Time
	// failed is when the provider did not answer last: not every request waits for that.
	failed time.Time
}

const (
	// askTime is how long the provider may take.
	askTime = 5 * time.Second
	// leastRefresh is how long keys are not asked for again, whatever tokens name.
	leastRefresh = 10 * time.Second
	// skew is how far clocks may be apart.
	skew = 30 * time.Second
	// maxDocument of a provider, and keys in it.
	maxDocument, maxKeys = 1 << 20, 100
	minRSA               = 2048
)

// NewOIDC asks for the provider's keys when a token needs them, and again after refresh. Tokens of others go to next, which may
// be nil.
func NewOIDC(client *http.Client, issuer, clientID string, refresh time.Duration, next Tokens) (*OIDC, error) {
	if !strings.HasPrefix(issuer, "https://") && !strings.HasPrefix(issuer, "http://127.0.0.1:") || clientID == "" {
		return nil, errors.New("an identity provider needs an address with https:// and the name of our client")
	}
	return &OIDC{issuer: issuer, clientID: clientID, client: client, refresh: max(refresh, leastRefresh), next: next, now: time.Now}, nil
}

// claims that are read.
type claims struct {
	Issuer    string   `json:"iss"`
	Subject   string   `json:"sub"`
	Name      string   `json:"preferred_username"`
	Party     *string  `json:"azp"`
	Audience  audience `json:"aud"`
	Expires   *float64 `json:"exp"`
	NotBefore *float64 `json:"nbf"`
	Groups    []string `json:"groups"`
}

// audience is one text or several.
type audience []string

func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// Review is of Tokens.
func (o *OIDC) Review(ctx context.Context, token string) (Identity, error) {
	parts := strings.Split(token, ".")
	var c claims
	if len(parts) != 3 || part(parts[1], &c) != nil || c.Issuer != o.issuer {
		if o.next == nil {
			return Identity{}, ErrUnknown
		}
		return o.next.Review(ctx, token)
	}
	if err := o.verify(ctx, parts); err != nil {
		return Identity{}, err
	}
	now := float64(o.now().Unix())
	if c.Expires == nil || now >= *c.Expires+skew.Seconds() || c.NotBefore != nil && now < *c.NotBefore-skew.Seconds() {
		return Identity{}, ErrUnknown
	}
	if c.Party != nil && *c.Party != o.clientID || c.Party == nil && !slices.Contains(c.Audience, o.clientID) {
		return Identity{}, ErrRefused
	}
	who := Identity{Username: c.Name, Groups: authenticated(c.Groups)}
	if who.Username == "" {
		who.Username = c.Subject
	}
	if reserved(who.Username) || slices.ContainsFunc(c.Groups, reserved) {
		return Identity{}, ErrRefused
	}
	return who, nil
}

// reserved tells names that are the cluster's own to give: with one of them, people of an identity provider would have what its
// accounts and administrators have.
func reserved(name string) bool {
	name = strings.ToLower(strings.TrimSpace(name))
	return slices.ContainsFunc([]string{"system:", "kube:", "kubeadm:"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// part reads one of the three.
func part(text string, into any) error {
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, into)
}

var hashes = map[string]crypto.Hash{
	"RS256": crypto.SHA256, "RS384": crypto.SHA384, "RS512": crypto.SHA512, "PS256": crypto.SHA256, "PS384": crypto.SHA384, "PS512": crypto.SHA512,
	"ES256": crypto.SHA256, "ES384": crypto.SHA384, "ES512": crypto.SHA512,
}

// verify checks the signature. How it is made is for the key to say and not for the token: there is no way without one.
func (o *OIDC) verify(ctx context.Context, parts []string) error {
	var head struct {
		Algorithm string   `json:"alg"`
		KeyID     string   `json:"kid"`
		Critical  []string `json:"crit"`
	}
	if part(parts[0], &head) != nil || len(head.Critical) > 0 {
		return ErrUnknown
	}
	hash, ok := hashes[head.Algorithm]
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if !ok || err != nil {
		return ErrUnknown
	}
	key, err := o.key(ctx, head.KeyID)
	if err != nil {
		return err
	}
	h := hash.New()
	h.Write([]byte(parts[0] + "." + parts[1]))
	if !isSigned(key, head.Algorithm, hash, h.Sum(nil), signature) {
		return ErrUnknown
	}
	return nil
}

func isSigned(key crypto.PublicKey, algorithm string, hash crypto.Hash, digest, signature []byte) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		switch algorithm[:2] {
		case "RS":
			return rsa.VerifyPKCS1v15(k, hash, digest, signature) == nil
		case "PS":
			return rsa.VerifyPSS(k, hash, digest, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
		}
	case *ecdsa.PublicKey:
		size := (k.Curve.Params().BitSize + 7) / 8
		if algorithm != map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[k.Curve.Params().BitSize] || len(signature) != 2*size {
			return false
		}
		return ecdsa.Verify(k, digest, new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:]))
	}
	return false
}

// key of a name. One that is not known is asked for, but not again and again; keys that are old are replaced. Whoever shows a key
// that is known does not wait for those who ask.
func (o *OIDC) key(ctx context.Context, id string) (crypto.PublicKey, error) {
	key, due, err := o.known(id)
	if key != nil || err != nil {
		return key, err
	}
	if due {
		fetched := o.asking.DoChan("", func() (any, error) { return nil, o.renew(context.WithoutCancel(ctx)) })
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case r := <-fetched:
			if r.Err != nil {
				return nil, fmt.Errorf("ask the identity provider for its keys: %w", r.Err)
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if key := o.keys[id]; key != nil {
		return key, nil
	}
	return nil, ErrUnknown
}

// known is a key that may be used as it is; else, whether it is time to ask.
func (o *OIDC) known(id string) (key crypto.PublicKey, due bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	age := o.now().Sub(o.asked)
	if key := o.keys[id]; key != nil && age < o.refresh {
		return key, false, nil
	}
	if !o.asked.IsZero() && age < leastRefresh {
		return nil, false, nil
	}
	if !o.failed.IsZero() && o.now().Sub(o.failed) < time.Second {
		return nil, false, errors.New("the identity provider does not show its keys")
	}
	return nil, true, nil
}

// renew asks for all keys.
func (o *OIDC) renew(ctx context.Context) error {
	found, err := o.fetch(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.failed = o.now()
		return err
	}
	o.keys, o.asked, o.failed = found, o.now(), time.Time{}
	return nil
}

// jwk is a key as providers show it.
type jwk struct {
	Kind  string `json:"kty"`
	ID    string `json:"kid"`
	Use   string `json:"use"`
	Curve string `json:"crv"`
	N     string `json:"n"`
	E     string `json:"e"`
	X     string `json:"x"`
	Y     string `json:"y"`
}

func (o *OIDC) fetch(ctx context.Context) (map[string]crypto.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var about struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := o.get(ctx, strings.TrimSuffix(o.issuer, "/")+"/.well-known/openid-configuration", &about); err != nil {
		return nil, err
	}
	if about.Issuer != o.issuer || !strings.HasPrefix(about.Keys, "https://") && !strings.HasPrefix(about.Keys, "http://127.0.0.1:") {
		return nil, errors.New("its description is of another provider, or its keys are not behind https://")
	}
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := o.get(ctx, about.Keys, &set); err != nil {
		return nil, err
	}
	out := map[string]crypto.PublicKey{}
	for _, k := range set.Keys[:min(len(set.Keys), maxKeys)] {
		if key := k.public(); key != nil && (k.Use == "" || k.Use == "sig") {
			out[k.ID] = key
		}
	}
	return out, nil
}

func (o *OIDC) get(ctx context.Context, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers with status %d", resp.StatusCode)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxDocument)).Decode(into)
}

// public is the key itself; nil for one that is of no use, or weak.
func (k jwk) public() crypto.PublicKey {
	number := func(text string) *big.Int {
		plain, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(plain) == 0 {
			return nil
		}
		return new(big.Int).SetBytes(plain)
	}
	switch k.Kind {
	case "RSA":
		n, e := number(k.N), number(k.E)
		if n == nil || e == nil || n.BitLen() < minRSA || n.BitLen() > 4*minRSA || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 {
			return nil
		}
		return &rsa.PublicKey{N: n, E: int(e.Int64())}
	case "EC":
		curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[k.Curve]
		x, y := number(k.X), number(k.Y)
		if curve == nil || x == nil || y == nil {
			return nil
		}
		bits := curve.Params().BitSize
		size := (bits + 7) / 8
		if x.BitLen() > bits || y.BitLen() > bits {
			return nil
		}
		point := slices.Concat([]byte{4}, x.FillBytes(make([]byte, size)), y.FillBytes(make([]byte, size)))
		key, err := ecdsa.ParseUncompressedPublicKey(curve, point)
		if err != nil { // it is no point of the curve
			return nil
		}
		return key
	}
	return nil
}
