// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/modelplane/modelplane/internal/config"
)

func TestAnnotationsThatReachBeyondTheService(t *testing.T) {
	annotations := map[string]string{
		"nginx.ingress.kubernetes.io/server-snippet":  "x",
		"custom.example.com/location-snippets":        "x",
		"custom.example.com/server-alias":             "x",
		"nginx.ingress.kubernetes.io/auth-tls-secret": "x",
		"haproxy.org/auth-secret":                     "x",
		"example.com/auth-team":                       "x", // nobody's but the team's
		"snippet":                                     "x", // no controller reads a name without a prefix
		"nginx.ingress.kubernetes.io/rewrite-target":  "x",
	}
	cfg := config.Default()
	cfg.Ingress.AllowedAnnotations = []string{"haproxy.org/auth-*"}
	var got []string
	for _, r := range Refusals(annotations, cfg) {
		got = append(got, r.Annotation)
	}
	want := []string{"custom.example.com/location-snippets", "custom.example.com/server-alias",
		"nginx.ingress.kubernetes.io/auth-tls-secret", "nginx.ingress.kubernetes.io/server-snippet"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	cfg.Ingress.EnableGatewayAPI = true
	if got := Refusals(annotations, cfg); got != nil {
		t.Errorf("without an Ingress there are %v", got)
	}
}

// The list of the platform holds for an Ingress as it does for routes.
func TestIngressHasNoDisallowedAnnotation(t *testing.T) {
	cfg := config.Default()
	cfg.InferenceService.ServiceAnnotationDisallowedList = []string{"team.example.com/secret"}
	s := readStandard(t, []byte(`Service: {Name: iris, Namespace: team, Predictor: {Service: {metadata: {name: iris-predictor}}}}`)).Service
	s.Annotations = map[string]string{"team.example.com/secret": "x", "team.example.com/plain": "x"}
	objects, err := Objects(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	got := objects[0].(*networkingv1.Ingress).Annotations
	if diff := cmp.Diff(map[string]string{"team.example.com/plain": "x"}, got); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}
