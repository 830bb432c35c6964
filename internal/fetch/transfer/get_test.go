// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/fetch/fetchtest"
)

const segment = 1 << 20

// memory is a file.
type memory struct {
	mu      sync.Mutex
	content []byte
	limit   int64
}

var errLimit = errors.New("too large")

func (m *memory) Reserve(size int64) error {
	if m.limit > 0 && size > m.limit {
		return errLimit
	}
	return nil
}

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if need := int(at) + len(p); need > len(m.content) {
		m.content = append(m.content, make([]byte, need-len(m.content))...)
	}
	return copy(m.content[at:], p), m.Reserve(at + int64(len(p)))
}

func (m *memory) ReadAt(p []byte, at int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.NewReader(m.content).ReadAt(p, at)
}

func (m *memory) Truncate(int64) error {
	m.content = nil
	return nil
}

func newClient(t *testing.T, parallel int) *Client {
	t.Helper()
	c, err := New(parallel, Trust{})
	if err != nil {
		t.Fatal(err)
	}
	c.Segment = segment
	c.Attempts = 3
	c.Pause = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	t.Cleanup(c.HTTP.CloseIdleConnections)
	return c
}

// TestGet: whatever servers do, what arrives is what they have, with no more requests than needed.
func TestGet(t *testing.T) {
	large := fetchtest.Content(5*segment + 7)
	digest := sha256.Sum256(large)
	sha := base64.StdEncoding.EncodeToString(digest[:])
	for _, c := range []struct {
		name     string
		content  []byte
		server   func(*fetchtest.Server)
		object   func(*Object)
		requests int
	}{
		{name: "large, in parallel", content: large, requests: 6},
		{name: "large of known size", content: large, object: func(o *Object) { o.Size = int64(len(large)) }, requests: 6},
		{name: "exactly one segment", content: large[:segment], requests: 1},
		{name: "exactly two segments", content: large[:2*segment], requests: 2},
		{name: "small", content: large[:100], requests: 1},
		{name: "small of known size", content: large[:100], object: func(o *Object) { o.Size = 100 }, requests: 1},
		{name: "empty", content: nil, requests: 1},
		{name: "empty, and no first byte", content: nil, server: func(s *fetchtest.Server) { s.Spoil(fetchtest.Fault{Status: 416}) }, requests: 2},
		{name: "empty of known size", content: nil, object: func(o *Object) { o.Size = 0 }, requests: 1},
		{name: "a server without ranges", content: large, server: func(s *fetchtest.Server) { s.NoRanges = true }, requests: 1},
		{name: "a server without lengths", content: large, server: func(s *fetchtest.Server) { s.NoRanges, s.NoLength = true, true }, requests: 1},
		{name: "a digest", content: large, server: func(s *fetchtest.Server) { s.Header.Set("Digest", "sha-256="+sha) }, requests: 6},
		{name: "a digest without ranges", content: large, server: func(s *fetchtest.Server) {
			s.NoRanges = true
			s.Header.Set("Repr-Digest", "sha-256=:"+sha+":")
		}, requests: 1},
		{name: "cut at the start", content: large, server: func(s *fetchtest.Server) { s.Spoil(fetchtest.Fault{CutAfter: 1000}) }, requests: 7},
		{name: "cut several times, each with progress", content: large[:segment], server: func(s *fetchtest.Server) {
			s.Spoil(make6(fetchtest.Fault{CutAfter: 1000})...)
		}, requests: 7},
		{name: "cut without ranges", content: large, server: func(s *fetchtest.Server) {
			s.NoRanges = true
			s.Spoil(fetchtest.Fault{CutAfter: 1000}, fetchtest.Fault{CutAfter: 2000})
		}, requests: 3},
		{name: "cut in a small file of known size", content: large[:5000], object: func(o *Object) { o.Size = 5000 },
			server: func(s *fetchtest.Server) { s.Spoil(fetchtest.Fault{CutAfter: 1000}) }, requests: 2},
		{name: "busy, then well", content: large[:10], server: func(s *fetchtest.Server) {
			s.Spoil(fetchtest.Fault{Status: 503}, fetchtest.Fault{Status: 500})
		}, requests: 3},
		{name: "a spoilt bit", content: large[:1000], server: func(s *fetchtest.Server) {
			sum := sha256.Sum256(large[:1000])
			s.Header.Set("Digest", "sha-256="+base64.StdEncoding.EncodeToString(sum[:]))
			s.Spoil(fetchtest.Fault{Flip: true})
		}, requests: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := fetchtest.New(t, map[string][]byte{"/x": c.content})
			if c.server != nil {
				c.server(server)
			}
			object := Object{URL: server.URL + "/x", Size: -1}
			if c.object != nil {
				c.object(&object)
			}
			var into memory
			size, err := newClient(t, 4).Get(t.Context(), object, &into)
			if err != nil || size != int64(len(c.content)) || !bytes.Equal(into.content, c.content) {
				t.Fatalf("size %d, %d bytes, error %v; want %d bytes", size, len(into.content), err, len(c.content))
			}
			if got := len(server.Requests()); got != c.requests {
				t.Errorf("%d requests, want %d", got, c.requests)
			}
			if server.Most() > 4 {
				t.Errorf("%d requests at the same time, 4 are allowed", server.Most())
			}
		})
	}
}

