// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/modelplane/modelplane/internal/fetch/fetchtest/gateway"
)

const bucket = "models"

// storages are where models come from: a web server and an S3 server on this machine, at an address that pods reach.
type storages struct {
	web     *webServer
	buckets *gateway.Server
	host    string
	// archive holds the model.
	archive []byte
}

// openStorages starts both with the iris model in each, until the part of the test ends.
func (c cluster) openStorages() storages {
	c.Helper()
	s := storages{host: c.mustKubectl("get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)}
	model, err := os.ReadFile(filepath.Join(root, "examples/onnx/iris/model.onnx"))
	if err != nil {
		c.Fatal(err)
	}
	s.web, s.archive = c.serve(s.host), c.packed("iris/model.onnx", model)
	s.web.put("/iris.tar.gz", s.archive)
	s.buckets = gateway.StartAt(c, s.host)
	s.buckets.Put(c, bucket, nil)
	s.buckets.Put(c, bucket+"/iris/model.onnx", model)
	return s
}

// apply applies a manifest of testdata that names addresses and keys of the storages, and what else is given, as ${NAME}.
func (s storages) apply(c cluster, name string, more ...string) {
	c.Helper()
	c.mustKubectl("apply", "-f", c.manifest(name, append([]string{
		"${WEB}", s.web.Listener.Addr().String(), "${BUCKETS}", strings.TrimPrefix(s.buckets.URL, "http://"),
		"${REGION}", gateway.Region, "${ACCESS}", gateway.AccessKey, "${SECRET}", gateway.SecretKey,
	}, more...)...))
}

// packed is an archive with one file.
func (c cluster) packed(name string, content []byte) []byte {
	c.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
	_, failed := archive.Write(content)
	if err := errors.Join(err, failed, archive.Close(), compressed.Close()); err != nil {
		c.Fatal(err)
	}
	return out.Bytes()
}

// webServer has files that a test may change while it runs.
type webServer struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string][]byte
}

// serve starts a web server without files at an address of this machine.
func (c cluster) serve(host string) *webServer {
	c.Helper()
	w := &webServer{files: map[string][]byte{}}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		c.Fatal(err)
	}
	w.Server = httptest.NewUnstartedServer(w)
	if err := w.Listener.Close(); err != nil {
		c.Fatal(err)
	}
	w.Listener = listener
	w.Start()
	c.Cleanup(w.Close)
	return w
}

func (w *webServer) put(path string, content []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files[path] = content
}

func (w *webServer) ServeHTTP(answer http.ResponseWriter, question *http.Request) {
	w.mu.Lock()
	content, ok := w.files[question.URL.Path]
	w.mu.Unlock()
	if !ok {
		http.NotFound(answer, question)
		return
	}
	_, _ = answer.Write(content) // who goes away early misses something
}

// modelsComeFromStorages serves the same model from the web and from S3; the one of `make up` comes from a volume.
func (c cluster) modelsComeFromStorages() {
	c.openStorages().apply(c, "storage.yaml")
	for _, name := range []string{"from-web", "from-s3"} {
		c.becomesReady("e2e-storage", name)
		c.irisAnswers("e2e-storage", name)
	}
	c.mustKubectl("delete", "namespace", "e2e-storage", "--wait=false")
}

// becomesReady waits for an InferenceService, and shows what it says when it does not become ready.
func (c cluster) becomesReady(namespace, name string) {
	c.Helper()
	out, err := c.kubectl("wait", "--for=condition=Ready", "--timeout=5m", "-n", namespace, "inferenceservice/"+name)
	if err != nil {
		says, _ := c.kubectl("get", "inferenceservice", name, "-n", namespace, "-o", "jsonpath={.status.conditions}")
		c.Fatalf("%s: %v\n%s\n%s", name, err, out, says)
	}
}
