// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/chart"
)

func TestCutTag(t *testing.T) {
	for reference, want := range map[string][2]string{
		"modelplane:abc":                {"modelplane", "abc"},
		"registry.example:5000/x/y:v1":  {"registry.example:5000/x/y", "v1"},
		"registry.example:5000/without": {},
		"":                              {},
	} {
		repository, tag, found := cutTag(reference)
		if found != (want[1] != "") || found && (repository != want[0] || tag != want[1]) {
			t.Errorf("%q: %q %q %v", reference, repository, tag, found)
		}
	}
}

// TestValues holds what the local cluster sets against the chart's own schema and templates.
func TestValues(t *testing.T) {
	objects, err := chart.Render("../../"+chartDir, chart.Release{Values: localValues("modelplane:tag1", "modelplane-pod:tag3", serverImage+":tag2", "modelplane-etcd:tag4", true)})
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, o := range objects {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, want := range []string{`"image":"modelplane:tag1"`, "image: modelplane-onnx:tag2", "image: modelplane-pod:tag3", `"image":"modelplane-etcd:tag4"`,
		`\"enableGatewayApi\": true`, `\"ingressDomain\": \"localhost\"`} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%s is nowhere in the chart's objects", want)
		}
	}
	// Both runtimes of the server have the image that is there.
	if other := "image: modelplane-onnx:v"; strings.Contains(all.String(), other) {
		t.Errorf("%s is in the chart's objects", other)
	}
	if _, err := chart.Render("../../"+chartDir, chart.Release{Values: imageValues("", "")}); err != nil {
		t.Error(err)
	}
}

// TestActivatorIsAskedFor: it costs memory, and is there for who asks for it, once.
func TestActivatorIsAskedFor(t *testing.T) {
	for asked, want := range map[bool]int{false: 0, true: 1} {
		u := &up{activator: asked}
		objects, err := chart.Render("../../"+chartDir, chart.Release{Values: u.withActivator(localValues("a:b", "c:d", serverImage+":e", "f:g", true))})
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, o := range objects {
			text, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if o.GetKind() == "Deployment" && o.GetName() == "modelplane-activator" && strings.Contains(string(text), `"replicas":1,`) {
				found++
			}
		}
		if found != want {
			t.Errorf("asked for it: %v, there are %d with one replica", asked, found)
		}
	}
}

func TestCopyTreeIsReadableByEverybody(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	if err := os.Mkdir(filepath.Join(from, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "sub", "model"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time over the first
		if err := copyTree(from, to); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for _, name := range []string{".", "sub", "sub/model"} {
		info, err := os.Stat(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = info.Mode().Perm().String()
	}
	if diff := cmp.Diff(map[string]string{".": "-rwxr-xr-x", "sub": "-rwxr-xr-x", "sub/model": "-rw-r--r--"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAsk(t *testing.T) {
	input := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(input, []byte(`{"instances":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	status, calls := http.StatusOK, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls > 4 {
			status = http.StatusOK
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("{}\n"))
	}))
	defer server.Close()
	if answer, err := ask(t.Context(), server.URL, input); err != nil || answer != "{}" {
		t.Errorf("%q %v", answer, err)
	}
	status = http.StatusServiceUnavailable
	if _, err := ask(t.Context(), server.URL, input); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("error %v", err)
	}
	try := func(ctx context.Context) (string, error) { return ask(ctx, server.URL, input) }
	if _, err := patiently(t.Context(), time.Minute, unreached, try); err == nil {
		t.Error("a refusal was not believed")
	}
	if answer, err := patiently(t.Context(), time.Minute, always, try); err != nil || answer != "{}" {
		t.Errorf("%q %v", answer, err)
	}
}

// TestGatewayManifests: every image is filled in, and the Gateway is the one that the configuration names.
func TestGatewayManifests(t *testing.T) {
	g := &gateway{controller: "controller:tag1", envoy: "envoy:tag2"}
	objects, err := chart.Objects(g.fill(gatewayManifests + "---\n" + certificatesJob))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, o := range objects {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "_IMAGE") {
			t.Errorf("%s %s has an image without a name", o.GetKind(), o.GetName())
		}
		found[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = true
		found[o.GetKind()] = true
	}
	for _, want := range []string{"Gateway " + gatewayName, "GatewayClass", "BackendTrafficPolicy", "Job " + gatewayNamespace + "/certificates"} {
		if !found[want] {
			t.Errorf("%s is missing", want)
		}
	}
}

// TestGatewayProxy: Envoy Gateway makes the name of its Gateway's.
func TestGatewayProxy(t *testing.T) {
	want := fmt.Sprintf("envoy-%s-%.4x", strings.ReplaceAll(gatewayName, "/", "-"), sha256.Sum256([]byte(gatewayName)))
	if gatewayProxy != want {
		t.Errorf("the proxy of %s is called %s, not %s", gatewayName, want, gatewayProxy)
	}
}

func TestMemoryOf(t *testing.T) {
	const summary = `{"node":{"nodeName":"local"},"pods":[
	{"podRef":{"name":"envoy-1","namespace":"envoy-gateway-system"},"containers":[
	  {"name":"envoy","memory":{"workingSetBytes":31457280}},{"name":"shutdown-manager","memory":{}}]},
	{"podRef":{"name":"iris","namespace":"default"},"containers":[{"name":"server","memory":{"workingSetBytes":31457280}}]}]}`
	if diff := cmp.Diff([]string{"envoy of pod envoy-1 takes 30 MiB"}, memoryOf(summary, gatewayNamespace)); diff != "" {
		t.Error(diff)
	}
	if got := memoryOf("not found", gatewayNamespace); got != nil {
		t.Error(got)
	}
}

// TestAskLocal reaches this machine by a name that no resolver has to know.
func TestAskLocal(t *testing.T) {
	input := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(input, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Host))
	}))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	host := "iris-default." + localDomain + ":" + port
	if answer, err := ask(t.Context(), "http://"+host, input); err != nil || answer != host {
		t.Errorf("%q %v", answer, err)
	}
}
