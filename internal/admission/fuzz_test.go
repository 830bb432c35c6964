// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	maasv1alpha1 "github.com/modelplane/modelplane/api/maas/v1alpha1"
	servingv1beta1 "github.com/modelplane/modelplane/api/serving/v1beta1"
)

var seeds = []string{
	`{"apiVersion":"serving.kserve.io/v1beta1","kind":"InferenceService","metadata":{"name":"x"},"spec":{"predictor":{"model":{"modelFormat":{"name":"sklearn"},"storageUri":"s3://a/b","resources":{"limits":{"cpu":"1","memory":"2Gi"}}},"minReplicas":1}}}`,
	`{"spec":{"predictor":{"containers":[{"name":"a","image":1,"ports":[{"containerPort":8080.5}],"livenessProbe":{"httpGet":{"port":"x"}}}]}}}`,
	`{"apiVersion":"maas.opendatahub.io/v1alpha1","kind":"MaaSSubscription","metadata":{"name":"x","creationTimestamp":null},"spec":{"priority":1,"priority":2}}`,
	`{"metadata":{"labels":{"a":1},"managedFields":[{"fieldsV1":{"f:spec":{}}}],"deletionTimestamp":"2020-01-01T00:00:00Z"}}`,
	`{"status":{"conditions":[{"type":1}]},"spec":null}`, `{"status0":null}`, `{"status":[1]}`,
	"{\"kind\":\"\xff\"}", `{"metadata":{"name":"\ufffd","labels":{"a":"\ud800"}}}`, `[[[[`, `{"a":1e400}`, `{"spec":{"predictor":{"minReplicas":99999999999999999999}}}`,
}

// FuzzStrict compares the walker with the decoder it stands in front of: what the
// one accepts the other must accept, and the other way round.
func FuzzStrict(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	for i := range 20 {
		m := &maker{Rand: rand.New(rand.NewPCG(3, uint64(i))), mistakes: i % 2}
		raw, err := json.Marshal(m.value(reflect.TypeFor[servingv1beta1.InferenceService](), 0))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	types := []func() client.Object{
		func() client.Object { return &servingv1beta1.InferenceService{} },
		func() client.Object { return &maasv1alpha1.MaaSSubscription{} },
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, empty := range types {
			compare(t, raw, empty(), empty())
		}
	})
}

func compare(t *testing.T, raw []byte, ours, theirs client.Object) {
	err := Strict(raw, ours)
	if err != nil && !utf8.ValidString(err.Error()) {
		t.Fatalf("the message is not UTF-8: %q", err)
	}
	var problems Problems
	if err != nil && !errors.As(err, &problems) {
		return // not readable as a document: the decoder is never asked
	}
	if strings.Contains(problems.Error(), "not valid UTF-8") {
		return // the decoder does not mind
	}
	strict, fatal := kjson.UnmarshalStrict(withoutStatus(raw), theirs)
	accepted := fatal == nil && len(strict) == 0
	if accepted != (withoutStatusProblems(problems) == 0) {
		t.Fatalf("walker says %v, decoder says %v %v\n%s", err, strict, fatal, raw)
	}
	if err == nil && fatal == nil && !reflect.DeepEqual(spec(t, ours), spec(t, theirs)) {
		t.Fatalf("decoded differently:\n%v\n%v", spec(t, ours), spec(t, theirs))
	}
}

// withoutStatus takes out the part in which the walker is lenient on purpose,
// but only if the document then means the same to both.
func withoutStatus(raw []byte) []byte {
	var parts map[string]json.RawMessage
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &parts) != nil {
		return raw
	}
	if _, ok := parts["status"]; !ok {
		return raw
	}
	names := slices.Sorted(maps.Keys(parts))
	out := []byte("{")
	for _, name := range names {
		if name == "status" {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		key, _ := json.Marshal(name)
		out = append(append(append(out, key...), ':'), parts[name]...)
	}
	return append(out, '}')
}

func withoutStatusProblems(problems Problems) int {
	n := 0
	for _, p := range problems {
		if rest, in := strings.CutPrefix(p.Path, "status"); !in || rest != "" && rest[0] != '.' && rest[0] != '[' {
			n++
		}
	}
	return n
}

func spec(t *testing.T, obj client.Object) any {
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out["spec"]
}

// FuzzValidate looks for input that makes the schema code panic or change what
// it only has to look at.
func FuzzValidate(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed), []byte(seeds[0]))
	}
	schemas, err := Embedded()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw, rawOld []byte) {
		u, old := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		if readable(raw) != nil || kjson.UnmarshalCaseSensitivePreserveInts(raw, &u.Object) != nil || u.Object == nil {
			return
		}
		if readable(rawOld) != nil || kjson.UnmarshalCaseSensitivePreserveInts(rawOld, &old.Object) != nil || old.Object == nil {
			return
		}
		u.SetAPIVersion("serving.kserve.io/v1beta1")
		u.SetKind("InferenceService")
		before := u.DeepCopy()
		_, _ = schemas.Unknown(u)
		_ = schemas.Validate(context.Background(), u, nil)
		_ = schemas.Validate(context.Background(), u, old)
		if !reflect.DeepEqual(before, u) {
			t.Fatalf("looking changed the object:\n%v\n%v", before, u)
		}
		_ = schemas.Admit(context.Background(), u, nil)
	})
}
