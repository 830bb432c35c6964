// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		OfTenant("maas-api", DefaultTenant):            "maas-api",
		OfTenant("maas-api", "red"):                    "maas-api-red",
		TenantNamespace(DefaultTenant, "models"):       "models",
		TenantOf("models", "models"):                   DefaultTenant,
		TenantOf("ai-tenant-red", "models"):            "red",
		TenantOf("stray", "models"):                    "",
		TenantOf("ai-tenant-"+DefaultTenant, "models"): "",
		TenantNamespace("red", "models"):               "ai-tenant-red",
		GatewayAuthPolicy("door", true):                "maas-gateway-auth",
		GatewayAuthPolicy("door", false):               "door-maas-auth",
		GatewayDeny("red"):                             "gateway-default-deny-red",
		RateLimitPolicy("llama"):                       "maas-trlp-llama",
		SubscriptionKey("red", "gold", "llm", "m"):     "red/gold@llm/m",
		LimitKey("red", "gold", "m"):                   "red-gold-m-tokens",
		LimitKey("a-b", "c", "m"):                      LimitKey("a", "b-c", "m"),
		RateLimitPolicy(strings.Repeat("m", 253))[:10]: "maas-trlp-",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if DistinctLimitKey("a-b", "c", "llm", "m") == DistinctLimitKey("a", "b-c", "llm", "m") {
		t.Error("two subscriptions have the same distinct key")
	}
	if n := len(RateLimitPolicy(strings.Repeat("m", 253))); n != 253 {
		t.Errorf("a name of %d characters", n)
	}
}
