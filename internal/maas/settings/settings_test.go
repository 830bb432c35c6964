// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFromEnv(t *testing.T) {
	usual := Settings{
		Namespace: "models", GatewayName: "maas-default-gateway", GatewayNamespace: "openshift-ingress", InfraNamespace: "models",
		SubscriptionNamespace: "models-as-a-service", TenantNamespace: "ai-tenants", MetadataTTL: 60, AuthorizationTTL: 60,
		Audience: "https://kubernetes.default.svc",
	}
	with := func(edit func(*Settings)) Settings {
		s := usual
		edit(&s)
		return s
	}
	for name, c := range map[string]struct {
		namespace string
		env       map[string]string
		want      Settings
		fails     bool
	}{
		"nothing said":    {namespace: "models", want: usual},
		"known namespace": {namespace: "opendatahub", want: with(func(s *Settings) { s.Namespace, s.InfraNamespace = "opendatahub", "odh-ai-gateway-infra" })},
		"auto":            {namespace: "models", env: map[string]string{EnvInfraNamespace: "AUTO"}, want: usual},
		"authorization is not believed for longer": {
			namespace: "models", env: map[string]string{EnvMetadataTTL: "5"},
			want: with(func(s *Settings) { s.MetadataTTL, s.AuthorizationTTL = 5, 5 }),
		},
		"nothing is believed": {
			namespace: "models", env: map[string]string{EnvMetadataTTL: "0", EnvAuthorizationTTL: "9"},
			want: with(func(s *Settings) { s.MetadataTTL, s.AuthorizationTTL = 0, 0 }),
		},
		"only the default tenant": {namespace: "models", env: map[string]string{EnvDiscovery: "false"}, want: with(func(s *Settings) { s.OnlyDefault = true })},
		"no number":               {namespace: "models", env: map[string]string{EnvMetadataTTL: "1m"}, fails: true},
		"negative":                {namespace: "models", env: map[string]string{EnvAuthorizationTTL: "-1"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FromEnv(func(key string) string { return c.env[key] }, c.namespace)
			if (err != nil) != c.fails {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(c.want, got); !c.fails && diff != "" {
				t.Error(diff)
			}
		})
	}
}
