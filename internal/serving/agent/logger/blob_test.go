// SPDX-License-Identifier: Apache-2.0

package logger

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// object is what a storage got.
type object struct {
	method, path, query string
	header              http.Header
	body                string
}

func newStorage(t *testing.T) (string, chan object) {
	t.Helper()
	objects := make(chan object, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		if strings.Contains(req.URL.Path, "computeMetadata") {
			_, _ = w.Write([]byte(`{"access_token":"of-the-machine","expires_in":3600}`))
			return
		}
		objects <- object{req.Method, req.URL.Path, req.URL.RawQuery, req.Header, string(body)}
		if req.Method == http.MethodPut {
			w.WriteHeader(http.StatusCreated)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, objects
}

func variables(of map[string]string) func(string) string {
	return func(name string) string { return of[name] }
}

var some = []Event{
	{ID: "id-1", Kind: Request, Time: time.Unix(1, 5).UTC(), ContentType: "application/json", Headers: map[string][]string{"X-A": {"1"}}, Body: []byte("question")},
	{ID: "id-1", Kind: Response, Time: time.Unix(2, 0).UTC(), Status: 200, Body: []byte("answer, \"quoted\"")},
}

func TestStorages(t *testing.T) {
	at, objects := newStorage(t)
	key := "logs/models/iris/predictor/all/day/id-1-request.json"
	for _, c := range []struct {
		url    string
		env    map[string]string
		method string
		path   string
		header map[string]string
	}{
		{"s3://bucket/logs/", map[string]string{"AWS_ENDPOINT_URL": at, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hush"},
			http.MethodPut, "/bucket/" + key, map[string]string{"Authorization": `^AWS4-HMAC-SHA256 Credential=id/.*x-amz-content-sha256`, "Content-Type": "^application/json$"}},
		{"gs://bucket/logs", map[string]string{"STORAGE_EMULATOR_HOST": at, "GCE_METADATA_HOST": strings.TrimPrefix(at, "http://")},
			http.MethodPost, "/upload/storage/v1/b/bucket/o", map[string]string{"Authorization": "^Bearer of-the-machine$"}},
		{"abfs://bucket@account/logs", map[string]string{"AZURE_SERVICE_URL": at, "AZURE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCESS_KEY": "aHVzaA=="},
			http.MethodPut, "/bucket/" + key, map[string]string{"Authorization": "^SharedKey account:", "X-Ms-Blob-Type": "^BlockBlob$"}},
	} {
		t.Run(c.url, func(t *testing.T) {
			b, err := NewBlob(BlobOptions{URL: c.url, Path: "/all/day/", About: about, Env: variables(c.env)})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Send(t.Context(), some[:1]); err != nil {
				t.Fatal(err)
			}
			got := <-objects
			if got.method != c.method || got.path != c.path {
				t.Errorf("it was %s %s", got.method, got.path)
			}
			if got.query != "" && !strings.Contains(got.query, "name=logs%2Fmodels%2Firis%2Fpredictor%2Fall%2Fday%2Fid-1-request.json") {
				t.Errorf("the query is %s", got.query)
			}
			for name, shape := range c.header {
				if !regexp.MustCompile(shape).MatchString(got.header.Get(name)) {
					t.Errorf("header %s is %q", name, got.header.Get(name))
				}
			}
			var r map[string]any
			if err := json.Unmarshal([]byte(got.body), &r); err != nil {
				t.Fatal(err)
			}
			source := r["sourceUri"].(map[string]any)
			scheme, _, _ := strings.Cut(c.url, ":")
			if source["Path"] != "pod-1" || r["url"].(map[string]any)["Scheme"] != scheme {
				t.Errorf("addresses are %v and %v", source, r["url"])
			}
			delete(r, "url")
			delete(r, "sourceUri")
			want := map[string]any{
				"bytes": "cXVlc3Rpb24=", "contentType": "application/json", "reqType": eventType + "request", "id": "id-1",
				"inferenceService": "iris", "namespace": "models", "component": "predictor", "metadata": map[string]any{"X-A": []any{"1"}},
				"annotations": map[string]any{"team": "ä"}, "occurrenceTime": "1970-01-01T00:00:01.000000005Z",
			}
			if diff := cmp.Diff(want, r); diff != "" {
				t.Errorf("the record (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBatches: objects have as many events as they may, in order, and what waits at the end is stored as well.
func TestBatches(t *testing.T) {
	at, objects := newStorage(t)
	sink, err := NewBlob(BlobOptions{URL: "s3://bucket", Path: "p", Size: 3, Env: variables(map[string]string{"AWS_ENDPOINT_URL": at, "awsAnonymousCredential": "true"})})
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, sink, func(o *Options) { o.Mode, o.Workers = ModeRequest, 1 }, echo)
	for _, body := range []string{"1", "2", "3", "4"} {
		post(t, b.URL, body, http.Header{"Ce-Id": {"../" + body}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b.Close(ctx)
	var records []record
	first := <-objects
	if err := json.Unmarshal([]byte(first.body), &records); err != nil || len(records) != 3 || string(records[2].Bytes) != "3" {
		t.Errorf("the first object has %s, %v", first.body, err)
	}
	var alone record
	if second := <-objects; json.Unmarshal([]byte(second.body), &alone) != nil || string(alone.Bytes) != "4" {
		t.Errorf("the second object has %s", second.body)
	}
	if !regexp.MustCompile(`^/bucket/p/___1-[0-9a-f]{8}-request\.json$`).MatchString(first.path) {
		t.Errorf("the first object is at %s", first.path)
	}
	if b.Counts.Of(Sent) != 4 {
		t.Errorf("%d were sent", b.Counts.Of(Sent))
	}
}

// TestLargeBatches: a batch that is not full does not keep memory from others until it is.
func TestLargeBatches(t *testing.T) {
	at, objects := newStorage(t)
	sink, err := NewBlob(BlobOptions{URL: "s3://bucket", Path: "p", Size: 1000, Interval: time.Hour, Env: variables(map[string]string{"AWS_ENDPOINT_URL": at, "awsAnonymousCredential": "true"})})
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, sink, func(o *Options) { o.Mode, o.Workers, o.Bytes = ModeRequest, 1, 100_000 }, echo)
	for range 5 {
		post(t, b.URL, strings.Repeat("x", 10_000), nil)
	}
	select {
	case <-objects:
	case <-time.After(10 * time.Second):
		t.Error("half of the memory waits for an hour")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b.Close(ctx)
}

func TestCSV(t *testing.T) {
	m := Marshaller{Format: "csv", url: parsed(t, "abfs://box@account/p"), about: about}
	body, extension, err := m.marshal(t.Context(), some)
	if err != nil || extension != "csv" {
		t.Fatalf("%s, %v", extension, err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(body))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{columns,
		{"abfs://box@account/p", "cXVlc3Rpb24=", "application/json", eventType + "request", "id-1", "pod-1", "iris", "models", "predictor", "",
			`{"X-A":["1"]}`, `{"team":"ä"}`, "", "false", "1970-01-01T00:00:01.000000005Z", ""},
		{"abfs://box@account/p", "YW5zd2VyLCAicXVvdGVkIg==", "", eventType + "response", "id-1", "pod-1", "iris", "models", "predictor", "",
			"", `{"team":"ä"}`, "", "false", "1970-01-01T00:00:02Z", "200"},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}

// TestParquet compares with a file that other readers of Parquet were seen to read. -update writes it anew.
func TestParquet(t *testing.T) {
	m := Marshaller{Format: "parquet", Anyone: true, url: parsed(t, "s3://bucket/p"), about: about}
	got, extension, err := m.marshal(t.Context(), some)
	if err != nil || extension != "parquet" {
		t.Fatalf("%s, %v", extension, err)
	}
	const file = "testdata/two.parquet"
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(want, got) {
		t.Errorf("%q is not what %s has, %v", got, file, err)
	}
}

var update = flag.Bool("update", false, "write files that are compared with")

func TestRemoteMarshaller(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var records []record
		if json.NewDecoder(req.Body).Decode(&records) != nil || len(records) != 2 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("X-Log-Marshal-Extension", "parquet")
		_, _ = w.Write([]byte("PAR1"))
	}))
	defer service.Close()
	m := Marshaller{Format: "parquet", Remote: service.URL, url: parsed(t, "s3://b")}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if body, extension, err := m.marshal(t.Context(), some); err != nil || extension != "parquet" || string(body) != "PAR1" {
		t.Errorf("%s, %s, %v", body, extension, err)
	}
	if _, _, err := m.marshal(t.Context(), some[:1]); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("a refusal is %v", err)
	}
}

func TestRefusedAtTheStart(t *testing.T) {
	for url, want := range map[string]string{
		"s3a://bucket/p":     "cannot be written to s3a:// addresses",
		"s3://":              "is no address",
		"abfs://box@account": "AZURE_ACCOUNT_NAME",
	} {
		if _, err := NewBlob(BlobOptions{URL: url, Env: variables(nil)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := (Marshaller{Remote: "somewhere"}).Check(); err == nil {
		t.Error("that is no address")
	}
}

// TestStorageGone: the reason is told, and no key.
func TestStorageGone(t *testing.T) {
	b, err := NewBlob(BlobOptions{URL: "s3://bucket", Env: variables(map[string]string{
		"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hush-hush"})})
	if err != nil {
		t.Fatal(err)
	}
	b.client.Attempts = 1
	if err := b.Send(t.Context(), some); err == nil || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v", err)
	}
}
