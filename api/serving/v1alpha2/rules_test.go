// SPDX-License-Identifier: Apache-2.0

package v1alpha2_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

const definition = "../../../charts/modelplane/files/crds/serving.kserve.io_llminferenceservices.yaml"

// TestRules runs the rules of the shipped definition the way the API server does,
// for both versions and for the main and the prefill workload.
func TestRules(t *testing.T) {
	tests := []struct {
		name, workload, want string
	}{
		{"nothing set", `{}`, ""},
		{"replicas alone", `{replicas: 2}`, ""},
		{"scaling alone", `{scaling: {maxReplicas: 2, wva: {hpa: {}}}}`, ""},
		{
			"replicas and scaling", `{replicas: 2, scaling: {maxReplicas: 2, wva: {hpa: {}}}}`,
			"replicas and scaling exclude each other; remove replicas to scale automatically",
		},
		{"neither wva nor keda", `{scaling: {maxReplicas: 2}}`, "set exactly one of wva and keda"},
		{
			"wva and keda", `{scaling: {maxReplicas: 2, wva: {hpa: {}}, keda: {triggers: [{type: cron, metadata: {}}]}}}`,
			"set exactly one of wva and keda",
		},
		{
			"more at least than at most", `{scaling: {minReplicas: 3, maxReplicas: 2, wva: {hpa: {}}}}`,
			"minReplicas must not be greater than maxReplicas",
		},
		{"idle below the least", `{scaling: {minReplicas: 1, maxReplicas: 2, wva: {keda: {idleReplicaCount: 0}}}}`, ""},
		{"idle below the default", `{scaling: {maxReplicas: 2, wva: {keda: {idleReplicaCount: 0}}}}`, ""},
		{
			"idle not below the least", `{scaling: {minReplicas: 1, maxReplicas: 2, wva: {keda: {idleReplicaCount: 1}}}}`,
			"wva.keda.idleReplicaCount must be less than minReplicas",
		},
		{
			"idle not below the least, by triggers",
			`{scaling: {minReplicas: 2, maxReplicas: 4, keda: {idleReplicaCount: 2, triggers: [{type: cron, metadata: {}}]}}}`,
			"keda.idleReplicaCount must be less than minReplicas",
		},
		{"wva without an actor", `{scaling: {maxReplicas: 2, wva: {}}}`, "set exactly one of hpa and keda"},
		{"wva with two actors", `{scaling: {maxReplicas: 2, wva: {hpa: {}, keda: {}}}}`, "set exactly one of hpa and keda"},
		{"empty modifiers", `{scaling: {maxReplicas: 2, wva: {keda: {advanced: {scalingModifiers: {}}}}}}`, ""},
		{
			"modifiers under wva", `{scaling: {maxReplicas: 2, wva: {keda: {advanced: {scalingModifiers: {formula: a}}}}}}`,
			"remove advanced.scalingModifiers: the variant autoscaler computes the metric",
		},
		{
			"modifiers of the user's own triggers",
			`{scaling: {maxReplicas: 2, keda: {advanced: {scalingModifiers: {formula: a}}, triggers: [{type: cron, metadata: {}}]}}}`, "",
		},
		{
			"autoscaler name under wva",
			`{scaling: {maxReplicas: 2, wva: {keda: {advanced: {horizontalPodAutoscalerConfig: {name: mine}}}}}}`,
			"remove advanced.horizontalPodAutoscalerConfig.name: the controller names the autoscaler",
		},
	}
	for version, schema := range schemas(t) {
		validator := cel.NewValidator(schema, true, celconfig.PerCallLimit)
		for _, test := range tests {
			for _, place := range []string{"main", "prefill"} {
				t.Run(version+" "+place+" "+test.name, func(t *testing.T) {
					object := serviceWith(t, place, test.workload)
					defaulting.Default(object, schema)
					errs, _ := validator.Validate(t.Context(), field.NewPath(""), schema, object, nil, celconfig.RuntimeCELCostBudget)
					if have := messages(errs); have != test.want {
						t.Errorf("want %q, have %q", test.want, have)
					}
				})
			}
		}
	}
}

func serviceWith(t *testing.T, place, workload string) map[string]any {
	t.Helper()
	spec := map[string]any{}
	if err := utilyaml.Unmarshal([]byte(workload), &spec); err != nil {
		t.Fatal(err)
	}
	if place == "prefill" {
		spec = map[string]any{"prefill": spec}
	}
	return map[string]any{"spec": spec}
}

func messages(errs field.ErrorList) string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Detail)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// schemas returns the structural schema of each version in the shipped definition.
func schemas(t *testing.T) map[string]*structuralschema.Structural {
	t.Helper()
	raw, err := os.ReadFile(definition)
	if err != nil {
		t.Fatalf("%v\nrun: go run ./hack/crdgen", err)
	}
	var def apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &def); err != nil {
		t.Fatal(err)
	}
	out := map[string]*structuralschema.Structural{}
	for _, version := range def.Spec.Versions {
		props := &apiextensions.JSONSchemaProps{}
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, props, nil)
		if err != nil {
			t.Fatal(err)
		}
		if out[version.Name], err = structuralschema.NewStructural(props); err != nil {
			t.Fatal(err)
		}
	}
	if len(out) != 2 {
		t.Fatalf("want two versions in %s, have %d", definition, len(out))
	}
	return out
}
