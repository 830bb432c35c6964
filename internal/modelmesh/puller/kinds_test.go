// SPDX-License-Identifier: Apache-2.0

package puller

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/modelplane/modelplane/internal/fetch/fetchtest"
	"github.com/modelplane/modelplane/internal/fetch/fetchtest/gateway"
	"github.com/modelplane/modelplane/internal/modelmesh/wire"
)

// pull is one load and what it should come to.
type pull struct {
	name, path, key string
	want            map[string]string // what the runtime finds
	code            codes.Code
	wrong           string
}

// check runs loads one after the other.
func (s *scene) check(t *testing.T, pulls []pull) {
	t.Helper()
	for _, c := range pulls {
		t.Run(c.name, func(t *testing.T) {
			before := len(s.runtime.loads)
			_, err := s.mesh.LoadModel(t.Context(), &wire.LoadModelRequest{ModelId: "m", ModelPath: c.path, ModelKey: c.key})
			got := status.Convert(err)
			if got.Code() != c.code || !strings.Contains(got.Message(), c.wrong) || strings.Contains(got.Message(), hush) {
				t.Fatalf("%s: %s", got.Code(), got.Message())
			}
			if c.code != codes.OK {
				if left := s.left(t); len(left) > 0 || len(s.runtime.loads) != before {
					t.Errorf("left %v; the runtime heard of %v", left, s.runtime.loads[before:])
				}
				return
			}
			if diff := cmp.Diff(c.want, s.runtime.files); diff != "" {
				t.Error(diff)
			}
			last := s.runtime.loads[before]
			if strings.Contains(last.String(), hush) || filepath.Base(last.GetModelPath()) != lastName(c.path, "_model") {
				t.Errorf("the runtime was asked for %v", last)
			}
			if _, err := s.mesh.UnloadModel(t.Context(), &wire.UnloadModelRequest{ModelId: "m"}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestS3(t *testing.T) {
	server := gateway.Start(t)
	server.Put(t, "models", nil)
	server.Put(t, "models/iris/model.onnx", []byte("weights"))
	server.Put(t, "models/iris/sub/labels", []byte("x"))
	server.Put(t, "models/packed.zip", []byte("no archive"))
	server.Put(t, "models/same/same", []byte("twice"))
	server.Put(t, "models/schema.json", []byte("{}"))
	s := newScene(t)
	entry := map[string]any{
		"type": "s3", "access_key_id": gateway.AccessKey, "secret_access_key": gateway.SecretKey, "endpoint_url": server.URL,
		"region": gateway.Region, "default_bucket": "models",
	}
	s.store(t, "mine", entry)
	s.store(t, "default", entry)
	s.store(t, "wrong", map[string]any{
		"type": "s3", "access_key_id": gateway.AccessKey, "secret_access_key": hush, "endpoint_url": server.URL, "bucket": "models",
	})
	s.store(t, "nobody", map[string]any{"type": "s3", "endpoint_url": "http://127.0.0.1:1", "bucket": "models"})
	iris := map[string]string{"model.onnx": "weights", "sub/labels": "x"}
	s.check(t, []pull{
		{name: "a directory", path: "iris", key: `{"storage_key":"mine"}`, want: iris},
		{name: "a directory between slashes", path: "/iris/", key: `{"storage_key":"mine"}`, want: iris},
		{name: "the default entry", path: "iris", key: `{}`, want: iris},
		{name: "a file", path: "iris/model.onnx", key: `{"storage_key":"mine"}`, want: map[string]string{".": "weights"}},
		{name: "a file like an archive stays as it is", path: "packed.zip", key: `{"storage_key":"mine"}`, want: map[string]string{".": "no archive"}},
		{name: "a file in a directory of its name", path: "same", key: `{"storage_key":"mine"}`, want: map[string]string{"same": "twice"}},
		{name: "a bucket as a parameter", path: "iris", key: `{"storage_key":"mine","storage_params":{"bucket":"models"}}`, want: iris},
		{name: "a bucket as it was once written", path: "iris", key: `{"storage_key":"mine","bucket":"models"}`, want: iris},
		{name: "everything as parameters", path: "iris", key: `{"storage_params":{"type":"s3","bucket":"models","endpoint_url":"` + server.URL +
			`","access_key_id":"` + gateway.AccessKey + `","secret_access_key":"` + gateway.SecretKey + `"}}`, want: iris},
		{name: "a wrong path", path: "tulips", key: `{"storage_key":"mine"}`, code: codes.FailedPrecondition, wrong: "Cannot fetch s3://models/tulips: it has no files; check the path."},
		{name: "a wrong bucket", path: "iris", key: `{"storage_key":"mine","storage_params":{"bucket":"nothing"}}`, code: codes.FailedPrecondition, wrong: "NoSuchBucket"},
		{name: "wrong credentials", path: "iris", key: `{"storage_key":"wrong"}`, code: codes.FailedPrecondition, wrong: "access is denied (403)"},
		{name: "nobody there", path: "iris", key: `{"storage_key":"nobody"}`, code: codes.FailedPrecondition, wrong: "connection refused"},
	})
	t.Run("a schema", func(t *testing.T) {
		_, err := s.mesh.LoadModel(t.Context(), &wire.LoadModelRequest{ModelId: "m", ModelPath: "iris", ModelKey: `{"storage_key":"mine","schema_path":"schema.json"}`})
		if err != nil {
			t.Fatal(err)
		}
		var key struct {
			Schema string `json:"schema_path"`
			Size   int64  `json:"disk_size_bytes"`
		}
		text := s.runtime.loads[len(s.runtime.loads)-1].GetModelKey()
		if err := json.Unmarshal([]byte(text), &key); err != nil || key.Size != 8 {
			t.Errorf("%s: %v", text, err)
		}
		if content, err := os.ReadFile(key.Schema); err != nil || string(content) != "{}" {
			t.Errorf("%s: %q, %v", key.Schema, content, err)
		}
	})
	t.Run("an entry that changes", func(t *testing.T) {
		s.store(t, "wrong", entry)
		if _, err := s.mesh.LoadModel(t.Context(), &wire.LoadModelRequest{ModelId: "m", ModelPath: "iris", ModelKey: `{"storage_key":"wrong"}`}); err != nil {
			t.Error(err)
		}
	})
}

func TestWeb(t *testing.T) {
	server := fetchtest.New(t, map[string][]byte{"/models/a b.onnx": []byte("weights"), "/models/big": fetchtest.Content(1 << 20)})
	s := newScene(t)
	s.store(t, "web", map[string]any{"type": "http", "url": server.URL + "/models", "headers": map[string]any{"X-Token": hush, "X-List": []string{"a", "b"}}})
	s.check(t, []pull{
		{name: "a file", path: "a b.onnx", key: `{"storage_key":"web"}`, want: map[string]string{".": "weights"}},
		{name: "a header as a parameter", path: "a b.onnx", key: `{"storage_key":"web","storage_params":{"headers.X-More":"c"}}`, want: map[string]string{".": "weights"}},
		{name: "an address as a parameter", path: "models/a b.onnx", key: `{"storage_params":{"type":"http","url":"` + server.URL + `"}}`, want: map[string]string{".": "weights"}},
		{name: "a wrong path", path: "c.onnx", key: `{"storage_key":"web"}`, code: codes.FailedPrecondition, wrong: "it does not exist (404)"},
		{name: "a parameter for something else", path: "c", key: `{"storage_key":"web","storage_params":{"headers":"x"}}`, code: codes.InvalidArgument, wrong: `"headers" would replace something`},
	})
	requests := server.Requests()
	if got := requests[0].Header; got.Get("X-Token") != hush || got.Get("X-List") != "a, b" {
		t.Errorf("headers %v", got)
	}
	if !slices.ContainsFunc(requests, func(r *http.Request) bool { return r.Header.Get("X-More") == "c" && r.Header.Get("X-Token") == hush }) {
		t.Error("the header of the parameter did not arrive beside the entry's")
	}
}

// TestPullsAreFew: no more models are fetched at a time than allowed, one that waits can be given up, and what is given up
// in the middle leaves nothing.
func TestPullsAreFew(t *testing.T) {
	server := fetchtest.New(t, map[string][]byte{"/a": []byte("weights")})
	server.Spoil(fetchtest.Fault{Silent: true}, fetchtest.Fault{Silent: true})
	s := newScene(t)
	ctx, cancel := context.WithCancel(t.Context())
	key := `{"storage_params":{"type":"http","url":"` + server.URL + `"}}`
	results := make(chan error, 3)
	for i := range 3 {
		go func() {
			_, err := s.mesh.LoadModel(ctx, &wire.LoadModelRequest{ModelId: fmt.Sprint("m", i), ModelPath: "a", ModelKey: key})
			results <- err
		}()
	}
	for deadline := time.Now().Add(2 * time.Minute); len(server.Requests()) < 2; {
		if time.Now().After(deadline) {
			t.Fatal("two pulls did not begin")
		}
	}
	cancel()
	for range 3 {
		if err := <-results; status.Code(err) != codes.Canceled {
			t.Errorf("a load that was given up: %v", err)
		}
	}
	for i := range 3 { // the next one waits for what is left of the one before
		if _, err := s.mesh.UnloadModel(t.Context(), &wire.UnloadModelRequest{ModelId: fmt.Sprint("m", i)}); err != nil {
			t.Error(err)
		}
	}
	if left := s.left(t); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	const many = 16
	ended := make(chan error, many)
	for i := range many {
		go func() {
			_, err := s.mesh.LoadModel(t.Context(), &wire.LoadModelRequest{ModelId: fmt.Sprint("n", i), ModelPath: "a", ModelKey: key})
			ended <- err
		}()
	}
	for range many {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := server.Most(); n > s.Pulls {
		t.Errorf("%d pulls at a time, %d are allowed", n, s.Pulls)
	}
}

func TestGoogle(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"access_token":"` + hush + `","expires_in":3600}`))
	})
	mux.HandleFunc("GET /storage/v1/b/mine/o", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+hush {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"items":[{"name":"` + r.URL.Query().Get("prefix") + `model","size":"7"}]}`))
	})
	mux.HandleFunc("GET /storage/v1/b/mine/o/{name}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("weights")) })
	server := httptest.NewServer(mux)
	defer server.Close()
	s := newScene(t)
	s.env["STORAGE_EMULATOR_HOST"] = server.URL
	s.env["GCE_METADATA_HOST"] = "127.0.0.1:1"
	s.store(t, "google", map[string]any{
		"type": "gcs", "bucket": "mine", "client_email": "me@example.com", "token_uri": server.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	s.store(t, "broken", map[string]any{"type": "gcs", "bucket": "mine", "client_email": "me@example.com", "private_key": hush})
	s.check(t, []pull{
		{name: "a directory", path: "iris", key: `{"storage_key":"google"}`, want: map[string]string{"model": "weights"}},
		{name: "a broken key", path: "iris", key: `{"storage_key":"broken"}`, code: codes.FailedPrecondition, wrong: "not in PEM form"},
		{name: "no credentials", path: "iris", key: `{"storage_params":{"type":"gcs","bucket":"mine"}}`, code: codes.FailedPrecondition, wrong: "access is denied (403)"},
	})
}

func TestAzure(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.Header.Get("Authorization"), "SharedKey acct:"):
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Query().Get("comp") == "list":
			_, _ = w.Write([]byte(`<R><Blobs><Blob><Name>iris/model</Name><Properties><Content-Length>7</Content-Length></Properties></Blob></Blobs></R>`))
		case r.URL.Path == "/acct/box/iris/model":
			_, _ = w.Write([]byte("weights"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	s := newScene(t)
	s.env["AZURE_CLIENT_ID"] = "a pod's own identity, which does not count here"
	secret := base64.StdEncoding.EncodeToString([]byte(hush))
	s.store(t, "azure", map[string]any{
		"type": "azure", "account_name": "acct", "container": "box",
		"connection_string": "DefaultEndpointsProtocol=http;AccountName=acct;AccountKey=" + secret + ";BlobEndpoint=" + server.URL + "/acct;",
	})
	s.check(t, []pull{
		{name: "a directory", path: "iris", key: `{"storage_key":"azure"}`, want: map[string]string{"model": "weights"}},
		{name: "a file", path: "iris/model", key: `{"storage_key":"azure"}`, want: map[string]string{".": "weights"}},
		{name: "a wrong path", path: "tulips", key: `{"storage_key":"azure"}`, code: codes.FailedPrecondition, wrong: "it has no files"},
	})
}

func TestCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want codes.Code
	}{
		{fmt.Errorf("x: %w", os.ErrPermission), codes.FailedPrecondition},
		{fullDisk(t), codes.ResourceExhausted},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// fullDisk is the error of a disk that is full, from a device that always is.
func fullDisk(t *testing.T) error {
	t.Helper()
	device, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no device that is always full")
	}
	defer device.Close() //nolint:errcheck // it keeps nothing
	_, err = device.Write([]byte("x"))
	return fmt.Errorf("the destination cannot be written: %w", reason(err))
}
