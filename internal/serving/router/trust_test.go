// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asCaller makes the test binary a router that calls the service of that address once, and writes what it is answered.
const asCaller = "MODELPLANE_TEST_CALLS"

// TestTrust: a step that speaks TLS is called where its authority is in the directory that the pod of a graph has, and nowhere
// else. Programs read that once, so that each case has a process of its own.
func TestTrust(t *testing.T) {
	if url := os.Getenv(asCaller); url != "" {
		r := made(t, `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"`+url+`"}]}}}`, "", usual)
		_, _ = fmt.Fprintln(os.Stdout, "ANSWER "+ask(t, served(t, r).URL, "[1]"))
		return
	}
	t.Parallel()
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) }))
	defer service.Close()
	// As the kubelet mounts a ConfigMap.
	mounted, empty := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(mounted, "..2026"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw})
	for _, err := range []error{
		os.WriteFile(filepath.Join(mounted, "..2026", "ca.crt"), text, 0o600),
		os.Symlink("..2026", filepath.Join(mounted, "..data")),
		os.Symlink("..data/ca.crt", filepath.Join(mounted, "ca.crt")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]string{mounted: "ANSWER 200 application/json [1]", empty: "ANSWER 500"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTrust$")
		cmd.Env = append(os.Environ(), asCaller+"="+service.URL, "SSL_CERT_DIR="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v\n%s\nwant %s", err, out, want)
		}
		if dir == empty && !strings.Contains(string(out), "unknown authority") {
			t.Errorf("it does not say why:\n%s", out)
		}
	}
}
