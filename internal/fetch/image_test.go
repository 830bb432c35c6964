// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modelplane/modelplane/internal/fetch/fetchtest"
)

// layerOf is a layer with files by name; those without content are links when their name has an arrow.
func layerOf(t *testing.T, entries ...string) v1.Layer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(entries); i += 2 {
		h := &tar.Header{Name: entries[i], Size: int64(len(entries[i+1])), Mode: 0o644}
		if link, target, ok := strings.Cut(entries[i], " -> "); ok {
			h.Name, h.Linkname, h.Typeflag = link, target, tar.TypeLink
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(entries[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func imageOf(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func artifactOf(t *testing.T, content map[string]string) v1.Image {
	t.Helper()
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for title, text := range content {
		var err error
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:       static.NewLayer([]byte(text), "application/octet-stream"),
			Annotations: map[string]string{"org.opencontainers.image.title": title},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return image
}

// pushImage uploads layers and manifest, which is all that is read again.
func pushImage(t *testing.T, registry, reference string, image v1.Image) {
	t.Helper()
	repository, tag, _ := strings.Cut(reference, ":")
	put := func(method, address, kind string, content []byte) {
		request, err := http.NewRequestWithContext(t.Context(), method, registry+"/v2/"+repository+address, bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", kind)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusCreated {
			t.Fatalf("push %s: %s", address, response.Status)
		}
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			t.Fatal(err)
		}
		content, err := layer.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		put(http.MethodPost, "/blobs/uploads/?digest="+digest.String(), "application/octet-stream", all)
	}
	manifest, err := image.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	kind, err := image.MediaType()
	if err != nil {
		t.Fatal(err)
	}
	put(http.MethodPut, "/manifests/"+tag, string(kind), manifest)
}

// guarded is a registry that wants a token, which only one user gets.
func guarded(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case r.URL.Path == "/token" && user == "robot" && password == hush && r.FormValue("scope") == "repository:org/iris:pull":
			fmt.Fprintf(w, `{"token": "registry-%s"}`, hush)
		case r.URL.Path == "/token":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Header.Get("Authorization") != "Bearer registry-"+hush:
			w.Header().Set("Www-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, r.Host))
			w.WriteHeader(http.StatusUnauthorized)
		default:
			inner.ServeHTTP(w, r)
		}
	})
}

func TestImages(t *testing.T) {
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	open, closed := httptest.NewServer(inner), httptest.NewServer(guarded(inner))
	t.Cleanup(open.Close)
	t.Cleanup(closed.Close)
	host := strings.TrimPrefix(open.URL, "http://")
	large := string(fetchtest.Content(300 << 10))
	push := func(reference string, image v1.Image) { pushImage(t, open.URL, reference, image) }
	push("org/iris:v1", imageOf(t,
		layerOf(t, "bin/sh", "x", "models/old", "old", "models/dir/gone", "x", "models/model.onnx", "before", "models/opaque/x", "x"),
		layerOf(t, "models/.wh.old", "", "models/dir/.wh.gone", "", "models/model.onnx", large, "models/opaque/.wh..wh..opq", "", "models/opaque/y", "y",
			"models/same -> models/model.onnx", "")))
	push("org/none:v1", imageOf(t, layerOf(t, "bin/sh", "x")))
	push("org/out:v1", imageOf(t, layerOf(t, "bin/sh", "x", "models/sh -> bin/sh", "")))
	push("org/files:v1", artifactOf(t, map[string]string{"model.onnx": "weights", "labels/names": "a b"}))
	config := filepath.Join(t.TempDir(), "config.json")
	auth := base64.StdEncoding.EncodeToString([]byte("robot:" + hush))
	closedHost := strings.TrimPrefix(closed.URL, "http://")
	if err := os.WriteFile(config, []byte(`{"auths": {"https://`+closedHost+`/v2/": {"auth": "`+auth+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	iris := map[string]string{"model.onnx": large, "opaque/y": "y", "same": large}
	runCases(t, map[string]string{"KSERVE_OCI_INSECURE_REGISTRY": "true"}, []cloudCase{
		{name: "an image", source: "oci://" + host + "/org/iris:v1", want: iris},
		{name: "an artifact", source: "oci://" + host + "/org/files:v1", want: map[string]string{"model.onnx": "weights", "labels/names": "a b"}},
		{name: "with a pull secret", source: "oci://" + closedHost + "/org/iris:v1", env: map[string]string{"KSERVE_OCI_DOCKER_CONFIG": config}, want: iris},
		{name: "without one", source: "oci://" + closedHost + "/org/iris:v1", wrong: "(401); check the image pull secret"},
		{name: "no tag", source: "oci://" + host + "/org/iris:v2", wrong: "(404)"},
		{name: "no model", source: "oci://" + host + "/org/none:v1", wrong: "no files in /models"},
		{name: "a link out of it", source: "oci://" + host + "/org/out:v1", wrong: "link out of /models"},
		{name: "no name", source: "oci://Host/Upper", wrong: "names no image"},
	})
}