func make6(f fetchtest.Fault) []fetchtest.Fault { return []fetchtest.Fault{f, f, f, f, f, f} }

// TestGetFails: what does not help is not tried again, and no message shows what may be secret.
func TestGetFails(t *testing.T) {
	content := fetchtest.Content(3 * segment)
	for _, c := range []struct {
		name     string
		server   func(*fetchtest.Server)
		limit    int64
		object   func(*Object)
		want     string
		requests int
	}{
		{name: "unauthorized", server: func(s *fetchtest.Server) { s.Spoil(fetchtest.Fault{Status: 401}) }, want: "access is denied (401)", requests: 1},
		{name: "forbidden", server: func(s *fetchtest.Server) { s.Spoil(fetchtest.Fault{Status: 403}) }, want: "access is denied (403)", requests: 1},
		{name: "absent", object: func(o *Object) { o.URL = strings.Replace(o.URL, "/x", "/y", 1) }, want: "it does not exist (404)", requests: 1},
		{name: "broken for good", server: func(s *fetchtest.Server) { s.Spoil(make6(fetchtest.Fault{Status: 502})...) }, want: "status 502", requests: 3},
		{name: "cut at the same place, and no ranges", server: func(s *fetchtest.Server) {
			s.NoRanges = true
			s.Spoil(append(make6(fetchtest.Fault{CutAfter: 5000}), make6(fetchtest.Fault{CutAfter: 5000})...)...)
		}, want: "the connection broke", requests: 3},
		{name: "shorter than listed, and no length", server: func(s *fetchtest.Server) { s.NoRanges, s.NoLength = true, true },
			object: func(o *Object) { o.Size = 3*segment + 1 }, want: "the connection broke", requests: 3},
		{name: "corrupt for good", server: func(s *fetchtest.Server) {
			s.Header.Set("Digest", "sha-256="+base64.StdEncoding.EncodeToString(make([]byte, 32)))
		}, want: "SHA-256", requests: 9},
		{name: "too large, told before", limit: segment + 1, want: "too large", requests: 1},
		{name: "too large, seen while it comes", server: func(s *fetchtest.Server) { s.NoRanges, s.NoLength = true, true },
			limit: segment + 1, want: "too large", requests: 1},
		{name: "larger than listed", object: func(o *Object) { o.Size = 2 * segment; o.ETag = `"x"` }, limit: 2 * segment, want: "too large", requests: 2},
		{name: "silent", server: func(s *fetchtest.Server) {
			s.Spoil(make6(fetchtest.Fault{Silent: true})...)
		}, want: "keeps silent", requests: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := fetchtest.New(t, map[string][]byte{"/x": content})
			if c.server != nil {
				c.server(server)
			}
			object := Object{URL: server.URL + "/x?sig=hush", Size: -1, Header: http.Header{"X-Key": {"hush"}}}
			if c.object != nil {
				c.object(&object)
			}
			client := newClient(t, 2)
			if c.name == "silent" {
				client.Stall = 50 * time.Millisecond
			}
			_, err := client.Get(t.Context(), object, &memory{limit: c.limit})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if got := len(server.Requests()); got != c.requests {
				t.Errorf("%d requests, want %d", got, c.requests)
			}
		})
	}
}

// TestReplacedMeanwhile: an object that changes between two parts is read anew, never mixed.
func TestReplacedMeanwhile(t *testing.T) {
	before, after := fetchtest.Content(3*segment), fetchtest.Content(2*segment)
	server := fetchtest.New(t, map[string][]byte{"/x": before})
	client := newClient(t, 1)
	asked := 0
	object := Object{URL: server.URL + "/x", Size: -1, Sign: func(context.Context, *http.Request) error {
		if asked++; asked == 2 {
			server.Set("/x", after)
		}
		return nil
	}}
	var into memory
	if _, err := client.Get(t.Context(), object, &into); err != nil || !bytes.Equal(into.content, after) {
		t.Fatalf("error %v; the new content must arrive, whole", err)
	}
}

