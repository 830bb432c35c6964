// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestPlan decides about the namespace "models" and about the manager's own among the manifests of a file. The front matter
// "without: GROUP" is an API that the cluster does not serve.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", plan)
}

func plan(t *testing.T, in []byte) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), admission.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	world := &engine.World{Scheme: scheme, Without: testkit.FrontMatter(in)["without"]}
	for _, doc := range bytes.Split(in, []byte("---\n")) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &u.Object); err != nil {
			t.Fatal(err)
		}
		world.Objects = append(world.Objects, u)
	}
	c := Controller(settings.NewSource())
	var out bytes.Buffer
	for _, name := range []string{"models", "modelplane-system"} {
		ns := &corev1.Namespace{}
		if world.Get(t.Context(), types.NamespacedName{Name: name}, ns) != nil {
			continue
		}
		d, err := c.Decide(t.Context(), ns, world)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "# Namespace %s\n", name)
		if d.Problem != nil {
			fmt.Fprintf(&out, "# %s %s: %s\n", d.Problem.Family, d.Problem.Reason, d.Problem.Message)
		}
		if d.KeepChildren {
			fmt.Fprintln(&out, "# everything is left as it is")
		}
		for _, child := range d.Children {
			out.WriteString("---\n")
			out.Write(readable(t, child))
		}
	}
	return out.Bytes()
}

// readable shows bytes as the text that they are.
func readable(t *testing.T, u *unstructured.Unstructured) []byte {
	t.Helper()
	raw, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	var bytesOf struct{ BinaryData, Data map[string][]byte }
	if u.GetKind() == "ConfigMap" || u.GetKind() == "Secret" {
		if err := json.Unmarshal(raw, &bytesOf); err != nil {
			t.Fatal(err)
		}
	}
	texts := map[string]any{}
	for _, m := range []map[string][]byte{bytesOf.BinaryData, bytesOf.Data} {
		for key, value := range m {
			var v any
			if json.Unmarshal(value, &v) != nil {
				v = string(value)
			}
			texts[key] = v
		}
	}
	shown := u.DeepCopy().Object
	if len(texts) > 0 {
		delete(shown, "binaryData")
		shown["data"] = texts
	}
	text, err := yaml.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestConnection: a namespace gets a root of its own and every file; nothing of the connection is in an error.
func TestConnection(t *testing.T) {
	for _, c := range []struct{ in, endpoints, root, said string }{
		{in: `{"endpoints":"http://etcd:2379","root_prefix":"root"}`, endpoints: "http://etcd.home:2379", root: "root/mm_ns/models"},
		{in: `{"endpoints":"https://a.b:2379,https://etcd-service:1","root_prefix":"/root/"}`, endpoints: "https://a.b:2379,https://etcd-service.home:1", root: "/root/mm_ns/models"},
		{in: `{"endpoints":"http://10.0.0.1:2379,http://[::1]:2379,http://localhost:2379"}`, endpoints: "http://10.0.0.1:2379,http://[::1]:2379,http://localhost:2379", root: "/mm_ns/models"},
		{in: `secret-word`, said: "is no JSON object"},
		{in: `{"password":"secret-word"}`, said: "has no endpoints"},
	} {
		source := map[string][]byte{connectionKey: []byte(c.in), "ca.crt": []byte("certificate")}
		got, err := connectionFor(source, "models", "home")
		if c.said != "" {
			if err == nil || !strings.Contains(err.Error(), c.said) || strings.Contains(err.Error(), "secret-word") {
				t.Errorf("%s: %v", c.in, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var is struct {
			Endpoints string
			Root      string `json:"root_prefix"`
		}
		if err := json.Unmarshal(got[connectionKey], &is); err != nil {
			t.Fatal(err)
		}
		if is.Endpoints != c.endpoints || is.Root != c.root || string(got["ca.crt"]) != "certificate" || string(source[connectionKey]) != c.in {
			t.Errorf("%s becomes %s", c.in, got)
		}
	}
	if _, err := connectionFor(map[string][]byte{"x": nil}, "models", "home"); err == nil {
		t.Error("a Secret without the key is taken")
	}
}

func TestTypes(t *testing.T) {
	got := typesOf("rt:x", []string{"mt:a", "mt:a:1"}, []string{"pv:grpc-v2", "pv:v2"})
	want := []string{"rt:x", "mt:a", "mt:a:1", "mt:a|pv:grpc-v2", "mt:a|pv:v2", "mt:a:1|pv:grpc-v2", "mt:a:1|pv:v2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
