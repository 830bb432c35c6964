// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestCatalogServes starts the program as other installations do, with a database that it does not need, asks it over HTTPS, and
// ends it.
func TestCatalogServes(t *testing.T) {
	dir := t.TempDir()
	pair, err := certs.NewPair(time.Now(), "catalog", []string{"localhost"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"tls.crt": pair.Certificate, "tls.key": pair.Key,
		"sources.yaml": []byte("catalogs: [{id: a, type: yaml, properties: {yamlCatalogPath: models.yaml}}]"), "models.yaml": []byte("models: [{name: mine}]"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := testkit.FreePort(t)
	p := run(t, []string{"PGHOST=database", "PGPASSWORD=do-not-tell", "CATALOG_LEADER_HEARTBEAT=1s"},
		"catalog", fmt.Sprintf("--listen=localhost:%d", port), "--catalogs-path="+filepath.Join(dir, "sources.yaml"),
		"--tls-cert-file="+filepath.Join(dir, "tls.crt"), "--tls-key-file="+filepath.Join(dir, "tls.key"), "--shutdown-delay=0s")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pair.Roots)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer c.CloseIdleConnections()
	testkit.Eventually(t, patience, "the catalog to answer", func() error {
		resp, err := c.Get(fmt.Sprintf("https://localhost:%d/api/model_catalog/v1alpha1/models", port))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(body), `"name":"mine"`) {
			return errors.Join(err, fmt.Errorf("%s: %s", resp.Status, body))
		}
		return nil
	})
	p.Signal(t, syscall.SIGTERM)
	if code := p.ExitCode(t, patience); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if log := p.Output(); !strings.Contains(log, "PGHOST") || !strings.Contains(log, "CATALOG_LEADER_HEARTBEAT") || strings.Contains(log, "do-not-tell") {
		t.Error("the log does not name the variables that are not used, or tells their values")
	}
}

// TestCatalogPageIsTrue does what docs/model-catalog.md says first, in the shell of a person who has never done it.
func TestCatalogPageIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../../docs/model-catalog.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```console\n")
	block, _, _ = strings.Cut(block, "```")
	script := strings.ReplaceAll("\n"+block, "\n$ ", "\n")
	script = strings.ReplaceAll(script, "8080", fmt.Sprint(testkit.FreePort(t)))
	dir := t.TempDir()
	program := fmt.Sprintf("#!/bin/sh\nexec env %s=1 %s \"$@\" --shutdown-delay=0s\n", asCommand, os.Args[0])
	if err := os.WriteFile(filepath.Join(dir, "modelplane"), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("bash", "-ec", "trap 'kill %1; wait' EXIT"+script)
	c.Dir, c.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if !strings.Contains(string(out), `"name":"team/flowers"`) {
		t.Errorf("%v:\n%s", err, out)
	}
}
