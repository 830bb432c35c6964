// SPDX-License-Identifier: Apache-2.0

package model

import (
	"crypto/sha1" //nolint:gosec // as in ids
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// known is a spec of a Predictor, or a whole InferenceService, with what is to become of it. The JSON that the id is made of
// is written down as other controllers encode it.
type known struct {
	name, in           string
	json               string
	typ, path, key     string
	ignored, parameter string
}

var predictors = []known{
	{
		name: "the former form", in: `{modelType: {name: sklearn}, path: a/b.joblib, storage: {s3: {secretKey: localMinIO}}}`,
		json: `{"modelType":{"name":"sklearn"},"path":"a/b.joblib","storage":{"s3":{"secretKey":"localMinIO"}}}`,
		typ:  "mt:sklearn", path: "a/b.joblib", key: `{"storage_key":"localMinIO","model_type":{"name":"sklearn"}}`,
	},
	{
		name: "the former form with a bucket and a schema",
		in:   `{modelType: {name: onnx, version: "1"}, path: m, schemaPath: s.json, storage: {s3: {secretKey: k, bucket: b}}, gpu: preferred}`,
		json: `{"modelType":{"name":"onnx","version":"1"},"path":"m","schemaPath":"s.json","storage":{"s3":{"secretKey":"k","bucket":"b"}},"gpu":"preferred"}`,
		typ:  "mt:onnx:1", path: "m", ignored: "spec.gpu",
		key: `{"storage_key":"k","storage_params":{"bucket":"b"},"model_type":{"name":"onnx","version":"1"},"schema_path":"s.json"}`,
	},
	{
		name: "the present form",
		in: `{serviceAccountName: sa, modelType: {name: onnx}, storage: {key: k, path: m&n, schemaPath: s, parameters: {type: pvc, name: claim}},
			runtime: {name: triton}, protocolVersion: grpc-v2}`,
		json: `{"serviceAccountName":"sa","modelType":{"name":"onnx"},"path":"","storage":{"path":"m\u0026n","schemaPath":"s",` +
			`"parameters":{"name":"claim","type":"pvc"},"key":"k"},"runtime":{"name":"triton"},"protocolVersion":"grpc-v2"}`,
		typ: "rt:triton", path: "m&n", parameter: "claim", ignored: "spec.serviceAccountName",
		key: `{"storage_key":"k","storage_params":{"name":"claim","type":"pvc"},"model_type":{"name":"onnx"},"schema_path":"s"}`,
	},
	{
		name: "parameters that are empty are no missing ones", in: `{modelType: {name: onnx}, storage: {path: m, parameters: {}}, protocolVersion: v2}`,
		json: `{"modelType":{"name":"onnx"},"path":"","storage":{"path":"m","parameters":{}},"protocolVersion":"v2"}`,
		typ:  "mt:onnx|pv:v2", path: "m", key: `{"model_type":{"name":"onnx"}}`,
	},
	{
		name: "no storage", in: `{modelType: {name: onnx}, path: m, schemaPath: s}`,
		json: `{"modelType":{"name":"onnx"},"path":"m","schemaPath":"s"}`,
		typ:  "mt:onnx", key: `{"model_type":{"name":"onnx"}}`, ignored: "spec.path spec.schemaPath",
	},
}

func TestOfPredictor(t *testing.T) {
	for _, k := range predictors {
		t.Run(k.name, func(t *testing.T) {
			p := &v1alpha1.Predictor{}
			p.Name = "iris"
			decode(t, k.in, &p.Spec)
			m, invalid := OfPredictor(p)
			if invalid != nil {
				t.Fatal(invalid)
			}
			k.check(t, m, encode(specOf(&p.Spec)), FromPredictor)
		})
	}
}

// check compares a model with what is known.
func (k known) check(t *testing.T, m Model, encoded []byte, source Source) {
	t.Helper()
	if diff := cmp.Diff(k.json, string(encoded)); diff != "" {
		t.Errorf("an id is made of (-want +got):\n%s", diff)
	}
	sum := sha1.Sum([]byte(k.json)) //nolint:gosec // as in ids
	want := Model{
		Name: "iris", Source: source, ID: "iris__" + string(source) + "-" + hex.EncodeToString(sum[:])[:10],
		Type: k.typ, Path: k.path, Key: k.key, Parameters: m.Parameters, Ignored: m.Ignored,
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m.Claim() != k.parameter {
		t.Errorf("the claim is %q", m.Claim())
	}
	for i, field := range strings.Fields(k.ignored) {
		if len(m.Ignored) <= i || !strings.HasPrefix(m.Ignored[i], "The field "+field+" ") {
			t.Errorf("%s is not said to have no effect: %q", field, m.Ignored)
		}
	}
	if len(m.Ignored) != len(strings.Fields(k.ignored)) {
		t.Errorf("too much is said: %q", m.Ignored)
	}
	if name, of, ok := ParseID(m.ID); name != "iris" || of != source || !ok {
		t.Errorf("the id %s is taken for one of %s %q", m.ID, of, name)
	}
}

var services = []known{
	{
		name: "a key and a path", in: `{spec: {predictor: {model: {modelFormat: {name: sklearn}, storage: {key: localMinIO, path: a.joblib}}}}}`,
		json: `{"modelType":{"name":"sklearn"},"path":"","storage":{"path":"a.joblib","parameters":{},"key":"localMinIO"}}`,
		typ:  "mt:sklearn", path: "a.joblib", key: `{"storage_key":"localMinIO","model_type":{"name":"sklearn"}}`,
	},
	{
		name: "an address counts more than parameters",
		in: `{metadata: {annotations: {serving.kserve.io/schemaPath: s.json, serving.kserve.io/secretKey: other}},
			spec: {predictor: {model: {modelFormat: {name: onnx, version: "1"}, runtime: ovms, protocolVersion: grpc-v1, storageUri: s3://b/a/m.onnx,
			storage: {key: k, parameters: {bucket: x, region: "y"}}}}}}`,
		json: `{"modelType":{"name":"onnx","version":"1"},"path":"","storage":{"path":"a/m.onnx","schemaPath":"s.json",` +
			`"parameters":{"bucket":"b","region":"y","type":"s3"},"key":"k"},"runtime":{"name":"ovms"},"protocolVersion":"grpc-v1"}`,
		typ: "rt:ovms", path: "a/m.onnx",
		key: `{"storage_key":"k","storage_params":{"bucket":"b","region":"y","type":"s3"},"model_type":{"name":"onnx","version":"1"},"schema_path":"s.json"}`,
	},
	{
		name: "a block of a framework", in: `{metadata: {annotations: {serving.kserve.io/servingRuntime: mlserver, serving.kserve.io/secretKey: k}},
			spec: {predictor: {sklearn: {storageUri: "pvc://claim/dir/m", protocolVersion: v2}}}}`,
		json: `{"modelType":{"name":"sklearn"},"path":"","storage":{"path":"dir/m","parameters":{"name":"claim","type":"pvc"},"key":"k"},` +
			`"runtime":{"name":"mlserver"},"protocolVersion":"v2"}`,
		typ: "rt:mlserver", path: "dir/m", parameter: "claim",
		key: `{"storage_key":"k","storage_params":{"name":"claim","type":"pvc"},"model_type":{"name":"sklearn"}}`,
	},
	{
		name: "an address of Google", in: `{spec: {predictor: {tensorflow: {storageUri: "gs://b/m"}}}}`,
		json: `{"modelType":{"name":"tensorflow"},"path":"","storage":{"path":"m","parameters":{"bucket":"b","type":"gcs"}}}`,
		typ:  "mt:tensorflow", path: "m", key: `{"storage_params":{"bucket":"b","type":"gcs"},"model_type":{"name":"tensorflow"}}`,
	},
	{
		name: "an address of Azure", in: `{spec: {predictor: {onnx: {storageUri: "https://acc.blob.core.windows.net/box/a/m.onnx"}}}}`,
		json: `{"modelType":{"name":"onnx"},"path":"","storage":{"path":"a/m.onnx","parameters":{"account_name":"acc","container":"box","type":"azure"}}}`,
		typ:  "mt:onnx", path: "a/m.onnx",
		key: `{"storage_params":{"account_name":"acc","container":"box","type":"azure"},"model_type":{"name":"onnx"}}`,
	},
	{
		name: "any other server", in: `{spec: {predictor: {model: {modelFormat: {name: onnx}, storageUri: "https://example.com:8443/a/m.onnx"}}}}`,
		json: `{"modelType":{"name":"onnx"},"path":"","storage":{"path":"a/m.onnx","parameters":{"type":"http","url":"https://example.com:8443"}}}`,
		typ:  "mt:onnx", path: "a/m.onnx", key: `{"storage_params":{"type":"http","url":"https://example.com:8443"},"model_type":{"name":"onnx"}}`,
	},
}

func TestOfService(t *testing.T) {
	for _, k := range services {
		t.Run(k.name, func(t *testing.T) {
			isvc := service(t, k.in)
			m, invalid := OfService(isvc)
			if invalid != nil {
				t.Fatal(invalid)
			}
			s, given, _ := baseOf(isvc)
			s.Storage, _ = storageOf(isvc, given)
			k.check(t, m, encode(s), FromService)
		})
	}
}

func service(t *testing.T, in string) *v1beta1.InferenceService {
	t.Helper()
	isvc := &v1beta1.InferenceService{}
	decode(t, in, isvc)
	isvc.Name = "iris"
	return isvc
}

func decode(t *testing.T, in string, out any) {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(strings.ReplaceAll(in, "\t", " "))) // which sets no pointers of its own
	if err == nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestInvalid: each rule names its field, and what is wrong with one is found with all others kept.
func TestInvalid(t *testing.T) {
	for in, field := range map[string]string{
		`{modelType: {name: a}, path: a, storage: {path: b}}`:                                "spec.path",
		`{modelType: {name: a}, schemaPath: a, storage: {path: b, schemaPath: c}}`:           "spec.schemaPath",
		`{modelType: {name: a}, storage: {persistentVolumeClaim: {claimName: c}}}`:           "spec.storage.persistentVolumeClaim",
		`{modelType: {name: a}, storage: {s3: {secretKey: k}, path: b}}`:                     "spec.storage.s3",
		`{modelType: {name: a}, storage: {s3: {secretKey: k}, schemaPath: b}}`:               "spec.storage.s3",
		`{modelType: {name: a}, storage: {s3: {secretKey: k}, parameters: {}}}`:              "spec.storage.s3",
		`{modelType: {name: a}, storage: {s3: {secretKey: k}, key: k}}`:                      "spec.storage.s3",
		`{modelType: {name: a}, path: a, schemaPath: b, storage: {s3: {secretKey: k}}}`:      "",
		`{modelType: {name: a}, storage: {key: k, path: p, schemaPath: s, parameters: {}}}`:  "",
		`{modelType: {name: a}, path: a, schemaPath: b, gpu: required, runtime: {name: rt}}`: "",
	} {
		p := &v1alpha1.Predictor{}
		p.Name = "iris"
		decode(t, in, &p.Spec)
		m, invalid := OfPredictor(p)
		said(t, in, field, invalid)
		if m.ID == "" || m.Type == "" {
			t.Errorf("%s: it has no id or type: %+v", in, m)
		}
	}
	const model = "spec.predictor.model"
	for in, field := range map[string]string{
		`{spec: {predictor: {}}}`:                                          model,
		`{spec: {predictor: {huggingface: {storageUri: "s3://a/b"}}}}`:     model,
		`{spec: {predictor: {model: {modelFormat: {name: a}}, onnx: {}}}}`: "spec.predictor.onnx",
		`{metadata: {annotations: {serving.kserve.io/servingRuntime: r}}, spec: {predictor: {model: {modelFormat: {name: a}}}}}`:                           model,
		`{spec: {predictor: {model: {modelFormat: {name: a}}}}}`:                                                                                           model + ".storage.path",
		`{spec: {predictor: {model: {modelFormat: {name: a}, storage: {key: k}}}}}`:                                                                        model + ".storage.path",
		`{spec: {predictor: {model: {modelFormat: {name: a}, storageUri: "s3://a/b", storage: {path: p}}}}}`:                                               model + ".storage.path",
		`{spec: {predictor: {model: {modelFormat: {name: a}, storageUri: "ftp://u:secret@a/b"}}}}`:                                                         model + ".storageUri",
		`{spec: {predictor: {model: {modelFormat: {name: a}, storageUri: "https://u:secret@a b:c/"}}}}`:                                                    model + ".storageUri",
		`{metadata: {annotations: {serving.kserve.io/schemaPath: s}}, spec: {predictor: {model: {modelFormat: {name: a}, storage: {path: ""}, name: x}}}}`: "",
	} {
		_, invalid := OfService(service(t, in))
		said(t, in, field, invalid)
	}
}

func said(t *testing.T, in, field string, invalid *Invalid) {
	t.Helper()
	switch {
	case field == "" && invalid != nil:
		t.Errorf("%s is refused: %s", in, invalid)
	case field == "":
	case invalid == nil || invalid.Field != field:
		t.Errorf("%s: %+v, want one of %s", in, invalid, field)
	case strings.Contains(invalid.Message, "secret"):
		t.Errorf("%s: a secret is said: %s", in, invalid)
	case !strings.Contains(invalid.Message, "spec.") || !strings.HasSuffix(invalid.Message, "."):
		t.Errorf("%s: no sentence with a field: %s", in, invalid)
	}
}

func TestSupports(t *testing.T) {
	spec := &v1alpha1.ServingRuntimeSpec{}
	decode(t, `{supportedModelFormats: [{name: onnx, version: "1", autoSelect: true}, {name: onnx, autoSelect: true}, {name: xgboost}, {name: keras, autoSelect: false}],
		protocolVersions: [grpc-v2, grpc-v1], containers: []}`, spec)
	plain, rest := Labels("triton", spec, false), Labels("triton", spec, true)
	if diff := cmp.Diff([]string{"mt:onnx", "mt:onnx:1", "pv:grpc-v1", "pv:grpc-v2", "rt:triton"}, plain); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"mt:onnx", "mt:onnx:1", "pv:grpc-v1", "pv:grpc-v2", "pv:v2", "rt:triton"}, rest); diff != "" {
		t.Errorf("labels with REST (-want +got):\n%s", diff)
	}
	for typ, want := range map[string]bool{
		"mt:onnx": true, "mt:onnx:1": true, "mt:onnx:2": false, "rt:triton": true, "rt:ovms": false, "mt:xgboost": false, "mt:keras": false,
		"mt:onnx|pv:grpc-v2": true, "mt:onnx|pv:v2": false, "mt:onnx:2|pv:grpc-v2": false, "": false,
	} {
		if Supports(plain, typ) != want {
			t.Errorf("%q: supported is %v", typ, !want)
		}
	}
	if !Supports(rest, "mt:onnx|pv:v2") || Pinned("mt:onnx") || !Pinned("rt:triton") {
		t.Error("the proxy, or what is pinned, is wrong")
	}
}

func TestParseID(t *testing.T) {
	for id, want := range map[string]string{
		"a__ksp-0123456789": "a ksp", "a__b__isvc-abcdef0123": "a__b isvc", "a__ksp-01234": "", "__ksp-0123456789": "", "a": "", "a__ksp-0123456789x": "",
	} {
		name, source, ok := ParseID(id)
		if got := strings.TrimSpace(name + " " + string(source)); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", id, got, ok)
		}
	}
}
