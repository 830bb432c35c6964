// SPDX-License-Identifier: Apache-2.0

package batcher

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// model is a server that answers each instance with itself, unless a case says otherwise.
type model struct {
	*httptest.Server
	mu    sync.Mutex
	asked []question
	say   func(w http.ResponseWriter, instances []json.RawMessage) bool
}

type question struct {
	path, query, body string
	header            http.Header
	host              string
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *model) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	m.mu.Lock()
	m.asked = append(m.asked, question{req.URL.EscapedPath(), req.URL.RawQuery, string(body), req.Header, req.Host})
	say := m.say
	m.mu.Unlock()
	var in struct{ Instances []json.RawMessage }
	_ = json.Unmarshal(body, &in)
	if say != nil && say(w, in.Instances) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"predictions":[%s],"model":"m"}`, strings.ReplaceAll(texts(in.Instances), " ", ","))
}

func (m *model) questions() []question {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked)
}

// newBatcher stands before a model, on a real address.
func newBatcher(t *testing.T, m *model, change func(*Options)) (*Batcher, string) {
	t.Helper()
	u, err := url.Parse(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Size: 4, Wait: time.Minute, Upstream: u, Transport: http.DefaultTransport, Body: 1 << 20, Bytes: 8 << 20, Answer: 1 << 20, InFlight: 4}
	if change != nil {
		change(&o)
	}
	b := New(o)
	s := httptest.NewServer(b.Handler(httputil.NewSingleHostReverseProxy(u)))
	t.Cleanup(func() {
		s.Close()
		if used := b.used.Load(); used != 0 {
			t.Errorf("%d bytes were never given back", used)
		}
	})
	return b, s.URL
}

type got struct {
	status int
	kind   string
	body   string
}

func ask(ctx context.Context, to, body string, header http.Header) (got, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		return got{}, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return got{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return got{answer.StatusCode, answer.Header.Get("Content-Type"), string(text)}, err
}

// together asks for everything at the same time.
func together(t *testing.T, to string, bodies []string, header http.Header) []got {
	t.Helper()
	out := make([]got, len(bodies))
	var all sync.WaitGroup
	for i, body := range bodies {
		all.Go(func() {
			var err error
			if out[i], err = ask(t.Context(), to, body, header); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return out
}

type answer struct {
	Message     string            `json:"message"`
	BatchID     string            `json:"batchId"`
	Predictions []json.RawMessage `json:"predictions"`
	Model       string            `json:"model"`
}

func read(t *testing.T, g got) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(g.body), &a); err != nil || g.kind != "application/json" {
		t.Fatalf("%d %s %q: %v", g.status, g.kind, g.body, err)
	}
	return a
}

func texts(list []json.RawMessage) string {
	var out []string
	for _, raw := range list {
		out = append(out, string(raw))
	}
	return strings.Join(out, " ")
}

const path = "/v1/models/iris:predict"

// TestTogether: each client gets its own part, numbers are what they were, and the model is asked once.
func TestTogether(t *testing.T) {
	m := newModel(t)
	_, at := newBatcher(t, m, nil)
	bodies := []string{`{"instances":[1, 12345678901234567890]}`, `{"instances":[{"x":"<&>"}]}`, `{"instances":[[3.0]]}`}
	want := []string{"1 12345678901234567890", `{"x":"<&>"}`, "[3.0]"}
	ids := map[string]bool{}
	for i, g := range together(t, at+path+"?a=b", bodies, http.Header{"X-Api": {"k"}, "Authorization": {"Bearer t"}}) {
		a := read(t, g)
		if g.status != http.StatusOK || a.Message != "" || texts(a.Predictions) != want[i] || a.Model != "m" {
			t.Errorf("%d: %d %s", i, g.status, g.body)
		}
		ids[a.BatchID] = true
	}
	asked := m.questions()
	if len(asked) != 1 || len(ids) != 1 || ids[""] {
		t.Fatalf("the model was asked %d times, in batches %v", len(asked), ids)
	}
	q := asked[0]
	if q.path != path || q.query != "a=b" || q.header.Get("Authorization") != "Bearer t" || q.header.Get("X-Api") != "k" ||
		q.header.Get("Content-Type") != "application/json" || q.header.Get("X-Forwarded-For") != "127.0.0.1" || q.host != strings.TrimPrefix(at, "http://") {
		t.Errorf("the model was asked %+v", q)
	}
}

// TestApart: what could not have come from one client does not go together.
func TestApart(t *testing.T) {
	m := newModel(t)
	_, at := newBatcher(t, m, func(o *Options) { o.Wait = 50 * time.Millisecond })
	var all sync.WaitGroup
	for _, c := range []struct {
		path, body string
		header     http.Header
	}{
		{"/v1/models/a:predict", `{"instances":[1]}`, nil},
		{"/v1/models/b:predict", `{"instances":[1]}`, nil},
		{"/v1/models/a:predict?v=2", `{"instances":[1]}`, nil},
		{"/v1/models/a:predict", `{"instances":[1]}`, http.Header{"Authorization": {"Bearer other"}}},
		{"/v1/models/a:predict", `{"instances":[1]}`, http.Header{"X-Forwarded-User": {"other"}}},
		{"/v1/models/a:predict", `{"instances":[1],"signature_name":"s"}`, nil},
		// These go with the first.
		{"/v1/models/a:predict", `{"instances":[1]}`, http.Header{"X-Request-Id": {"1"}, "Traceparent": {"2"}, "X-B3-Spanid": {"3"}, "X-Forwarded-For": {"192.0.2.7"}}},
	} {
		all.Go(func() {
			g, err := ask(t.Context(), at+c.path, c.body, c.header)
			if err != nil {
				t.Error(err)
				return
			}
			if a := read(t, g); texts(a.Predictions) != "1" {
				t.Errorf("%s: %s", c.path, g.body)
			}
		})
	}
	all.Wait()
	if n := len(m.questions()); n != 6 {
		t.Errorf("the model was asked %d times, want 6: %+v", n, m.questions())
	}
}

// TestMaximum: a batch has no more instances than it may; a request is never divided.
func TestMaximum(t *testing.T) {
	m := newModel(t)
	b, at := newBatcher(t, m, nil)
	var all sync.WaitGroup
	send := func(body string) {
		all.Go(func() {
			if _, err := ask(t.Context(), at+path, body, nil); err != nil {
				t.Error(err)
			}
		})
	}
	send(`{"instances":[1,2,3]}`)
	waitOpen(t, b, 3)
	send(`{"instances":[4,5]}`) // does not fit any more
	waitOpen(t, b, 2)
	send(`{"instances":[1,2,3,4,5,6]}`) // is too large for any
	all.Go(func() {})
	waitAsked(t, m, 3)
	all.Wait()
	var sizes []string
	for _, q := range m.questions() {
		sizes = append(sizes, q.body)
	}
	slices.Sort(sizes)
	want := []string{`{"instances":[1,2,3,4,5,6]}`, `{"instances":[1,2,3]}`, `{"instances":[4,5]}`}
	if diff := cmp.Diff(want, sizes); diff != "" {
		t.Error(diff)
	}
}

// waitOpen waits until that many instances wait in all.
func waitOpen(t *testing.T, b *Batcher, instances int) {
	t.Helper()
	eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		n := 0
		for _, it := range b.open {
			n += it.count
		}
		return n == instances
	})
}

func waitAsked(t *testing.T, m *model, n int) {
	t.Helper()
	eventually(t, func() bool { return len(m.questions()) == n })
}

func eventually(t *testing.T, check func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(10 * time.Second); !check(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to that")
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	m := newModel(t)
	_, at := newBatcher(t, m, nil)
	for body, want := range map[string]string{
		"nonsense": "can't Unmarshal body\n", "[1]": "can't Unmarshal body\n", `{"instances":{}}`: "can't Unmarshal body\n",
		`{}`: "no instances in the request\n", `{"instances":[]}`: "no instances in the request\n", `{"instances":null}`: "no instances in the request\n",
	} {
		g, err := ask(t.Context(), at+path, body, nil)
		if err != nil || g.status != http.StatusBadRequest || g.body != want {
			t.Errorf("%s: %+v, %v", body, g, err)
		}
	}
	if len(m.questions()) != 0 {
		t.Error("the model was asked")
	}
}

// TestMistakesOfOthers: one bad request does not fail those that it went with, and errors are errors.
func TestMistakesOfOthers(t *testing.T) {
	m := newModel(t)
	m.say = func(w http.ResponseWriter, instances []json.RawMessage) bool {
		bad := slices.ContainsFunc(instances, func(raw json.RawMessage) bool { return string(raw) == `"bad"` })
		if bad {
			w.Header().Set("Content-Type", "text/x-model")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte("no number"))
		}
		return bad
	}
	_, at := newBatcher(t, m, func(o *Options) { o.Size = 3 })
	all := together(t, at+path, []string{`{"instances":[1]}`, `{"instances":["bad"]}`, `{"instances":[3]}`}, nil)
	if texts(read(t, all[0]).Predictions) != "1" || texts(read(t, all[2]).Predictions) != "3" {
		t.Errorf("the others get %+v", all)
	}
	if diff := cmp.Diff(got{http.StatusUnprocessableEntity, "text/x-model", "no number"}, all[1], cmp.AllowUnexported(got{})); diff != "" {
		t.Error(diff)
	}
	if n := len(m.questions()); n != 4 {
		t.Errorf("the model was asked %d times", n)
	}
}

func TestModelFails(t *testing.T) {
	m := newModel(t)
	_, at := newBatcher(t, m, func(o *Options) { o.Size = 1 })
	for _, c := range []struct {
		say    string
		status int
		want   string
	}{
		{`{"predictions":[1,2]}`, http.StatusBadGateway, differs},
		{`nonsense`, http.StatusBadGateway, "invalid character"},
		{`{"predictions":1}`, http.StatusBadGateway, "cannot unmarshal"},
		{strings.Repeat(" ", 2<<20), http.StatusBadGateway, "longer"},
	} {
		m.mu.Lock()
		m.say = func(w http.ResponseWriter, _ []json.RawMessage) bool { _, _ = w.Write([]byte(c.say)); return true }
		m.mu.Unlock()
		g, err := ask(t.Context(), at+path, `{"instances":[1]}`, nil)
		if err != nil || g.status != c.status || !strings.Contains(g.body, c.want) {
			t.Errorf("%.40s: %+v, %v", c.say, g, err)
		}
	}
	m.Close()
	if g, err := ask(t.Context(), at+path, `{"instances":[1]}`, nil); err != nil || g.status != http.StatusBadGateway {
		t.Errorf("a model that is gone: %+v, %v", g, err)
	}
}

// TestEverythingElsePasses as it is.
func TestEverythingElsePasses(t *testing.T) {
	m := newModel(t)
	_, at := newBatcher(t, m, func(o *Options) { o.Body = 100 })
	large := `{"instances":["` + strings.Repeat("x", 500) + `"]}`
	for _, c := range []struct {
		path, body string
		header     http.Header
	}{
		{"/v2/models/iris/infer", `{"inputs":[]}`, nil},
		{"/v1/models/iris:explain", `{"instances":[1]}`, nil},
		{path, large, nil},
		{path, "packed", http.Header{"Content-Encoding": {"gzip"}}},
	} {
		before := len(m.questions())
		if _, err := ask(t.Context(), at+c.path, c.body, c.header); err != nil {
			t.Fatal(err)
		}
		all := m.questions()
		if len(all) != before+1 || all[before].path != c.path || all[before].body != c.body {
			t.Errorf("%s: the model was asked %+v", c.path, all[before:])
		}
	}
	// A body whose length is not known is too long only when it has been read.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+path, io.MultiReader(strings.NewReader(large)))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	all := m.questions()
	if last := all[len(all)-1]; last.body != large {
		t.Errorf("the model was asked %+v", last)
	}
}

// TestStrangePaths reach the model as they came, and nothing else.
func TestStrangePaths(t *testing.T) {
	m := newModel(t)
	_, at := newBatcher(t, m, func(o *Options) { o.Size = 1 })
	for _, p := range []string{"/v1/models/a%20b:predict", "/v1/models/a%0d%0aX-Evil:%20yes:predict", "/v1/models/a%2Fb:predict"} {
		before := len(m.questions())
		g, err := ask(t.Context(), at+p, `{"instances":[1]}`, nil)
		if err != nil || g.status != http.StatusOK {
			t.Fatalf("%s: %+v, %v", p, g, err)
		}
		if q := m.questions()[before]; !strings.EqualFold(q.path, p) || q.header.Get("X-Evil") != "" {
			t.Errorf("the model was asked %+v", q)
		}
	}
}

// TestClientsThatLeave do not hold up others, and nobody asks for what nobody waits for.
func TestClientsThatLeave(t *testing.T) {
	m := newModel(t)
	b, at := newBatcher(t, m, nil)
	gone, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _, _ = ask(gone, at+path, `{"instances":["gone"]}`, nil) })
	waitOpen(t, b, 1)
	leave()
	waitOpen(t, b, 0)
	for i := range 2 {
		all.Go(func() {
			if _, err := ask(t.Context(), at+path, fmt.Sprintf(`{"instances":[%d,%d]}`, i, i), nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if q := m.questions(); len(q) != 1 || strings.Contains(q[0].body, "gone") {
		t.Errorf("the model was asked %+v", q)
	}

	// One that is under way already ends with its last client.
	ended := make(chan struct{})
	m.mu.Lock()
	m.say = func(w http.ResponseWriter, _ []json.RawMessage) bool {
		_ = http.NewResponseController(w).Flush()
		<-ended
		return true
	}
	m.mu.Unlock()
	gone, leave = context.WithCancel(t.Context())
	all.Go(func() { _, _ = ask(gone, at+path, `{"instances":[1,2,3,4]}`, nil) })
	waitAsked(t, m, 2)
	leave()
	all.Wait()
	eventually(t, func() bool { return len(b.slots) == 0 })
	close(ended)
}

// TestStop sends what waits.
func TestStop(t *testing.T) {
	m := newModel(t)
	b, at := newBatcher(t, m, nil)
	var all sync.WaitGroup
	all.Go(func() {
		if g, err := ask(t.Context(), at+path, `{"instances":[1]}`, nil); err != nil || texts(read(t, g).Predictions) != "1" {
			t.Errorf("%+v, %v", g, err)
		}
	})
	waitOpen(t, b, 1)
	b.Stop()
	all.Wait()
	if g, err := ask(t.Context(), at+path, `{"instances":[2]}`, nil); err != nil || texts(read(t, g).Predictions) != "2" {
		t.Errorf("after it: %+v, %v", g, err)
	}
}

// TestNoRoom: what cannot wait goes at once.
func TestNoRoom(t *testing.T) {
	m := newModel(t)
	b, at := newBatcher(t, m, func(o *Options) { o.Bytes = 40 << 10 })
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _, _ = ask(ctx, at+path, `{"instances":["`+strings.Repeat("x", 20<<10)+`"]}`, nil) })
	waitOpen(t, b, 1)
	body := `{"instances":[1]}`
	if _, err := ask(t.Context(), at+path, body, nil); err != nil {
		t.Fatal(err)
	}
	if q := m.questions(); len(q) != 1 || q[0].body != body {
		t.Errorf("the model was asked %+v", q)
	}
	cancel()
	all.Wait()
}

// FuzzDecode: whatever is taken for a request goes to the model as it came.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"instances":[1,"a",{"b":[null]}],"signature_name":"s"}`, `{"instances":[]}`, `[]`, `{"instances":1}`, `{"a":1,"a":2,"instances":[0]}`,
		`{"instances":[1e400]}`, "\xff", `{"instances":["\ud800"]}`, `{"Instances":[1]}`, `{"":1,"instances":[ 1 , 2 ]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Decode(body)
		if err != nil {
			return
		}
		merged := merge([]*Request{r, r})
		var out struct {
			Instances []json.RawMessage `json:"instances"`
		}
		var all map[string]json.RawMessage
		if err := json.Unmarshal(merged, &all); err != nil {
			t.Fatalf("%q became %q: %v", body, merged, err)
		}
		if err := json.Unmarshal(all["instances"], &out.Instances); err != nil {
			t.Fatal(err)
		}
		if len(out.Instances) != 2*len(r.Instances) {
			t.Fatalf("%q became %q", body, merged)
		}
		for i, raw := range out.Instances {
			if string(raw) != string(r.Instances[i%len(r.Instances)]) {
				t.Fatalf("instance %d of %q became %q", i, body, raw)
			}
		}
	})
}
