// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
)

// TestOffline does with every manifest what `modelplane plan` does first, without any cluster.
func TestOffline(t *testing.T) {
	for _, dir := range []string{ours, theirs} {
		t.Run(strings.Trim(dir, "./"), func(t *testing.T) {
			for _, m := range read(t, dir) {
				t.Run(m.name, func(t *testing.T) { admitted(t, m) })
			}
		})
	}
}

func admitted(t *testing.T, m manifest) {
	if m.GetKind() == "ConfigMap" {
		understood(t, m)
		return
	}
	if kubernetes.Recognizes(m.GroupVersionKind()) {
		decoded(t, kubernetes, m)
		return
	}
	schemas, err := admission.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if err := schemas.Admit(t.Context(), m.DeepCopy(), nil); err != nil {
		t.Errorf("refused by the schema: %v", err)
	}
	scheme := runtime.NewScheme()
	if err := admission.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoded(t, scheme, m)
}

// kubernetes knows what stands beside our kinds: the database and the bucket of a server.
var kubernetes = clientgoscheme.Scheme

func decoded(t *testing.T, scheme *runtime.Scheme, m manifest) {
	t.Helper()
	into, err := scheme.New(m.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	if err := admission.Strict(m.raw, into.(client.Object)); err != nil {
		t.Errorf("refused by strict decoding: %v", err)
	}
}

// understood reads a manifest as the configuration of the platform.
func understood(t *testing.T, m manifest) {
	if forCatalog(m) {
		return // the catalog's own tests read it
	}
	if m.GetName() != config.Name {
		t.Errorf("nobody reads a ConfigMap %s", m.GetName())
	}
	data, _, err := unstructured.NestedStringMap(m.Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	if _, problems := config.Parse(data, nil); len(problems) > 0 {
		t.Errorf("problems: %+v", problems)
	}
}

// TestEveryKindHasAnExample fails for a new kind, or a new version of one, that nobody wrote an example for.
func TestEveryKindHasAnExample(t *testing.T) {
	shown := map[schema.GroupVersionKind]bool{}
	for _, m := range read(t, ours) {
		shown[m.GroupVersionKind()] = true
	}
	defs, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, def := range defs {
		for _, version := range def.Spec.Versions {
			gvk := schema.GroupVersionKind{Group: def.Spec.Group, Version: version.Name, Kind: def.Spec.Names.Kind}
			if version.Served && !shown[gvk] {
				t.Errorf("no example of %s in version %s; add examples/<domain>/%s.yaml", gvk.GroupKind(), gvk.Version, strings.ToLower(gvk.Kind))
			}
		}
	}
}

// host is the first part of an image reference when it names a registry.
var host = regexp.MustCompile(`image: *["']?[^/\s"']+[.:][^/\s"']*/`)

// TestExamplesExplainThemselves keeps the examples readable, and usable by everybody.
func TestExamplesExplainThemselves(t *testing.T) {
	for _, m := range read(t, ours) {
		first, _, _ := strings.Cut(string(m.text), "\n")
		if !strings.HasPrefix(first, "# ") || !strings.HasSuffix(first, ".") {
			t.Errorf("%s: the first line must be a comment that says in a sentence what it is for, have %q", m.name, first)
		}
		if len(first) > 120 {
			t.Errorf("%s: the first line has %d characters, more than 120", m.name, len(first))
		}
		second, _, _ := strings.Cut(strings.TrimPrefix(string(m.text), first+"\n"), "\n")
		if file := filepath.Join(ours, m.name+".yaml"); exists(file) && !quick(m) && (!strings.HasPrefix(second, "# Needs ") || len(second) > 120) {
			t.Errorf("%s: the second line must say in 120 characters what the example needs, have %q", m.name, second)
		}
		if found := host.FindString(string(m.text)); found != "" {
			t.Errorf("%s: %s names a registry; use the name of a public image", m.name, found)
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// forCatalog tells whether a ConfigMap lists sources of the model catalog.
func forCatalog(m manifest) bool { return m.GetLabels()["opendatahub.io/catalog-source"] == "true" }

// quick tells whether an example runs with what `make up` has brought.
func quick(m manifest) bool { return strings.HasPrefix(m.name, "quickstart/") }

// TestFoldersLeaveThePlatformAlone: whoever applies a whole folder gets examples, and loses neither the platform's
// configuration nor the servers that others' models have, nor the services of the quick start.
func TestFoldersLeaveThePlatformAlone(t *testing.T) {
	started := map[string]bool{"iris": true} // by `make up`
	for _, m := range read(t, ours) {
		if quick(m) && m.GetKind() == "InferenceService" {
			started[m.GetName()] = true
		}
	}
	for _, m := range read(t, ours) {
		if strings.HasPrefix(m.name, "platform/") {
			continue
		}
		switch m.GetKind() {
		case "ConfigMap":
			if forCatalog(m) {
				continue
			}
			t.Errorf("%s takes the place of the platform's configuration; move it to the folder platform", m.name)
		case "ClusterServingRuntime":
			if strings.Contains(string(m.raw), `"autoSelect":true`) {
				t.Errorf("%s becomes the server of models of every namespace; move it to the folder platform", m.name)
			}
		case "InferenceService":
			if !quick(m) && started[m.GetName()] {
				t.Errorf("%s takes the place of a service of the quick start; give it another name", m.name)
			}
		}
	}
}

// TestServicesAreListed keeps the index of the examples whole: people look there first.
func TestServicesAreListed(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(ours, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range read(t, ours) {
		if kind := m.GetKind(); kind != "InferenceService" && kind != "InferenceGraph" {
			continue
		}
		if !strings.Contains(string(index), "]("+m.name+".yaml)") {
			t.Errorf("examples/README.md has no link to %s.yaml", m.name)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(index), -1) {
		if _, err := os.Stat(filepath.Join(ours, link[1])); err != nil {
			t.Errorf("examples/README.md leads nowhere: %v", err)
		}
	}
}
