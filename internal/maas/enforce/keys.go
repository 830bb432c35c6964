// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/modelplane/modelplane/internal/maas/enforce/recall"
	"github.com/modelplane/modelplane/internal/maas/keys"
)

// CheckedBy lets a cache of keys in this process check them.
func CheckedBy(c *keys.Cache) Keys { return checkedBy{c} }

type checkedBy struct{ cache *keys.Cache }

func (c checkedBy) Validate(ctx context.Context, key string) (Identity, error) {
	v, err := c.cache.Validate(ctx, key)
	switch {
	case err != nil:
		return Identity{}, err
	case !v.Valid || v.Record == nil:
		return Identity{}, ErrRefused
	}
	r := v.Record
	return Identity{Username: r.Username, Groups: r.Groups, Subscription: r.Subscription, KeyID: r.ID, KeyName: r.Name}, nil
}

// RemoteKeys asks the server of the API about keys, as gateways do. An answer is believed for half a second, so that a key that
// was revoked is refused within one.
type RemoteKeys struct {
	client *http.Client
	url    string
	tenant string
	memo   *recall.Memory[Identity]
}

// believeKey is half of the time in which a revoked key must be refused everywhere: the server itself needs a part of it.
const believeKey = 500 * time.Millisecond

// maxAnswer of the server.
const maxAnswer = 1 << 20

// NewRemoteKeys asks at the address of the server's internal questions, with a client that shows who we are.
func NewRemoteKeys(client *http.Client, address, tenant string) *RemoteKeys {
	return &RemoteKeys{client: client, url: strings.TrimSuffix(address, "/") + "/internal/v1/api-keys/validate", tenant: tenant, memo: recall.New[Identity]()}
}

// Validate is of Keys.
func (r *RemoteKeys) Validate(ctx context.Context, key string) (Identity, error) {
	if _, err := keys.Parse(key); err != nil { // nobody has to be asked about what is no key
		return Identity{}, ErrRefused
	}
	return r.memo.Get(ctx, key, func(ctx context.Context) recall.Answer[Identity] {
		who, err := r.ask(ctx, key)
		if err != nil && err != ErrRefused { //nolint:errorlint // it is our own, as it is
			return recall.Answer[Identity]{Err: err}
		}
		return recall.Answer[Identity]{Value: who, Err: err, Good: err == nil, For: believeKey}
	})
}

// validation is what the server says of a key.
type validation struct {
	Valid        bool     `json:"valid"`
	Username     string   `json:"username"`
	KeyID        string   `json:"keyId"`
	KeyName      string   `json:"keyName"`
	Groups       []string `json:"groups"`
	Subscription string   `json:"subscription"`
	Tenant       string   `json:"tenant"`
}

// ask believes only an answer that is one: whatever else comes from the address is no permission and no refusal.
func (r *RemoteKeys) ask(ctx context.Context, key string) (Identity, error) {
	body, err := json.Marshal(map[string]string{"key": key})
	if err != nil {
		return Identity{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return Identity{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return Identity{}, fmt.Errorf("ask the server of API keys: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Identity{}, fmt.Errorf("ask the server of API keys: %w", err)
	}
	var v validation
	switch {
	case resp.StatusCode != http.StatusOK:
		return Identity{}, fmt.Errorf("the server of API keys answers with status %d", resp.StatusCode)
	case json.Unmarshal(text, &v) != nil || !bytes.Contains(text, []byte(`"valid"`)):
		return Identity{}, fmt.Errorf("the server of API keys answers what nobody understands")
	case !v.Valid || v.Tenant != r.tenant:
		return Identity{}, ErrRefused
	}
	return Identity{Username: v.Username, Groups: v.Groups, Subscription: v.Subscription, KeyID: v.KeyID, KeyName: v.KeyName}, nil
}
