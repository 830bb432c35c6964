// SPDX-License-Identifier: Apache-2.0

package gcs

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/token"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

const (
	scope       = "https://www.googleapis.com/auth/devstorage.read_only"
	answerLimit = 1 << 20
)

// account is the content of a credentials file.
type account struct {
	Type         string `json:"type"`
	Email        string `json:"client_email"`
	Key          string `json:"private_key"`
	KeyID        string `json:"private_key_id"`
	TokenURI     string `json:"token_uri"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	RefreshToken string `json:"refresh_token"`
}

// credentials asks for tokens in the name of the account in the file, or of the machine; without either there are none.
type credentials struct {
	env    func(string) string
	client *transfer.Client
	now    func() time.Time
	from   string // in words
	scope  string // empty: only to read
}

// entry is the account in the entry of the storage secret, where that has one.
func (c *credentials) entry() (account, bool) {
	var a account
	if json.Unmarshal([]byte(c.env("STORAGE_CONFIG")), &a) != nil || a.Type != "gcs" || a.Key == "" {
		return a, false
	}
	a.Type = "service_account"
	return a, true
}

func (c *credentials) ask(ctx context.Context) (token.Token, error) {
	if a, ok := c.entry(); ok {
		return c.tokenOf(ctx, a, "the entry of the storage secret")
	}
	file := c.env("GOOGLE_APPLICATION_CREDENTIALS")
	if file == "" {
		return c.machine(ctx)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return token.Token{}, fmt.Errorf("the credentials file %s cannot be read; check the secret that it comes from", file)
	}
	var a account
	if json.Unmarshal(content, &a) != nil { // the error would show a part of the secret
		return token.Token{}, fmt.Errorf("the credentials file %s is no JSON object; put the key of a service account there", file)
	}
	return c.tokenOf(ctx, a, "the credentials file "+file)
}

// tokenOf asks in the name of an account, and says where that came from when it cannot be used.
func (c *credentials) tokenOf(ctx context.Context, a account, where string) (token.Token, error) {
	switch a.Type {
	case "service_account":
		c.from = "the service account " + a.Email
		assertion, err := a.assertion(c.now(), cmp.Or(c.scope, scope))
		if err != nil {
			return token.Token{}, err
		}
		return c.exchange(ctx, a, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}})
	case "authorized_user":
		c.from = "the user of the secret"
		return c.exchange(ctx, a, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {a.RefreshToken},
			"client_id": {a.ClientID}, "client_secret": {a.ClientSecret}})
	}
	return token.Token{}, fmt.Errorf("%s has type %q, which is not supported; use the key of a service account", where, a.Type)
}

func (c *credentials) exchange(ctx context.Context, a account, form url.Values) (token.Token, error) {
	body, _, err := c.client.Do(ctx, transfer.Request{
		Method: http.MethodPost, URL: cmp.Or(a.TokenURI, "https://oauth2.googleapis.com/token"), Body: form.Encode(),
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
	}, answerLimit)
	if err != nil {
		return token.Token{}, fmt.Errorf("there is no token of Google for %s: %w", c.from, err)
	}
	return token.Read(body, c.now())
}

// assertion is a claim of the account about itself, signed with its key.
func (a account) assertion(now time.Time, scope string) (string, error) {
	block, _ := pem.Decode([]byte(a.Key))
	if block == nil {
		return "", errors.New("the private key of the service account is not in PEM form; download its key again")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return "", errors.New("the private key of the service account cannot be read; download its key again")
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return "", errors.New("the private key of the service account is no RSA key; download its key again")
	}
	header, err := json.Marshal(map[string]string{"alg": "RS256", "typ": "JWT", "kid": a.KeyID})
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": a.Email, "scope": scope, "aud": cmp.Or(a.TokenURI, "https://oauth2.googleapis.com/token"),
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(claims)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	if err != nil {
		return "", errors.New("the private key of the service account cannot sign; download its key again")
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// machine asks the metadata service, which only machines of Google have; elsewhere requests go without a token.
func (c *credentials) machine(ctx context.Context) (token.Token, error) {
	host := cmp.Or(c.env("GCE_METADATA_HOST"), "169.254.169.254")
	body, err := c.client.Once(ctx, transfer.Request{
		URL:    "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/token",
		Header: http.Header{"Metadata-Flavor": {"Google"}},
	}, answerLimit, 2*time.Second)
	if err == nil {
		if t, err := token.Read(body, c.now()); err == nil {
			c.from = "the identity of the pod"
			return t, nil
		}
	}
	c.from = "no credentials"
	return token.Token{}, ctx.Err()
}
