// SPDX-License-Identifier: Apache-2.0

// Package secrets reads and changes single Secrets of the pod's own namespace, with the pod's own account. It can neither
// list nor create: the chart makes the two Secrets that this program fills, and permits nothing else.
package secrets

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	account = "/var/run/secrets/kubernetes.io/serviceaccount"
	// mostBytes is more than a Secret can have in base64 with its metadata.
	mostBytes = 4 << 20
)

// ErrConflict says that the Secret is not any more what was read.
var ErrConflict = errors.New("somebody else changed the Secret meanwhile")

// Secret is what of one matters here.
type Secret struct {
	Version string
	Data    map[string][]byte
}

// Client speaks to the API server.
type Client struct {
	URL       string // of the API server
	Namespace string
	Token     func() (string, error)
	HTTP      *http.Client
}

// InCluster finds the API server where a pod finds it.
func InCluster(namespace string) (*Client, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this runs in a pod")
	}
	roots, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the account of the pod: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		return nil, errors.New("the account of the pod has no certificate of the API server's authority")
	}
	return &Client{
		URL: "https://" + net.JoinHostPort(host, port), Namespace: namespace, Token: podToken,
		HTTP: &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}},
	}, nil
}

// podToken is read each time, because the kubelet renews it.
func podToken() (string, error) {
	token, err := os.ReadFile(filepath.Join(account, "token"))
	return strings.TrimSpace(string(token)), err
}

// Get reads a Secret.
func (c *Client) Get(ctx context.Context, name string) (Secret, error) {
	return c.do(ctx, http.MethodGet, name, nil)
}

// Put sets some keys of the Secret and leaves the others. It answers ErrConflict when the Secret is not the one that was read.
func (c *Client) Put(ctx context.Context, name string, read Secret, data map[string][]byte) (Secret, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": read.Version}, "data": data})
	if err != nil {
		return Secret{}, err
	}
	return c.do(ctx, http.MethodPatch, name, body)
}

func (c *Client) do(ctx context.Context, method, name string, body []byte) (Secret, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+"/api/v1/namespaces/"+c.Namespace+"/secrets/"+name, bytes.NewReader(body))
	if err != nil {
		return Secret{}, err
	}
	token, err := c.Token()
	if err != nil {
		return Secret{}, fmt.Errorf("read the token of the pod's account: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := c.HTTP.Do(request)
	if err != nil {
		return Secret{}, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, mostBytes))
	if err != nil {
		return Secret{}, err
	}
	switch response.StatusCode {
	case http.StatusOK:
		return decode(answer)
	case http.StatusConflict:
		return Secret{}, ErrConflict
	}
	return Secret{}, fmt.Errorf("the API server answers %s to %s of Secret %s/%s: %s", response.Status, method, c.Namespace, name, messageOf(answer))
}

func decode(answer []byte) (Secret, error) {
	var object struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Data map[string][]byte `json:"data"`
	}
	if err := json.Unmarshal(answer, &object); err != nil {
		return Secret{}, errors.New("the API server answers with something that is no Secret")
	}
	return Secret{Version: object.Metadata.ResourceVersion, Data: object.Data}, nil
}

// messageOf is what a refusal says; it never has content of the Secret.
func messageOf(answer []byte) string {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &status) != nil || status.Message == "" {
		return "no reason is given"
	}
	return status.Message
}
