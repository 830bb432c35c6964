// SPDX-License-Identifier: Apache-2.0

// Package token keeps the access tokens that storages hand out for credentials, and asks for new ones in time.
package token

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Token is what goes behind "Bearer"; an empty one means that requests go without.
type Token struct {
	Value   string
	Expires time.Time // zero for never
}

// Cache renews a token before it expires.
type Cache struct {
	// Ask gets a new one.
	Ask func(ctx context.Context) (Token, error)
	// Now is the clock; time.Now when nil.
	Now func() time.Time

	mu   sync.Mutex
	have *Token
}

// early is how long before it expires a token is renewed.
const early = 2 * time.Minute

// Sign puts the token into a request.
func (c *Cache) Sign(ctx context.Context, request *http.Request) error {
	t, err := c.get(ctx)
	if err == nil && t.Value != "" {
		request.Header.Set("Authorization", "Bearer "+t.Value)
	}
	return err
}

func (c *Cache) get(ctx context.Context) (Token, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	if c.have != nil && (c.have.Expires.IsZero() || now().Add(early).Before(c.have.Expires)) {
		return *c.have, nil
	}
	t, err := c.Ask(ctx)
	if err != nil {
		return Token{}, err
	}
	c.have = &t
	return t, nil
}

// Read understands the answer of a token endpoint, which all clouds give in the same form.
func Read(body []byte, now time.Time) (Token, error) {
	var answer struct {
		Token   string          `json:"access_token"`
		Seconds json.RawMessage `json:"expires_in"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Token == "" {
		return Token{}, errors.New("the answer has no token")
	}
	var seconds json.Number // some write it as a text
	if json.Unmarshal([]byte(strings.Trim(string(answer.Seconds), `"`)), &seconds) != nil {
		seconds = "0"
	}
	lifetime, err := seconds.Float64()
	if err != nil || lifetime <= 0 {
		lifetime = 300
	}
	return Token{answer.Token, now.Add(time.Duration(lifetime) * time.Second)}, nil
}
