// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// reviews is an API server that knows one token, and one account that may get one graph. It keeps what it is asked.
type reviews struct {
	*httptest.Server
	dir string

	mu     sync.Mutex
	asked  []string
	broken bool
}

func newReviews(t *testing.T) *reviews {
	t.Helper()
	r := &reviews{dir: t.TempDir()}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = append(r.asked, req.URL.Path+" as "+req.Header.Get("Authorization")+": "+string(body))
		if r.broken {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"the account may not ask"}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, answerTo(t, body))
	}))
	t.Cleanup(r.Close)
	r.file(t, "namespace", "models\n")
	r.file(t, "token", "own-1\n")
	r.file(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})))
	return r
}

func answerTo(t *testing.T, body []byte) string {
	var review struct {
		Kind string
		Spec struct{ Token, User string }
	}
	if err := json.Unmarshal(body, &review); err != nil {
		t.Error(err)
	}
	switch {
	case review.Kind == "TokenReview" && strings.HasPrefix(review.Spec.Token, "of-"):
		return `{"status":{"authenticated":true,"user":{"username":"` + strings.TrimPrefix(review.Spec.Token, "of-") + `","groups":["all"]}}}`
	case review.Kind == "TokenReview":
		return `{"status":{"error":"invalid bearer token"}}`
	case review.Spec.User == "reader":
		return `{"status":{"allowed":true}}`
	}
	return `{"status":{"allowed":false,"reason":"no rule"}}`
}

func (r *reviews) file(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *reviews) questions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// guarded is a router that asks who calls, and its address.
func guarded(t *testing.T, api *reviews) (*Router, *Access, string) {
	t.Helper()
	access, err := NewAccess(api.URL, api.dir, "graph")
	if err != nil {
		t.Fatal(err)
	}
	r := made(t, `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/echo"}]}}}`, "", usual)
	server := httptest.NewServer(ready(func(*http.Request) error { return nil }, r.Guard(access)))
	t.Cleanup(server.Close)
	return r, access, server.URL
}

// called is the status, what the header says, and the body.
func called(t *testing.T, client *http.Client, url, credentials string) (status int, reasons []string, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("[1]"))
	if err != nil {
		t.Fatal(err)
	}
	if credentials != "" {
		req.Header.Set("Authorization", credentials)
	}
	response, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header.Values(headerReason), string(text)
}

// TestWhoMayCall: only a token whose owner may get the graph opens it, and whoever is refused is told why, in a header.
func TestWhoMayCall(t *testing.T) {
	r, _, url := guarded(t, newReviews(t))
	for _, c := range []struct {
		path, credentials string
		status            int
		reasons           []string
		body              string
	}{
		{"/", "", 401, []string{reasonNothing}, ""},
		{"/", "Basic YTpi", 401, []string{reasonKind}, ""},
		{"/", "Bearer", 401, []string{reasonUnknown}, ""},
		{"/", "Bearer " + strings.Repeat("x", mostToken+1), 401, []string{reasonUnknown}, ""},
		{"/", "Bearer nobody", 401, []string{reasonUnknown, "invalid bearer token"}, ""},
		{"/", "Bearer of-stranger", 401, []string{reasonForbidden, "no rule"}, ""},
		{"/", "Bearer of-reader", 200, nil, "[1]"},
		{"/any/path", "bearer of-reader", 200, nil, "[1]"},
		{"/readyz", "", 200, nil, ""},
		{"/readyz/", "", 401, []string{reasonNothing}, ""},
	} {
		status, reasons, body := called(t, http.DefaultClient, url+c.path, c.credentials)
		if status != c.status || !slices.Equal(reasons, c.reasons) || body != c.body {
			t.Errorf("%s with %.20q: %d %q %q", c.path, c.credentials, status, reasons, body)
		}
	}
	if got := testutil.ToFloat64(r.metrics.denied); got != 7 {
		t.Errorf("%v requests are counted as denied", got)
	}
}

