// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli/explain"
	"github.com/modelplane/modelplane/internal/modelmesh/predictors"
	"github.com/modelplane/modelplane/internal/serving"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// scene is a golden case: the first object is explained, the document of kind
// Case says how.
type scene struct {
	objects []*unstructured.Unstructured
	Refuse  []string `json:"refuse"`
	Without []string `json:"without"`
	ASCII   bool     `json:"ascii"`
	Colour  bool     `json:"colour"`
}

func readScene(t testing.TB, in []byte) *scene {
	t.Helper()
	s := &scene{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(in), 4096)
	for {
		var body map[string]any
		err := decoder.Decode(&body)
		if errors.Is(err, io.EOF) {
			return s
		}
		raw, encodeErr := json.Marshal(body)
		u := &unstructured.Unstructured{}
		if err := errors.Join(err, encodeErr, u.UnmarshalJSON(raw)); err != nil {
			t.Fatal(err)
		}
		if u.GetKind() != "Case" {
			s.objects = append(s.objects, u)
			continue
		}
		if err := json.Unmarshal(raw, s); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *scene) explainer() *explain.Explainer {
	all := append(serving.New().Controllers(), predictors.New(nil).Controllers()...)
	return &explain.Explainer{
		Reader: &objects{all: s.objects, refuse: s.Refuse}, Served: served(servingtest.Scheme, all, s.Without),
		Scheme: servingtest.Scheme, Controllers: all, About: domains.About(),
		Now: func() time.Time { return now }, Kubectl: "kubectl", Self: "modelplane explain",
	}
}

func (s *scene) explain(t testing.TB) *explain.Report {
	t.Helper()
	subject := s.objects[0]
	r, err := s.explainer().Explain(t.Context(), subject.GetKind(), subject.GetNamespace(), subject.GetName())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestGolden(t *testing.T) {
	testkit.Golden(t, "testdata/explain", func(t *testing.T, in []byte) []byte {
		s := readScene(t, in)
		r := s.explain(t)
		var out bytes.Buffer
		if err := r.Text(&out, explain.Look{ASCII: s.ASCII, Colour: s.Colour}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "hush-hush") {
			t.Error("a secret was printed")
		}
		if lines := strings.Count(out.String(), "\n"); lines > 80 {
			t.Errorf("%d lines, want the output to be bounded", lines)
		}
		if r.Ready == (r.Cause != nil) {
			t.Errorf("ready %v, cause %v", r.Ready, r.Cause)
		}
		return out.Bytes()
	})
}
