// SPDX-License-Identifier: Apache-2.0

package runtimes_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/modelmesh/runtimes"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), admission.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

// noon is when all plans are made.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func planner(t testing.TB) *cli.Planner {
	t.Helper()
	source := settings.NewSource()
	schemas, err := admission.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return &cli.Planner{
		Scheme: scheme, Schemas: schemas, Namespace: "models", Kinds: runtimes.NewRules(source).Guard().Kinds,
		Controllers: runtimes.New(source).WithClock(noon).Controllers(),
	}
}

// TestPlan decides about manifests in files, without a cluster, at noon of the first of January 2026.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", plan)
}

func plan(t *testing.T, in []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := planner(t).PlanText(t.Context(), "in.yaml", in, &out); err != nil {
		out.WriteString("refused: " + err.Error() + "\n")
	}
	return out.Bytes()
}

// TestSamples: what users of the archived project have in their repositories is accepted, and becomes a Deployment.
func TestSamples(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(checkout.Manifests(t, "modelmesh"), "runtime-*.yaml"))
	if len(files) == 0 {
		t.Fatal("there are no runtimes among the manifests of users")
	}
	become(t, files)
}

// TestShipped: so does what comes with the chart.
func TestShipped(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "..", "charts", "modelplane", "files", "meshruntimes", "*.yaml"))
	if len(files) == 0 {
		t.Fatal("the chart has no multi-model runtimes")
	}
	become(t, files)
	for _, file := range files { // what becomes of it is in a golden file
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		in := filepath.Join("testdata", "plan", "shipped-"+strings.TrimSuffix(filepath.Base(file), ".yaml"), "in.yaml")
		if have, err := os.ReadFile(in); err != nil || !strings.HasSuffix(string(have), "\n---\n"+string(text)) {
			t.Errorf("%s does not end with what is in %s, %v", in, file, err)
		}
	}
}

// TestEveryKey: whatever can be set is set in some golden file, here or in that of namespaces.
func TestEveryKey(t *testing.T) {
	set := map[string]bool{}
	for _, pattern := range []string{"testdata/plan/*/in.yaml", "../namespaces/testdata/plan/*/in.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) < 10 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for doc := range strings.SplitSeq(string(text), "\n---\n") {
				var m corev1.ConfigMap
				var values map[string]any
				if yaml.Unmarshal([]byte(doc), &m) == nil && m.Kind == "ConfigMap" && yaml.Unmarshal([]byte(m.Data[settings.Key]), &values) == nil {
					keysOf(values, "", set)
				}
			}
		}
	}
	for _, key := range fieldsOf(reflect.TypeFor[settings.Settings](), "") {
		if !set[strings.ToLower(key)] {
			t.Errorf("no case sets %s", key)
		}
	}
}

func keysOf(values map[string]any, above string, into map[string]bool) {
	for key, value := range values {
		into[strings.ToLower(above+key)] = true
		if below, ok := value.(map[string]any); ok {
			keysOf(below, above+key+".", into)
		}
	}
}

// fieldsOf are the keys of a struct and of those inside it.
func fieldsOf(typ reflect.Type, above string) (out []string) {
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if of := typ.Field(i).Type; of.Kind() == reflect.Struct {
			out = append(out, fieldsOf(of, above+name+".")...)
		} else {
			out = append(out, above+name)
		}
	}
	return out
}

// become fails the test unless each runtime becomes a Deployment of its name.
func become(t *testing.T, files []string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		enabled := "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: models, labels: {modelmesh-enabled: \"true\"}}\n---\n"
		out := string(plan(t, []byte(enabled+string(text))))
		name := "  name: modelmesh-serving-" + strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "runtime-"), ".yaml") + "\n"
		if !strings.Contains(out, "kind: Deployment") || !strings.Contains(out, name) {
			t.Errorf("%s becomes\n%s", filepath.Base(file), out)
		}
	}
}

// TestKeepsNothing: what the engine keeps of a look does not hold the runtime.
func TestKeepsNothing(t *testing.T) {
	yes := true
	for _, c := range runtimes.New(settings.NewSource()).Controllers()[1:] {
		domaintest.KeepsNothing(t, c, &engine.World{Scheme: scheme}, func() *v1alpha1.ClusterServingRuntime {
			return &v1alpha1.ClusterServingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: v1alpha1.ServingRuntimeSpec{MultiModel: &yes}}
		})
	}
}
