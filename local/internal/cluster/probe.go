// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// probe is a question whose answer tells whether a process is ready.
type probe struct {
	// url is the place to ask. Of a unix:// socket it is enough that somebody listens.
	url string
	// ca and cert are the names of the key pairs to use; both are empty for plain HTTP.
	ca, cert string
	// want, when set, must be part of the answer.
	want string
}

// client never goes through a proxy: everything it asks is on this machine.
func (pr probe) client(p pki) (*http.Client, error) {
	var config *tls.Config
	if pr.ca != "" {
		var err error
		if config, err = p.client(pr.ca, pr.cert); err != nil {
			return nil, err
		}
	}
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: config, Proxy: nil},
	}, nil
}

// check is nil when the answer is 200 and holds what is wanted.
func (pr probe) check(ctx context.Context, client *http.Client) error {
	if path, ok := strings.CutPrefix(pr.url, "unix://"); ok {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	body, err := pr.get(ctx, client)
	if err != nil {
		return err
	}
	if !bytes.Contains(body, []byte(pr.want)) {
		return fmt.Errorf("%s does not say %q yet", pr.url, pr.want)
	}
	return nil
}

// get returns an answer that is 200.
func (pr probe) get(ctx context.Context, client *http.Client) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, pr.url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %.200s", pr.url, resp.Status, bytes.TrimSpace(body))
	}
	return body, nil
}
