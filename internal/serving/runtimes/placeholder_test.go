// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

func testRenderer() *renderer {
	isvc := &v1beta1.InferenceService{}
	isvc.Name, isvc.Namespace, isvc.UID, isvc.Generation = "iris", "team", "u-1", 7
	isvc.Labels = map[string]string{"tier": "gold", "a/b": "slash", "modelClass": "mine"}
	isvc.Annotations = map[string]string{"note": `"Tom & Jerry" <x>` + "\n", "big": strings.Repeat("b", maxRendered/4)}
	return newRenderer(isvc, modelOf("sklearn", "", ""), map[string]string{"modelClass": "ours"})
}

func TestPlaceholders(t *testing.T) {
	for _, test := range []struct{ text, want, says string }{
		{text: "plain {x} }}", want: "plain {x} }}"},
		{text: "--name={{.Name}}", want: "--name=iris"},
		{text: "{{ .Namespace }}/{{$.Name}}", want: "team/iris"},
		{text: "{{.UID}} {{.Generation}}", want: "u-1 7"},
		{text: "{{.Labels.tier}}", want: "gold"},
		{text: `{{index .Labels "a/b"}}`, want: "slash"},
		{text: "{{index .Labels `a/b`}}", want: "slash"},
		{text: "{{.Labels.modelClass}}", want: "ours"},
		{text: "{{.Annotations.note}}", want: "\"Tom & Jerry\" <x>\n"},
		{text: "{{.Annotations.modelFormat}}", want: "sklearn"},
		{text: `{{if eq .Labels.tier "gold"}}fast{{else}}slow{{end}}`, want: "fast"},
		{text: `{{if and (ne .Name "x") (not false)}}{{slice .Name 0 2}}{{len .Name}}{{end}}`, want: "ir4"},
		{text: `{{.Name | eq "iris"}}`, want: "true"},
		{text: `{{"{{"}}.Name}}`, want: "{{.Name}}"},
		{text: "{{/* nothing */}}", want: ""},

		{text: "{{.Labels.team}}", says: "{{.Labels.team}} has no value"},
		{text: `{{index .Annotations "x/y"}}`, says: `{{index .Annotations "x/y"}} has no value`},
		{text: "{{.Title}}", says: "there is no {{.Title}}"},
		{text: "{{.ResourceVersion}}", says: "there is no {{.ResourceVersion}}"},
		{text: "{{$.Spec.Name}}", says: "there is no {{.Spec.Name}}"},
		{text: "{{.Name.Length}}", says: "{{.Name.Length}}"},
		{text: "{{", says: "not a valid placeholder"},
		{text: "{{.Name", says: "unclosed action"},
		{text: "{{fetch .Name}}", says: "not a valid placeholder"},
		{text: `{{printf "%s" .Name}}`, says: "function printf"},
		{text: `{{html .Name}}`, says: "function html"},
		{text: `{{call .Name}}`, says: "function call"},
		{text: "{{.}}", says: "{{.}} is more"},
		{text: "{{$}}", says: "is more than a placeholder can do"},
		{text: "{{$x := .Name}}{{$x}}", says: "is more than a placeholder can do"},
		{text: "{{range .Labels}}{{end}}", says: "is more than a placeholder can do"},
		{text: "{{with .Labels}}{{.tier}}{{end}}", says: "is more than a placeholder can do"},
		{text: `{{define "x"}}{{end}}{{.Name}}`, says: "cannot define templates"},
		{text: `{{define "x"}}{{template "x"}}{{end}}`, says: "cannot define templates"},
		{text: `{{template "x"}}`, says: "is more than a placeholder can do"},
		{text: `{{(index .Labels "tier").X}}`, says: "is more than a placeholder can do"},
		{text: `{{index .Name "x"}}`, says: "{{.Name}}: wrong type"},
		{text: strings.Repeat("{{.Annotations.big}}", 5), says: "exceeds"},
		{text: "{{.Name}}" + strings.Repeat("x", maxTemplate), says: "shorten it"},
		{text: "{{" + strings.Repeat("(", maxTemplate-10), says: "not a valid placeholder"},
	} {
		name := test.text[:min(len(test.text), 40)]
		got, err := testRenderer().text(test.text, strict)
		if err != nil {
			if test.says == "" || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v, want %q", name, err, test.says)
			}
			if len(err.Error()) > 400 {
				t.Errorf("%s: %d bytes of error", name, len(err.Error()))
			}
			continue
		}
		if test.says != "" || got != test.want {
			t.Errorf("%s: got %q, want %q %s", name, got, test.want, test.says)
		}
	}
}

// TestPlaceholdersOfOthers leaves the braces of sidecars that mean something else.
func TestPlaceholdersOfOthers(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Name}}":                     "iris",
		"{{ .Values.x }}":               "{{ .Values.x }}",
		"{{ user | upper }}":            "{{ user | upper }}",
		"{% if a %}{{":                  "{% if a %}{{",
		"{{range .Labels}}{{.}}{{end}}": "{{range .Labels}}{{.}}{{end}}",
	} {
		if got, err := testRenderer().text(text, lenient); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	if got, err := testRenderer().text("{{.Labels.none}}", lenient); err == nil {
		t.Errorf("a missing label became %q", got)
	}
}

// TestPlaceholdersEverywhere fills in the texts of a container wherever they are.
func TestPlaceholdersEverywhere(t *testing.T) {
	c := &corev1.Container{
		Name: "c", Image: "{{.Name}}:1", Command: []string{"{{.Name}}"}, Args: []string{"a", "{{.Name}}"}, WorkingDir: "/{{.Name}}",
		Env: []corev1.EnvVar{
			{Name: "A", Value: "{{.Name}}"},
			{Name: "B", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "{{.Name}}-s"}, Key: "k"}}},
		},
		VolumeMounts:  []corev1.VolumeMount{{Name: "v", SubPath: "{{.Name}}"}},
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/v1/models/{{.Name}}"}}},
		Resources:     corev1.ResourceRequirements{Limits: corev1.ResourceList{nvidiaGPU: one}},
	}
	if f := testRenderer().container(c, &Runtime{Name: "rt"}, strict); f != nil {
		t.Fatal(f)
	}
	for got, want := range map[string]string{
		c.Image: "iris:1", c.Command[0]: "iris", c.Args[1]: "iris", c.WorkingDir: "/iris", c.Env[0].Value: "iris",
		c.Env[1].ValueFrom.SecretKeyRef.Name: "iris-s", c.VolumeMounts[0].SubPath: "iris",
		c.LivenessProbe.HTTPGet.Path: "/v1/models/iris",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c.LivenessProbe.HTTPGet.Path = "{{.Labels.none}}"
	f := testRenderer().container(c, &Runtime{Name: "rt", Cluster: true}, strict)
	if f == nil {
		t.Fatal("a missing label was passed over")
	}
	checkFailure(t, f, v1beta1.InvalidPredictorSpec,
		[]string{"livenessProbe.httpGet.path of container c, from ClusterServingRuntime rt or spec.predictor: "})
}