// TestWhatIsAsked: the API server is asked for a token once in a while, with the pod's own token as it is then.
func TestWhatIsAsked(t *testing.T) {
	api := newReviews(t)
	_, access, url := guarded(t, api)
	now := time.Now()
	access.now = func() time.Time { return now }
	for range 3 {
		called(t, http.DefaultClient, url, "Bearer of-reader")
	}
	api.file(t, "token", "own-2")
	now = now.Add(allowedFor)
	called(t, http.DefaultClient, url, "Bearer of-reader")
	const (
		who = `/apis/authentication.k8s.io/v1/tokenreviews as Bearer %: {"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"of-reader"}}`
		may = `/apis/authorization.k8s.io/v1/subjectaccessreviews as Bearer %: {"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"reader",` +
			`"resourceAttributes":{"namespace":"models","verb":"get","group":"serving.kserve.io","version":"v1alpha1","resource":"inferencegraphs","name":"graph"}}}`
	)
	var want []string
	for _, own := range []string{"own-1", "own-2"} {
		want = append(want, strings.Replace(who, "%", own, 1), strings.Replace(may, "%", own, 1))
	}
	if diff := cmp.Diff(want, api.questions()); diff != "" {
		t.Error(diff)
	}
}

// TestNobodyCanSay: when the API server does not answer as it should, nobody is let through, and the log says why without
// any token.
func TestNobodyCanSay(t *testing.T) {
	api := newReviews(t)
	r, _, url := guarded(t, api)
	var log bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	api.mu.Lock()
	api.broken = true
	api.mu.Unlock()
	status, reasons, body := called(t, http.DefaultClient, url, "Bearer of-reader")
	if status != http.StatusInternalServerError || reasons != nil || !strings.Contains(body, "it cannot be told whether this request is allowed") {
		t.Errorf("%d %q %s", status, reasons, body)
	}
	if said := log.String(); !strings.Contains(said, "it answers 403: the account may not ask") || strings.Contains(said, "of-reader") || strings.Contains(said, "own-1") {
		t.Errorf("the log says %s", said)
	}
	api.Close()
	r.complained.Store(0)
	if status, _, _ := called(t, http.DefaultClient, url, "Bearer of-reader"); status != http.StatusInternalServerError {
		t.Errorf("without an API server: %d", status)
	}
}

// TestAccessWants: what is missing is told at the start.
func TestAccessWants(t *testing.T) {
	api := newReviews(t)
	for name, err := range map[string]error{
		"--inferencegraph-name": second(NewAccess(api.URL, api.dir, "")),
		"which namespace":       second(NewAccess(api.URL, t.TempDir(), "graph")),
		"KUBERNETES_SERVICE":    second(apiServer(func(string) string { return "" })),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if at, err := apiServer(func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}[name]
	}); at != "https://[fd00::1]:443" || err != nil {
		t.Errorf("%s, %v", at, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestEncrypted: with a certificate in its directory the router speaks TLS, and only that.
func TestEncrypted(t *testing.T) {
	known := httptest.NewUnstartedServer(nil)
	known.StartTLS()
	defer known.Close()
	pair, dir := known.TLS.Certificates[0], t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &flags{address: listener.Addr().String(), metrics: "0", limits: usual, tls: true, certificates: dir}
	_ = listener.Close() // the router opens it again
	graph, err := Parse(`{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"` + services(t).URL + `/echo"}]}}}`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.serve(ctx, graph, nil, "", slog.New(slog.DiscardHandler)) }()
	deadline := time.Now().Add(enough)
	for {
		connection, err := tls.Dial("tcp", f.address, known.Client().Transport.(*http.Transport).TLSClientConfig)
		if err == nil {
			_ = connection.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if status, _, body := called(t, known.Client(), "https://"+f.address, ""); status != http.StatusOK || body != "[1]" {
		t.Errorf("%d %s", status, body)
	}
	if status, _, body := called(t, http.DefaultClient, "http://"+f.address, ""); status != http.StatusBadRequest {
		t.Errorf("without TLS: %d %s", status, body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := (&flags{address: "127.0.0.1:0", metrics: "0", limits: usual, tls: true, certificates: t.TempDir()}).serve(t.Context(), graph, nil, "", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("it starts without a certificate")
	}
}
