// SPDX-License-Identifier: Apache-2.0

package trainedmodels_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/trainedmodels"
)

func TestPredictPath(t *testing.T) {
	uri := ptr.To("s3://a/b")
	modelOf := func(edit func(*v1beta1.ModelSpec)) v1beta1.InferenceServiceSpec {
		m := &v1beta1.ModelSpec{PredictorExtensionSpec: v1beta1.PredictorExtensionSpec{StorageURI: uri}}
		edit(m)
		return v1beta1.InferenceServiceSpec{Predictor: v1beta1.PredictorSpec{Model: m}}
	}
	through := func(edit func(*corev1.Container)) v1beta1.InferenceServiceSpec {
		spec := modelOf(func(*v1beta1.ModelSpec) {})
		c := corev1.Container{Name: "kserve-container"}
		edit(&c)
		spec.Transformer = &v1beta1.TransformerSpec{PodSpec: v1beta1.PodSpec{Containers: []corev1.Container{c}}}
		return spec
	}
	beside := func(c corev1.Container) v1beta1.InferenceServiceSpec {
		spec := modelOf(func(*v1beta1.ModelSpec) {})
		c.Name = "transformer-container"
		spec.Predictor.Containers = []corev1.Container{c}
		return spec
	}
	own := func(c corev1.Container) v1beta1.InferenceServiceSpec {
		return v1beta1.InferenceServiceSpec{Predictor: v1beta1.PredictorSpec{PodSpec: v1beta1.PodSpec{Containers: []corev1.Container{c}}}}
	}
	framework := func(p v1beta1.PredictorSpec) v1beta1.InferenceServiceSpec {
		return v1beta1.InferenceServiceSpec{Predictor: p}
	}
	speaks := func(p v1beta1.InferenceServiceProtocol) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "PROTOCOL", Value: string(p)}}
	}
	cases := map[string]struct {
		spec    v1beta1.InferenceServiceSpec
		runtime []v1beta1.InferenceServiceProtocol
		path    string
		fails   bool
	}{
		"chosen runtime":          {spec: modelOf(func(*v1beta1.ModelSpec) {}), runtime: []v1beta1.InferenceServiceProtocol{"v2"}, path: "/v1/models/iris:predict"},
		"protocol of the model":   {spec: modelOf(func(m *v1beta1.ModelSpec) { m.ProtocolVersion = ptr.To(v1beta1.ProtocolV2) }), path: "/v2/models/iris/infer"},
		"protocol before runtime": {spec: modelOf(func(m *v1beta1.ModelSpec) { m.Runtime, m.ProtocolVersion = ptr.To("rt"), ptr.To(v1beta1.ProtocolV2) }), runtime: []v1beta1.InferenceServiceProtocol{"v1", "v2"}, path: "/v2/models/iris/infer"},
		"first of the runtime":    {spec: modelOf(func(m *v1beta1.ModelSpec) { m.Runtime = ptr.To("rt") }), runtime: []v1beta1.InferenceServiceProtocol{"grpc-v1", "v2", "v1"}, path: "/v2/models/iris/infer"},
		"runtime says nothing":    {spec: modelOf(func(m *v1beta1.ModelSpec) { m.Runtime = ptr.To("rt") }), path: "/v1/models/iris:predict"},
		"runtime without HTTP":    {spec: modelOf(func(m *v1beta1.ModelSpec) { m.Runtime = ptr.To("rt") }), runtime: []v1beta1.InferenceServiceProtocol{"grpc-v2"}, fails: true},
		"model without HTTP":      {spec: modelOf(func(m *v1beta1.ModelSpec) { m.ProtocolVersion = ptr.To(v1beta1.ProtocolGRPCV1) }), fails: true},
		"name in an argument":     {spec: modelOf(func(m *v1beta1.ModelSpec) { m.Args = []string{"--model_name=lily", "--x"} }), path: "/v1/models/lily:predict"},
		"name after an argument":  {spec: modelOf(func(m *v1beta1.ModelSpec) { m.Args = []string{"--model_name", "lily"} }), path: "/v1/models/lily:predict"},
		"argument without a name": {spec: modelOf(func(m *v1beta1.ModelSpec) { m.Args = []string{"--model_name", "--x"} }), path: "/v1/models/iris:predict"},
		"argument of another flag": {spec: modelOf(func(m *v1beta1.ModelSpec) { m.Args = []string{"--model_name_prefix=lily"} }),
			path: "/v1/models/iris:predict"},
		"variable before argument": {spec: modelOf(func(m *v1beta1.ModelSpec) {
			m.Args, m.Env = []string{"--model_name=lily"}, []corev1.EnvVar{{Name: "MLSERVER_MODEL_NAME", Value: "rose"}}
		}), path: "/v1/models/rose:predict"},
		"transformer":               {spec: through(func(*corev1.Container) {}), path: "/v1/models/iris:predict"},
		"transformer in v2":         {spec: through(func(c *corev1.Container) { c.Env = speaks("v2") }), path: "/v2/models/iris/infer"},
		"transformer without HTTP":  {spec: through(func(c *corev1.Container) { c.Env = speaks("grpc-v2") }), fails: true},
		"transformer knows a name":  {spec: through(func(c *corev1.Container) { c.Args = []string{"--model_name=lily"} }), path: "/v1/models/lily:predict"},
		"transformer without pods":  {spec: v1beta1.InferenceServiceSpec{Transformer: &v1beta1.TransformerSpec{}}, path: "/v1/models/iris:predict"},
		"transformer in the pod":    {spec: beside(corev1.Container{Env: speaks("v2"), Args: []string{"--model_name=lily"}}), path: "/v2/models/lily/infer"},
		"own container":             {spec: own(corev1.Container{Name: "kserve-container"}), path: "/v1/models/iris:predict"},
		"own container in v2":       {spec: own(corev1.Container{Name: "kserve-container", Env: speaks("v2"), Args: []string{"--model_name", "lily"}}), path: "/v2/models/lily/infer"},
		"many models":               {spec: own(corev1.Container{Name: "kserve-container", Env: []corev1.EnvVar{{Name: "MULTI_MODEL_SERVER", Value: "true"}}}), path: ""},
		"framework":                 {spec: framework(v1beta1.PredictorSpec{SKLearn: &v1beta1.PredictorExtensionSpec{StorageURI: uri}}), path: "/v1/models/iris:predict"},
		"triton":                    {spec: framework(v1beta1.PredictorSpec{Triton: &v1beta1.PredictorExtensionSpec{StorageURI: uri}}), path: "/v2/models/iris/infer"},
		"nothing at all":            {spec: v1beta1.InferenceServiceSpec{}, path: "/v1/models/iris:predict"},
		"framework with a protocol": {spec: framework(v1beta1.PredictorSpec{XGBoost: &v1beta1.PredictorExtensionSpec{StorageURI: uri, ProtocolVersion: ptr.To(v1beta1.ProtocolV2)}}), path: "/v2/models/iris/infer"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			isvc := &v1beta1.InferenceService{Spec: c.spec}
			isvc.Name = "iris"
			path, err := trainedmodels.PredictPath(isvc, &v1alpha1.ServingRuntimeSpec{ProtocolVersions: c.runtime})
			if path != c.path || err != nil != c.fails {
				t.Errorf("got %q and error %v", path, err)
			}
		})
	}
}
