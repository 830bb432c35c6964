// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// example is an object and whether it may be stored.
type example struct {
	name string
	// object in YAML, in the short form of the table it stands in.
	object string
	// old is the stored object of an update.
	old string
	// given are other objects that the cluster has.
	given string
	ok    bool
}

func accepted(name, object string) example { return example{name: name, object: object, ok: true} }
func rejected(name, object string) example { return example{name: name, object: object} }

func (e example) over(old string) example   { e.old = old; return e }
func (e example) with(given string) example { e.given = given; return e }

func kindsForTest(t testing.TB) []admission.Kind {
	t.Helper()
	kinds, err := admission.Kinds(admission.Serving)
	if err != nil {
		t.Fatal(err)
	}
	Rules{}.Apply(kinds)
	return kinds
}

// decode reads a manifest strictly, so that a misspelt case is noticed.
func decode(t testing.TB, kinds []admission.Kind, text string) (admission.Kind, client.Object) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, k := range kinds {
		if k.GVK != u.GroupVersionKind() {
			continue
		}
		obj := k.New()
		if err := admission.Strict(raw, obj); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return k, obj
	}
	t.Fatalf("no rules for %s", u.GroupVersionKind())
	return admission.Kind{}, nil
}

// world makes the reader that a plan without a cluster has.
func world(t testing.TB, given string) *engine.World {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admission.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &engine.World{Scheme: scheme}
	for _, doc := range strings.Split(given, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		w.Objects = append(w.Objects, u)
	}
	return w
}

// admitted does with an example what the webhooks do, and returns what they say.
func admitted(t testing.TB, kinds []admission.Kind, e example) (refusals, warnings []string) {
	t.Helper()
	ctx := admission.WithReader(context.Background(), world(t, e.given))
	kind, obj := decode(t, kinds, e.object)
	var old client.Object
	if e.old != "" {
		_, old = decode(t, kinds, e.old)
	}
	if kind.Default != nil {
		if err := kind.Default(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	warnings, err := kind.Validate(ctx, old, obj)
	if err == nil {
		return nil, warnings
	}
	var many utilerrors.Aggregate
	if !errors.As(err, &many) {
		t.Fatalf("%v is not about fields", err)
	}
	for _, one := range many.Errors() {
		refusals = append(refusals, one.Error())
	}
	return refusals, warnings
}

// examples are all tables; their words are in testdata for people to judge.
func examples() map[string][]example {
	return map[string][]example{
		"1 modes":           modeExamples,
		"2 fields by mode":  fieldExamples,
		"3 implementations": implementationExamples,
		"4 storage":         storageExamples,
		"5 scaling":         scalingExamples,
		"6 several nodes":   nodeExamples,
		"7 canaries":        canaryExamples,
		"8 runtimes":        runtimeExamples,
		"8 names":           nameExamples,
		"9 other kinds":     otherExamples,
		"9 what is meant":   meantExamples,
	}
}

func TestRules(t *testing.T) {
	kinds := kindsForTest(t)
	var refusals, warnings strings.Builder
	all := examples()
	for _, table := range sorted(all) {
		_, title, _ := strings.Cut(table, " ")
		refusals.WriteString("# " + title + "\n\n")
		warnings.WriteString("# " + title + "\n\n")
		for _, e := range all[table] {
			t.Run(title+"/"+e.name, func(t *testing.T) {
				refused, warned := admitted(t, kinds, e)
				if (len(refused) == 0) != e.ok {
					t.Errorf("accepted is %v, want %v: %q", len(refused) == 0, e.ok, refused)
				}
				for _, w := range warned {
					if len(w) > 256 {
						t.Errorf("API servers cut a warning of %d characters: %s", len(w), w)
					}
				}
				write(&refusals, e.name, refused)
				write(&warnings, e.name, warned)
			})
		}
	}
	golden(t, "testdata/refusals.txt", refusals.String())
	golden(t, "testdata/warnings.txt", warnings.String())
}

func sorted(m map[string][]example) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func write(out *strings.Builder, name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	out.WriteString(name + "\n")
	for _, line := range lines {
		out.WriteString("    " + line + "\n")
	}
	out.WriteString("\n")
}

// golden compares with a file, or writes it with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; read the difference and run with -update (-want +got):\n%s", path, diff)
	}
}
