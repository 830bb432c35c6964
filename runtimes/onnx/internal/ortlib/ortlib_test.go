// SPDX-License-Identifier: Apache-2.0

package ortlib

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// packed is a package with one file besides the wanted one.
func packed(t *testing.T, member, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	for name, text := range map[string]string{"package/README.md": "read me", member: content} {
		if err := files.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestFetch gets the library from a registry of its own.
func TestFetch(t *testing.T) {
	const member = "package/lib/x.so"
	sum := sha256.Sum256([]byte("the library"))
	body := packed(t, member, "the library")
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/npm/onnxruntime-node/-/onnxruntime-node-"+Version+".tgz" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	}))
	defer registry.Close()
	t.Setenv("PATH", t.TempDir()) // no npm
	for _, test := range []struct {
		name, url, member, sum, want string
	}{
		{"fine", registry.URL + "/npm/", member, hex.EncodeToString(sum[:]), ""},
		{"another checksum", registry.URL + "/npm", member, strings.Repeat("0", 64), "it is not used"},
		{"no such file", registry.URL + "/npm", "package/y", "", "the package has no package/y"},
		{"no such package", registry.URL, member, "", "404"},
		{"nobody there", "http://127.0.0.1:1", member, "", "does not answer"},
	} {
		t.Setenv("NPM_CONFIG_REGISTRY", test.url)
		path := filepath.Join(t.TempDir(), Name)
		err := fetch(t.Context(), io.Discard, test.member, test.sum, path)
		data, readErr := os.ReadFile(path)
		switch {
		case test.want == "" && (err != nil || string(data) != "the library"):
			t.Errorf("%s: %v, %q", test.name, err, data)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		case test.want != "" && readErr == nil:
			t.Errorf("%s: a file is left", test.name)
		}
		if left, _ := filepath.Glob(filepath.Dir(path) + "/*.*.*.*"); len(left) > 0 {
			t.Errorf("%s: %v is left", test.name, left)
		}
	}
}

func TestRegistry(t *testing.T) {
	home := t.TempDir()
	t.Setenv("PATH", t.TempDir())
	t.Setenv("HOME", home)
	t.Setenv("NPM_CONFIG_REGISTRY", "")
	t.Setenv("npm_config_registry", "")
	if err := os.WriteFile(filepath.Join(home, ".npmrc"), []byte("# mine\nfund=false\nregistry = \"http://mirror.example/npm/\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := registryURL(t.Context()); err != nil || got != "http://mirror.example/npm/" {
		t.Errorf("%s (%v)", got, err)
	}
}
