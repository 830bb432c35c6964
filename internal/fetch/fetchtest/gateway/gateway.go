// SPDX-License-Identifier: Apache-2.0

// Package gateway runs a real S3 server for tests: Versity's gateway in front of a directory. It has a Go module of its
// own, so that what it needs stays out of the binary.
package gateway

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/s3"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
	"github.com/modelplane/modelplane/internal/testkit/freeport"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

// Credentials of the server.
const (
	AccessKey = "test-access"
	SecretKey = "test-secret-key"
	Region    = "us-east-1"
)

// Server is a running one.
type Server struct {
	// URL of the server, and the directory whose subdirectories are its buckets.
	URL, Dir string

	client *http.Client
}

// Identity is what a server shows to those who trust its roots, all in PEM.
type Identity struct{ Roots, Certificate, Key []byte }

// Binary builds the server, unless it is built already, and returns its path.
func Binary() (string, error) {
	module, err := checkout.Dir("internal", "fetch", "fetchtest", "gateway", "versitygw")
	if err != nil {
		return "", err
	}
	command := exec.Command("go", "tool", "-C", module, "-n", "versitygw")
	command.Env = append(os.Environ(), "CGO_ENABLED=0") // as it was built before, also for a test that needs cgo itself
	var complaints strings.Builder
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("build the S3 server: %w\n%s", err, complaints.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// Start runs the server until the test ends, for this machine alone.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1")
}

// StartAt runs the server at an address of this machine, until the test ends.
func StartAt(t testing.TB, host string) *Server {
	t.Helper()
	s := &Server{Dir: t.TempDir(), client: http.DefaultClient}
	s.URL = "http://" + s.run(t, host)
	return s
}

// StartTLS is StartAt with an identity.
func StartTLS(t testing.TB, host string, as Identity) *Server {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(as.Roots) {
		t.Fatal("no certificate among the roots")
	}
	s := &Server{Dir: t.TempDir(), client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}}
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := errors.Join(os.WriteFile(certificate, as.Certificate, 0o600), os.WriteFile(key, as.Key, 0o600)); err != nil {
		t.Fatal(err)
	}
	s.URL = "https://" + s.run(t, host, "--cert", certificate, "--key", key)
	return s
}

// run gives the address at which the server listens.
func (s *Server) run(t testing.TB, host string, args ...string) string {
	t.Helper()
	binary, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(host, strconv.Itoa(freeport.At(t, host)))
	var log bytes.Buffer
	args = append(args, "--port", address, "--access", AccessKey, "--secret", SecretKey, "--region", Region,
		"--quiet", "--keep-alive", "posix", "--sidecar", t.TempDir(), s.Dir)
	command := exec.Command(binary, args...)
	command.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	command.Stdout, command.Stderr = &log, &log
	if err := guard.Start(command); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = guard.Wait(command) // it is killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill() // it may have ended
		<-ended
	})
	for deadline := time.Now().Add(30 * time.Second); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return address
		}
		select {
		case <-ended:
			t.Fatalf("the S3 server ended: %s", &log)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the S3 server does not listen: %v", err)
		}
	}
}

// Put makes a bucket or uploads an object; path is BUCKET or BUCKET/KEY.
func (s *Server) Put(t testing.TB, path string, content []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/"+path, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(content)
	request.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(digest[:]))
	s3.Sign(request, s3.Keys{ID: AccessKey, Secret: SecretKey}, Region, time.Now())
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK { // only shown
		t.Fatalf("put %s: %s\n%s", path, response.Status, body)
	}
}
