// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	webhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
)

// settings for the examples: tokens are mounted, so that only those that are
// about tokens show them.
func settings(t testing.TB, change func(*config.Config)) config.Source {
	t.Helper()
	cfg, problems := config.Parse(map[string]string{
		"security":         `{"autoMountServiceAccountToken": true}`,
		"inferenceService": `{"resource": {"cpuRequest": "1", "cpuLimit": "2", "memoryRequest": "1Gi", "memoryLimit": "2Gi"}}`,
	}, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if change != nil {
		change(cfg)
	}
	return config.Static(cfg)
}

const filled = `resources: {requests: {cpu: "1", memory: 1Gi}, limits: {cpu: "2", memory: 2Gi}}`

func TestDefaults(t *testing.T) {
	mode := func(name string) func(*config.Config) {
		return func(c *config.Config) { c.Deploy.DefaultDeploymentMode = name }
	}
	inDoubt := func(c *config.Config) { c.Unusable = []config.Problem{{Key: config.KeyDeploy}} }
	sk := `predictor: {model: {modelFormat: {name: sklearn}, storageUri: s3://a}}`
	for _, tc := range []struct {
		name     string
		change   func(*config.Config)
		in, want string
	}{
		{"mode of the configuration", nil, isvc("", `{`+sk+`}`), isvc(standard, `{`+sk+`}`)},
		{"former spelling", nil, isvc("deploymentMode=RawDeployment", `{`+sk+`}`), isvc(standard, `{`+sk+`}`)},
		{"former spelling of Knative", nil, isvc("deploymentMode=Serverless", `{`+sk+`}`), isvc(knative, `{`+sk+`}`)},
		{"unknown mode", nil, isvc("deploymentMode=Bare", `{`+sk+`}`), isvc("deploymentMode=Bare", `{`+sk+`}`)},
		{"Knative by default is not written", mode(config.ModeKnative), isvc("", `{`+sk+`}`), isvc("", `{`+sk+`}`)},
		{"ModelMesh by default", mode(config.ModeModelMesh), isvc("", `{predictor: {sklearn: {storageUri: s3://a}}}`), isvc(mesh, `{`+sk+`}`)},
		{"mode in doubt", inDoubt, isvc("", `{`+sk+`}`), isvc("", `{`+sk+`}`)},
		{"recorded mode while the default is in doubt", inDoubt, recorded("Standard", isvc("", `{`+sk+`}`)), recorded("Standard", isvc(standard, `{`+sk+`}`))},
		{"recorded mode is kept", mode(config.ModeKnative), recorded("Standard", isvc("", `{`+sk+`}`)), recorded("Standard", isvc(standard, `{`+sk+`}`))},
		{"recorded Knative is kept", nil, recorded("Serverless", isvc("", `{`+sk+`}`)), recorded("Serverless", isvc("", `{`+sk+`}`))},

		{"framework block", nil, isvc(standard, `{predictor: {sklearn: {storageUri: s3://a}}}`), isvc(standard, `{`+sk+`}`)},
		{"framework block with the newer protocol", nil, isvc(standard, `{predictor: {onnx: {storageUri: s3://a}}}`),
			isvc(standard, `{predictor: {model: {modelFormat: {name: onnx}, protocolVersion: v2, storageUri: s3://a}}}`)},
		{"framework block with a protocol", nil, isvc(standard, `{predictor: {huggingface: {protocolVersion: v1}}}`),
			isvc(standard, `{predictor: {model: {modelFormat: {name: huggingface}, protocolVersion: v1}}}`)},
		{"framework block over a model", nil, isvc(standard, `{predictor: {sklearn: {storageUri: s3://a}, model: {modelFormat: {name: onnx}}}}`), isvc(standard, `{`+sk+`}`)},
		{"two framework blocks are left alone", nil, isvc(standard, `{predictor: {sklearn: {}, xgboost: {}}}`), isvc(standard, `{predictor: {sklearn: {}, xgboost: {}}}`)},
		{"framework block in the mesh", nil, isvc(mesh, `{predictor: {sklearn: {}}}`), isvc(mesh, `{predictor: {sklearn: {}}}`)},
		{"formats with the newer protocol", nil, isvc(standard, `{predictor: {model: {modelFormat: {name: vLLM}}}}`),
			isvc(standard, `{predictor: {model: {modelFormat: {name: vLLM}, protocolVersion: v2}}}`)},
		{"framework block of a canary", nil, isvc(standard, `{`+sk+`, canary: [{trafficPercent: 1, predictor: {name: b, triton: {}}}]}`),
			isvc(standard, `{`+sk+`, canary: [{trafficPercent: 1, predictor: {name: b, model: {modelFormat: {name: triton}, protocolVersion: v2}}}]}`)},

		{"server of the user", nil, isvc(standard, `{predictor: {containers: [{name: a}]}}`),
			isvc(standard, `{predictor: {containers: [{name: kserve-container, `+filled+`}]}}`)},
		{"first of several", nil, isvc(standard, `{predictor: {containers: [{image: x}, {name: b}]}}`),
			isvc(standard, `{predictor: {containers: [{name: kserve-container, image: x, `+filled+`}, {name: b}]}}`)},
		{"helper beside a model", nil, isvc(standard, `{predictor: {containers: [{name: b}], model: {modelFormat: {name: sklearn}}}}`),
			isvc(standard, `{predictor: {containers: [{name: b}], model: {modelFormat: {name: sklearn}}}}`)},
		{"resources that are said", nil, isvc(standard, `{predictor: {containers: [{name: a, resources: {limits: {cpu: 500m}, requests: {memory: 4Gi}}}]}}`),
			isvc(standard, `{predictor: {containers: [{name: kserve-container, resources: {limits: {cpu: 500m}, requests: {memory: 4Gi}}}]}}`)},
		{"transformer and explainer", nil, isvc(standard, `{`+sk+`, transformer: {containers: [{name: a}]}, explainer: {containers: [{name: a}]}}`),
			isvc(standard, `{`+sk+`, transformer: {containers: [{name: kserve-container, `+filled+`}]}, explainer: {containers: [{name: kserve-container, `+filled+`}]}}`)},
		{"ART explainer", nil, isvc(standard, `{`+sk+`, explainer: {art: {type: SquareAttack}}}`),
			isvc(standard, `{`+sk+`, explainer: {art: {type: SquareAttack, name: kserve-container, runtimeVersion: latest, `+filled+`}}}`)},
		{"tokens", func(c *config.Config) { c.Security.AutoMountServiceAccountToken = false },
			isvc(standard, `{predictor: {automountServiceAccountToken: true, model: {modelFormat: {name: sklearn}}}, transformer: {}, explainer: {}}`),
			isvc(standard, `{predictor: {automountServiceAccountToken: true, model: {modelFormat: {name: sklearn}}}, transformer: {automountServiceAccountToken: false}, explainer: {automountServiceAccountToken: false}}`)},
		{"nothing at all", nil, isvc(standard, `{predictor: {}}`), isvc(standard, `{predictor: {}}`)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kinds := kindsForTest(t)
			Rules{Config: settings(t, tc.change)}.Apply(kinds)
			kind, obj := decode(t, kinds, tc.in)
			_, want := decode(t, kinds, tc.want)
			addFormat(want.(*v1beta1.InferenceService))
			for range 2 { // the second time changes nothing
				if err := kind.Default(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(text(t, want), text(t, obj)); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// addFormat adds the annotation that every service with a model gets.
func addFormat(isvc *v1beta1.InferenceService) {
	if m := isvc.Spec.Predictor.Model; m != nil {
		annotate(isvc, v1beta1.AnnotationModelFormat, m.ModelFormat.Name)
	}
}

func TestFormatAnnotationIsKept(t *testing.T) {
	obj := &v1beta1.InferenceService{}
	obj.Annotations = map[string]string{v1beta1.AnnotationModelFormat: "mine"}
	obj.Spec.Predictor.SKLearn = &v1beta1.PredictorExtensionSpec{}
	fill(obj, "", config.Default())
	if got := obj.Annotations[v1beta1.AnnotationModelFormat]; got != "mine" || obj.Spec.Predictor.Model == nil {
		t.Errorf("annotation %q, model %v", got, obj.Spec.Predictor.Model)
	}
}

// TestModeIsThatOfTheStoredObject: a client may send any status, and while
// defaults are filled in nobody has put it right yet.
func TestModeIsThatOfTheStoredObject(t *testing.T) {
	kinds := kindsForTest(t)
	Rules{Config: settings(t, nil)}.Apply(kinds)
	for _, tc := range []struct {
		name, sent, stored, want string
	}{
		{"created with a status", "Knative", "", "Standard"},
		{"status left out", "", "Knative", ""},
		{"another status", "Standard", "ModelMesh", "ModelMesh"},
		{"stored without a status", "Knative", "none", "Standard"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kind, obj := decode(t, kinds, recorded(tc.sent, isvc("", plain)))
			req := webhook.Request{AdmissionRequest: admissionv1.AdmissionRequest{}}
			if tc.stored != "" {
				_, old := decode(t, kinds, recorded(tc.stored, isvc("", plain)))
				raw, err := json.Marshal(old)
				if err != nil {
					t.Fatal(err)
				}
				req.OldObject = runtime.RawExtension{Raw: raw}
			}
			if err := kind.Default(webhook.NewContextWithRequest(t.Context(), req), obj); err != nil {
				t.Fatal(err)
			}
			if got := obj.GetAnnotations()[v1beta1.AnnotationDeploymentMode]; got != tc.want {
				t.Errorf("mode %q, want %q", got, tc.want)
			}
		})
	}
}

// TestConfiguration: a source comes before the manifests at hand, which come
// before the defaults.
func TestConfiguration(t *testing.T) {
	source := settings(t, nil)
	given := admission.WithReader(t.Context(), world(t, configured))
	for _, tc := range []struct {
		name  string
		rules Rules
		ctx   context.Context
		want  string
	}{
		{"source", Rules{Config: source}, given, config.ModeStandard},
		{"source that has none yet", Rules{Config: config.Static(nil)}, given, config.ModeKnative},
		{"manifests", Rules{}, given, config.ModeKnative},
		{"other manifests", Rules{}, admission.WithReader(t.Context(), world(t, "")), config.ModeStandard},
		{"nothing", Rules{}, t.Context(), config.ModeStandard},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := tc.rules.config(tc.ctx)
			if err != nil || cfg.Deploy.DefaultDeploymentMode != tc.want {
				t.Errorf("%v, %v; want %s", cfg, err, tc.want)
			}
		})
	}
}

func text(t testing.TB, obj any) string {
	t.Helper()
	out, err := yaml.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
