// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/testkit"
)

const mebibyte = 1 << 20

// serveHooks runs the webhook server by itself, with admission of ConfigMaps and conversion, as a process does whose pod
// has the memory limit of the chart.
func serveHooks(t *testing.T, opts Options) (s *drainingServer, url string) {
	t.Helper()
	some := httptest.NewTLSServer(nil) // for its certificate
	certificate := &some.TLS.Certificates[0]
	some.Close()
	opts.WebhookHost, opts.WebhookPort = "127.0.0.1", testkit.FreePort(t)
	ctx, cancel := context.WithCancel(context.Background())
	s = newDrainingServer(ctx, opts, tlsOptions(opts, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }))
	scheme := k8sruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), admission.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	s.registerConversion(conversion.NewWebhookHandler(scheme, conversion.NewRegistry()))
	domain := configMaps(func(context.Context, *corev1.ConfigMap) error { return nil })
	if err := admission.Register(s, scheme, domain.Admission...); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	server := s
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, patience, "the server", func() error { return s.StartedChecker()(nil) })
	return s, fmt.Sprintf("https://127.0.0.1:%d", opts.WebhookPort)
}

func anyServer() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
}

// endless repeats a text between a beginning and an end, without having it in memory.
func endless(begin, repeated, end string, size int) io.Reader {
	times := size / len(repeated)
	block := strings.Repeat(repeated, 64<<10/len(repeated))
	parts := []io.Reader{strings.NewReader(begin)}
	for range times * len(repeated) / len(block) {
		parts = append(parts, strings.NewReader(block))
	}
	return io.MultiReader(append(parts, strings.NewReader(end))...)
}

// hostile are requests that want memory, each many times at once.
var hostile = []struct {
	name, method, path string
	begin, text, end   string
	size               int
	announced          bool
	times              int
}{
	{"hundreds of MB to convert", "POST", "/convert", `{"request":{"objects":["`, "a", `"]}}`, 300 * mebibyte, true, 5},
	{"hundreds of MB to convert, unannounced", "POST", "/convert", `{"request":{"objects":["`, "a", `"]}}`, 300 * mebibyte, false, 5},
	{"many small objects to convert", "POST", "/convert", `{"request":{"objects":[`, `{"a":{"":1}},`, `{}]}}`, 15 * mebibyte, false, 8},
	{"one object of small ones to convert", "POST", "/convert", `{"request":{"objects":[{"a":[`, `{"":1},`, `{}]}]}}`, 15 * mebibyte, false, 8},
	{"hundreds of MB to admit", "POST", "/validate--v1-configmap", `{"request":{"object":"`, "a", `"}}`, 300 * mebibyte, false, 5},
	{"small objects to admit", "POST", "/validate--v1-configmap",
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","object":{"a":[`, `{"":1},`, `{}]}}}`,
		mebibyte / 2, true, 32},
	{"to nobody", "POST", "/nowhere", "", "a", "", 300 * mebibyte, false, 5},
	{"with another method", "PUT", "/convert", "", "a", "", 300 * mebibyte, false, 5},
}

// TestHostileRequestsTakeLittleMemory: whatever is sent to the webhook port, over TLS and by many at once, takes less than
// half of what the pod may have, and the server answers as before.
func TestHostileRequestsTakeLittleMemory(t *testing.T) {
	const podLimit = 512 * mebibyte
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(podLimit / 10 * 9))
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	path := configMaps(nil).Admission[0].ValidatePath()
	_, url := serveHooks(t, Options{})
	peak := watchHeap(t)
	for _, h := range hostile {
		if h.path == "/validate--v1-configmap" {
			h.path = path
		}
		var wg sync.WaitGroup
		for range h.times {
			wg.Go(func() {
				req, err := http.NewRequestWithContext(t.Context(), h.method, url+h.path, endless(h.begin, h.text, h.end, h.size))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				if h.announced {
					req.ContentLength = int64(h.size)
				}
				if resp, err := anyServer().Do(req); err == nil { // refused before it was sent
					resp.Body.Close()
				}
			})
		}
		wg.Wait()
		grown := peak()
		t.Logf("%s: the heap grew to %d MiB above what it was", h.name, grown/mebibyte)
		if grown > podLimit/2 {
			t.Errorf("%s: more than half of what the pod may have", h.name)
		}
	}
	code, _ := review(t, anyServer(), url+path)
	if code != http.StatusOK {
		t.Errorf("a review afterwards: %d", code)
	}
}

// watchHeap returns a function that tells how much the heap grew at most since the last call, garbage included.
func watchHeap(t *testing.T) func() uint64 {
	t.Helper()
	read := func() uint64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	base := read()
	var mu sync.Mutex
	highest := base
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		ticks := time.NewTicker(2 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				mu.Lock()
				highest = max(highest, read())
				mu.Unlock()
			}
		}
	}()
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		grown := max(highest, base) - base
		runtime.GC()
		highest = base
		return grown
	}
}

