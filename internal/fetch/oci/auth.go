// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/token"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
)

const answerLimit = 1 << 20

// auth gets access in the way that the registry asks for.
type auth struct {
	source *Source
	client *transfer.Client

	mu      sync.Mutex
	asked   bool
	basic   string
	bearers *token.Cache
}

func newAuth(s *Source, c *transfer.Client) *auth { return &auth{source: s, client: c} }

// sign adds what the registry wants to see. It is asked once.
func (a *auth) sign(ctx context.Context, request *http.Request) error {
	if err := a.ask(ctx); err != nil {
		return err
	}
	switch {
	case a.bearers != nil:
		return a.bearers.Sign(ctx, request)
	case a.basic != "":
		request.Header.Set("Authorization", "Basic "+a.basic)
	}
	return nil
}

func (a *auth) ask(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked {
		return nil
	}
	user, err := credentials(a.source.env("KSERVE_OCI_DOCKER_CONFIG"), a.source.registry)
	if err != nil {
		return err
	}
	_, header, err := a.client.Do(ctx, transfer.Request{URL: a.source.base + "/v2/"}, answerLimit)
	switch {
	case err == nil, transfer.Status(err) == http.StatusNotFound:
	case transfer.Status(err) != http.StatusUnauthorized:
		return err
	default:
		a.challenge(header.Get("Www-Authenticate"), user)
	}
	a.asked = true
	return nil
}

var parameter = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([a-z]+)="([^"]*)"`) })

// challenge reads how to log in.
func (a *auth) challenge(text, user string) {
	kind, rest, _ := strings.Cut(text, " ")
	if !strings.EqualFold(kind, "bearer") {
		a.basic = user
		return
	}
	values := map[string]string{}
	for _, m := range parameter().FindAllStringSubmatch(rest, -1) {
		values[m[1]] = m[2]
	}
	a.bearers = &token.Cache{Ask: func(ctx context.Context) (token.Token, error) { return a.exchange(ctx, values, user) }}
}

func (a *auth) exchange(ctx context.Context, values map[string]string, user string) (token.Token, error) {
	realm, err := url.Parse(values["realm"])
	if err != nil || realm.Scheme != "https" && !a.source.insecure {
		return token.Token{}, errors.New("the registry wants a login over an open connection; ask those who run it")
	}
	query := realm.Query()
	if service := values["service"]; service != "" {
		query.Set("service", service)
	}
	query.Set("scope", "repository:"+a.source.repository+":pull")
	realm.RawQuery = query.Encode()
	header := http.Header{}
	if user != "" {
		header.Set("Authorization", "Basic "+user)
	}
	body, _, err := a.client.Do(ctx, transfer.Request{URL: realm.String(), Header: header}, answerLimit)
	if err != nil {
		return token.Token{}, err
	}
	var old struct{ Token string } // the older name of the same
	if json.Unmarshal(body, &old) == nil && old.Token != "" {
		return token.Token{Value: old.Token, Expires: time.Now().Add(4 * time.Minute)}, nil
	}
	return token.Read(body, time.Now())
}

// credentials finds user and password for a registry in a configuration of Docker, as one word. Without a file there are none.
func credentials(file, registry string) (string, error) {
	if file == "" {
		return "", nil
	}
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	var config struct {
		Auths map[string]struct{ Auth, Username, Password string }
	}
	if err != nil || json.Unmarshal(content, &config) != nil { // the error would show a part of the secret
		return "", fmt.Errorf("the image pull secret cannot be read as a configuration of Docker; create it anew with kubectl create secret docker-registry")
	}
	for name, entry := range config.Auths {
		if host(name) != host(registry) {
			continue
		}
		if entry.Auth != "" {
			return entry.Auth, nil
		}
		if entry.Username != "" {
			return base64.StdEncoding.EncodeToString([]byte(entry.Username + ":" + entry.Password)), nil
		}
	}
	return "", nil
}

// host of an entry, which may have a scheme and a path; the hub has several names.
func host(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://")
	name, _, _ = strings.Cut(name, "/")
	switch name {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return name
}
