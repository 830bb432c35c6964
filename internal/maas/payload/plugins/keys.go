// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"context"
	"fmt"

	"github.com/modelplane/modelplane/internal/maas/payload/exchange"
)

// keys signs in at providers.
type keys struct{ world *World }

func newKeys(w *World) keys { return keys{w} }

// keyName is where a Secret holds a provider's key.
const keyName = "api-key"

// Request fails rather than ask a provider without a credential. No error names more than the Secret.
func (k keys) Request(_ context.Context, x *exchange.Exchange) error {
	p := x.Provider
	if p == nil {
		return nil
	}
	data, has := k.world.Directory.Credential(p.Auth.Secret)
	if !has {
		return fmt.Errorf("provider %s: Secret %s is not there, or not labelled for payload processing", p.Name, p.Auth.Secret)
	}
	switch p.Auth.Type {
	case "apikey", "simple":
		key := string(bytes.TrimSpace(data[keyName]))
		if key == "" {
			return fmt.Errorf("provider %s: Secret %s has no %s", p.Name, p.Auth.Secret, keyName)
		}
		name, value := keyHeader(p.Kind, key)
		x.Headers.Set(name, value)
		return nil
	}
	return fmt.Errorf("provider %s: sign-in of the type %s is not supported", p.Name, p.Auth.Type)
}

// keyHeader is where a provider looks for its key.
func keyHeader(kind, key string) (name, value string) {
	switch kind {
	case "anthropic":
		return "x-api-key", key
	case "azure", "azure-openai":
		return "api-key", key
	}
	return "authorization", "Bearer " + key
}