// TestBusyServersAskToComeBack: a request that finds no memory is told to come back, and holds none.
func TestBusyServersAskToComeBack(t *testing.T) {
	s, url := serveHooks(t, Options{})
	path := configMaps(nil).Admission[0].ValidatePath()
	if err := s.budget.take(t.Context(), s.budget.total); err != nil {
		t.Fatal(err)
	}
	resp, err := anyServer().Post(url+path, "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d, retry after %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	s.budget.give(s.budget.total)
	if code, _ := review(t, anyServer(), url+path); code != http.StatusOK {
		t.Errorf("when there is memory again: %d", code)
	}
	if err := s.budget.take(t.Context(), s.budget.total); err != nil {
		t.Errorf("somebody still holds memory: %v", err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	_, url := serveHooks(t, Options{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/convert", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Large", strings.Repeat("x", 4*maxHeaders))
	resp, err := anyServer().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d, want 431", resp.StatusCode)
	}
}

// TestConnectionsAreBounded: one more than the bound waits until another goes.
func TestConnectionsAreBounded(t *testing.T) {
	_, url := serveHooks(t, Options{})
	address := strings.TrimPrefix(url, "https://")
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	first := dial()
	for range maxConnections - 1 {
		dial()
	}
	greeted := make(chan error, 1)
	go func() {
		greeted <- tls.Client(dial(), &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context())
	}()
	select {
	case err := <-greeted:
		t.Fatalf("one more was accepted: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	first.Close()
	select {
	case err := <-greeted:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it is not accepted when another has gone")
	}
}

func TestWebhookMemoryFollowsTheLimit(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for limit, want := range map[int64]int64{
		math.MaxInt64: defaultWebhookMemory, 100 * mebibyte: leastWebhookMemory, 400 * mebibyte: 100 * mebibyte, 1 << 40: mostWebhookMemory,
	} {
		debug.SetMemoryLimit(limit)
		if got := webhookMemory(); got != want {
			t.Errorf("of %d webhooks may use %d, want %d", limit, got, want)
		}
	}
}

// TestConversionOneByOne: the answer is the one that the handler would give for the list as a whole.
func TestConversionOneByOne(t *testing.T) {
	scheme := k8sruntime.NewScheme()
	if err := admission.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	whole := conversion.NewWebhookHandler(scheme, conversion.NewRegistry())
	registry := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"modelregistry.opendatahub.io/v1alpha1","kind":"ModelRegistry","metadata":{"name":%q},`+
			`"spec":{"grpc":{},"rest":{},"mysql":{"host":"db","database":"models","username":"models"}}}`, name)
	}
	for name, objects := range map[string]string{
		"a list":           registry("a") + "," + registry("b") + "," + registry("c"),
		"one":              registry("a"),
		"none":             "",
		"one that is none": registry("a") + `,{"kind":"Nothing","apiVersion":"v1"}`,
	} {
		t.Run(name, func(t *testing.T) {
			ask := `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"7","desiredAPIVersion":` +
				`"modelregistry.opendatahub.io/v1beta1","objects":[` + objects + `]}}`
			post := func(h http.Handler) map[string]any {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert", strings.NewReader(ask)))
				out := map[string]any{}
				if err := json.Unmarshal(bytes.TrimSpace(w.Body.Bytes()), &out); err != nil {
					t.Fatalf("%d %s: %v", w.Code, w.Body, err)
				}
				response := out["response"].(map[string]any)
				if list, _ := response["convertedObjects"].([]any); len(list) == 0 {
					delete(response, "convertedObjects") // an empty list and none are the same
				}
				return out
			}
			single := converter{one: whole, budget: newBudget(defaultWebhookMemory)}.handler()
			if diff := cmp.Diff(post(whole), post(single)); diff != "" {
				t.Errorf("(-whole +one by one)\n%s", diff)
			}
		})
	}
}

// TestSlowClientsHoldNothing: some send a byte a second, others a lot and then a byte a second, more at once than there is
// memory for. Their time is short, and who asks as an API server does is answered.
func TestSlowClientsHoldNothing(t *testing.T) {
	path := configMaps(nil).Admission[0].ValidatePath()
	_, url := serveHooks(t, Options{})
	begin := []int{1, 6 * mebibyte}
	var clients sync.WaitGroup
	for i := range 120 {
		clients.Go(func() {
			body, sent := io.Pipe()
			done, begun := make(chan struct{}), make(chan time.Time, 1)
			go func() {
				_, _ = sent.Write([]byte(" "))
				begun <- time.Now() // the connection stands, which takes its time when so many come at once
				_, _ = sent.Write(bytes.Repeat([]byte(" "), begin[i%2]))
				for tick := time.NewTicker(time.Second); ; {
					select {
					case <-tick.C:
						_, _ = sent.Write([]byte(" "))
					case <-done:
						tick.Stop()
						_ = sent.Close()
						return
					}
				}
			}()
			resp, err := anyServer().Post(url+path, "application/json", body)
			ended := time.Now()
			close(done)
			_ = body.Close()
			if err == nil {
				_ = resp.Body.Close()
			}
			if took := ended.Sub(<-begun); took > readTimeout-time.Second {
				t.Errorf("a slow client was let be for %s", took)
			}
		})
	}
	defer clients.Wait()
	testkit.Eventually(t, patience, "an answer beside them", func() error {
		resp, err := anyServer().Post(url+path, "application/json", strings.NewReader(
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"DELETE"}}`))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", resp.Status)
		}
		return nil
	})
}

// TestIdleConnectionsMakeRoom: as many as are let in at all, of clients that asked once and then for nothing more.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	_, url := serveHooks(t, Options{})
	idle := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: maxConnections}}
	defer idle.CloseIdleConnections()
	var bodies []io.Closer
	for range maxConnections {
		resp, err := idle.Get(url + "/nowhere") //nolint:bodyclose // they are closed together
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, resp.Body) // unread, so that the client does not use the connection again
	}
	defer func() {
		for _, b := range bodies {
			_ = b.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/nowhere", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := anyServer().Do(req)
	if err != nil {
		t.Fatalf("nobody else was let in: %v", err)
	}
	_ = resp.Body.Close()
}
