// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/token"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

// version of the protocol that is spoken.
const version = "2022-11-02"

// method of authorization.
type method int

const (
	anonymous method = iota
	signature
	accessKey
	bearer
)

const answerLimit = 1 << 20

// signer adds credentials to requests.
type signer struct {
	account string
	share   bool
	how     method
	from    string // in words
	key     string
	tokens  *token.Cache
	now     func() time.Time
}

// newSigner takes the first credentials that are there: a signature in the address, a token, an identity, a key.
func newSigner(s *Source, c *transfer.Client, now func() time.Time) *signer {
	env := func(name string) string { return strings.TrimSpace(s.env(name)) }
	out := &signer{account: s.account, share: s.share, now: now, from: "no credentials"}
	id := identity{
		tenant: cmp.Or(env("AZURE_TENANT_ID"), env("AZ_TENANT_ID")), client: cmp.Or(env("AZURE_CLIENT_ID"), env("AZ_CLIENT_ID")),
		secret: cmp.Or(env("AZURE_CLIENT_SECRET"), env("AZ_CLIENT_SECRET")), file: env("AZURE_FEDERATED_TOKEN_FILE"),
		authority: cmp.Or(strings.TrimSuffix(env("AZURE_AUTHORITY_HOST"), "/"), "https://login.microsoftonline.com"),
		machine:   cmp.Or(strings.TrimSuffix(env("AZURE_POD_IDENTITY_AUTHORITY_HOST"), "/"), "http://169.254.169.254"),
		http:      c, now: now,
	}
	switch given := env("AZURE_ACCESS_TOKEN"); {
	case s.shared != nil:
		out.how, out.from = signature, "the signature in the address"
	case given != "":
		out.how, out.from = bearer, "AZURE_ACCESS_TOKEN of the secret"
		out.tokens = &token.Cache{Ask: func(context.Context) (token.Token, error) { return readGiven(given, env, now()) }}
	case id.client != "":
		out.how, out.from = bearer, "client "+id.client
		out.tokens = &token.Cache{Ask: id.ask}
	case env("AZURE_STORAGE_ACCESS_KEY") != "":
		out.how, out.from, out.key = accessKey, "AZURE_STORAGE_ACCESS_KEY of the secret", env("AZURE_STORAGE_ACCESS_KEY")
	}
	return out
}

// readGiven takes a token from the secret, if it is still good.
func readGiven(value string, env func(string) string, now time.Time) (token.Token, error) {
	seconds, err := strconv.ParseInt(env("AZURE_ACCESS_EXPIRES_ON_SECONDS"), 10, 64)
	if err == nil && time.Unix(seconds, 0).Before(now) {
		return token.Token{}, errors.New("AZURE_ACCESS_TOKEN of the secret has expired; put a new one there")
	}
	return token.Token{Value: value}, nil
}

func (s *signer) sign(ctx context.Context, request *http.Request) error {
	request.Header.Set("X-Ms-Version", version)
	switch s.how {
	case bearer:
		if s.share {
			request.Header.Set("X-Ms-File-Request-Intent", "backup")
		}
		return s.tokens.Sign(ctx, request)
	case accessKey:
		request.Header.Set("X-Ms-Date", s.now().UTC().Format(http.TimeFormat))
		authorization, err := sharedKey(request, s.account, s.key)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", authorization)
	}
	return nil
}

// sharedKey signs with the key of the account.
func sharedKey(request *http.Request, account, key string) (string, error) {
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return "", errors.New("AZURE_STORAGE_ACCESS_KEY of the secret is no key: it must be in base64; copy it again")
	}
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(stringToSign(request, account)))
	return "SharedKey " + account + ":" + base64.StdEncoding.EncodeToString(h.Sum(nil)), nil
}

func stringToSign(request *http.Request, account string) string {
	lines := []string{request.Method}
	for _, name := range []string{
		"Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
		"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
	} {
		lines = append(lines, request.Header.Get(name))
	}
	var own []string
	for name, values := range request.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-ms-") {
			own = append(own, lower+":"+strings.Join(values, ","))
		}
	}
	slices.Sort(own)
	lines = append(lines, own...)
	lines = append(lines, "/"+account+request.URL.EscapedPath())
	var parameters []string
	for name, values := range request.URL.Query() {
		slices.Sort(values)
		parameters = append(parameters, strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	slices.Sort(parameters)
	return strings.Join(append(lines, parameters...), "\n")
}

// identity is a client of Microsoft Entra, with a secret, with the token of a service account, or as the machine has it.
type identity struct {
	tenant, client, secret, file string
	authority, machine           string
	http                         *transfer.Client
	now                          func() time.Time
}

const resource = "https://storage.azure.com/"

func (i identity) ask(ctx context.Context) (token.Token, error) {
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {i.client}, "scope": {resource + ".default"}}
	switch {
	case i.secret != "":
		form.Set("client_secret", i.secret)
	case i.file != "":
		assertion, err := os.ReadFile(i.file)
		if err != nil {
			return token.Token{}, errors.New("the token of the service account for Azure cannot be read; check AZURE_FEDERATED_TOKEN_FILE")
		}
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", strings.TrimSpace(string(assertion)))
	default:
		return i.managed(ctx)
	}
	if i.tenant == "" {
		return token.Token{}, errors.New("AZURE_TENANT_ID is missing in the secret; add it")
	}
	body, _, err := i.http.Do(ctx, transfer.Request{
		Method: http.MethodPost, URL: i.authority + "/" + url.PathEscape(i.tenant) + "/oauth2/v2.0/token", Body: form.Encode(),
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
	}, answerLimit)
	if err != nil {
		return token.Token{}, fmt.Errorf("there is no token of Azure for client %s: %w", i.client, err)
	}
	return token.Read(body, i.now())
}

func (i identity) managed(ctx context.Context) (token.Token, error) {
	query := url.Values{"api-version": {"2018-02-01"}, "resource": {resource}, "client_id": {i.client}}
	body, _, err := i.http.Do(ctx, transfer.Request{
		URL: i.machine + "/metadata/identity/oauth2/token?" + query.Encode(), Header: http.Header{"Metadata": {"true"}},
	}, answerLimit)
	if err != nil {
		return token.Token{}, fmt.Errorf("there is no token of Azure for the managed identity %s: %w", i.client, err)
	}
	return token.Read(body, i.now())
}
