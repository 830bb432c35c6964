// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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
	objects, err := chart.Render("../../"+chartDir, chart.Release{Values: localValues("modelplane:tag1", "modelplane-pod:tag3", serverImage+":tag2", "modelplane-etcd:tag4")})
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
	for _, want := range []string{`"image":"modelplane:tag1"`, "image: modelplane-onnx:tag2", "image: modelplane-pod:tag3", `"image":"modelplane-etcd:tag4"`} {
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