// TestRedirects: credentials stay with the host they are for, and there is an end to it.
func TestRedirects(t *testing.T) {
	target := fetchtest.New(t, map[string][]byte{"/x": []byte("model")})
	other := strings.Replace(target.URL, "127.0.0.1", "localhost", 1)
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			http.Redirect(w, r, other+"/x", http.StatusFound)
		}
	}))
	t.Cleanup(gate.Close)
	client := newClient(t, 1)
	var into memory
	header := http.Header{"X-Secret": {"hush"}, "Authorization": {"hush"}}
	if _, err := client.Get(t.Context(), Object{URL: gate.URL + "/go", Header: header, Size: -1}, &into); err != nil || string(into.content) != "model" {
		t.Fatalf("%q, %v", into.content, err)
	}
	for _, r := range target.Requests() {
		if text := fmt.Sprint(r.Header); strings.Contains(text, "hush") {
			t.Errorf("another host was told %s", text)
		}
	}
	_, err := client.Get(t.Context(), Object{URL: gate.URL + "/loop", Size: -1}, &into)
	if err == nil || !strings.Contains(err.Error(), "redirects too often") {
		t.Errorf("error %v", err)
	}
}

// TestHostileRanges: whatever a server says of the size, it ends in one sentence, after a few requests and without memory in
// proportion to what was said.
func TestHostileRanges(t *testing.T) {
	body := fetchtest.Content(segment)
	const most = 20
	for _, c := range []struct {
		name   string
		answer func(request, from int) (contentRange string, body []byte)
		limit  int64
		want   string
	}{
		{name: "huge", answer: always("bytes 0-1048575/9223372036854775807", body), want: "another part than it was asked for"},
		{name: "huge, of the same part", answer: always("bytes 0-1048575/4611686018427387904", body), want: "another part than it was asked for"},
		{name: "huge, and a limit", answer: always("bytes 0-1048575/4611686018427387904", body), limit: 10 * segment, want: "too large"},
		{name: "beyond numbers", answer: always("bytes 0-1048575/92233720368547758080", body), want: "another part"},
		{name: "negative", answer: always("bytes 0-1048575/-1", body), want: "another part"},
		{name: "very negative", answer: always("bytes 0-1048575/-9223372036854775808", body), want: "another part"},
		{name: "unknown", answer: always("bytes 0-1048575/*", body), want: "another part"},
		{name: "end beyond numbers", answer: always("bytes 0-9223372036854775807/*", body), want: "another part"},
		{name: "backwards", answer: always("bytes 9-0/10", body), want: "another part"},
		{name: "nothing", answer: always("", body), want: "another part"},
		{name: "less than the part", answer: always("bytes 0-1048575/10", body), want: "another part"},
		{name: "another each time", want: "replaced while it was read", answer: func(n, from int) (string, []byte) {
			end := min(from+segment, 3*segment+n)
			return fmt.Sprintf("bytes %d-%d/%d", from, end-1, 3*segment+n), body[:end-from]
		}},
		{name: "one byte at a time", want: "parts of 1 bytes", answer: func(_, from int) (string, []byte) {
			return fmt.Sprintf("bytes %d-%d/3145728", from, from), body[:1]
		}},
		{name: "more than announced", answer: always("bytes 0-9/10", body[:11]), want: "more than it announced"},
		{name: "less than announced", answer: always("bytes 0-9/10", body[:5]), want: "another part"},
		{name: "never what was announced", answer: always("bytes 0-9/10", nil), want: "the connection broke"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var from int
				_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from) // without one it is the beginning
				says, body := c.answer(int(requests.Add(1)-1), from)
				w.Header().Set("Content-Range", says)
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(body) // the client may go
			}))
			t.Cleanup(server.Close)
			client := newClient(t, 4)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := client.Get(ctx, Object{URL: server.URL, Size: -1}, &memory{limit: c.limit})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if n := requests.Load(); n > most {
				t.Errorf("%d requests, %d are enough to see it", n, most)
			}
		})
	}
}

func always(says string, body []byte) func(int, int) (string, []byte) {
	return func(int, int) (string, []byte) { return says, body }
}
