// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modelplane/modelplane/internal/process"
)

// forever never ends: nobody is asked to stop.
type forever struct{}

func (forever) Err() error { return nil }

// services answer by what their path says. What they are asked goes into the answer of /name/.
func services(t testing.TB) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	say := func(path, kind, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if kind != "" {
				w.Header().Set("Content-Type", kind)
			}
			_, _ = io.WriteString(w, text)
		})
	}
	say("/text", "text/plain", "hello")
	say("/list", "application/json", "[1]")
	say("/null", "application/json", "null")
	say("/empty", "", "")
	say("/exact", "application/json", `{"n":12345678901234567890,"f":1.10,"t":"<&>"}`)
	say("/predictions", "application/json", `{"predictions":[1.10,12345678901234567890],"more":1}`)
	mux.HandleFunc("/echo", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, req.Body)
	})
	mux.HandleFunc("/name/{name}", func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.Method != http.MethodPost {
			t.Errorf("%s, %v", req.Method, err)
		}
		if !json.Valid(body) {
			body, _ = json.Marshal(string(body))
		}
		_, _ = fmt.Fprintf(w, `{"name":%q,"in":%s}`, req.PathValue("name"), body)
	})
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, req *http.Request) {
		code, err := strconv.Atoi(req.PathValue("code"))
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"code":%d}`, code)
	})
	mux.HandleFunc("/inner", func(w http.ResponseWriter, req *http.Request) {
		var outer struct {
			In json.RawMessage `json:"in"`
		}
		if err := json.NewDecoder(req.Body).Decode(&outer); err != nil {
			t.Error(err)
		}
		_, _ = w.Write(outer.In)
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, "/name/moved", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "only a part")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

var usual = Limits{Body: 1 << 20, Pending: 16 << 20, Requests: 100}

// made is a router for a graph in which BASE is the address of services and DEAD one that nobody answers at.
func made(t testing.TB, graph, headers string, limits Limits) *Router {
	t.Helper()
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	base := ""
	if strings.Contains(graph, "BASE") {
		base = services(t).URL
	}
	g, err := Parse(strings.NewReplacer("BASE", base, "DEAD", dead.URL).Replace(graph))
	if err != nil {
		t.Fatal(err)
	}
	r := New(g, headers, limits, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		share := r.caller.budget.Share()
		if err := share.Grow(max(limits.Pending, 2*limits.Body)); err != nil {
			t.Errorf("memory is held for requests that are over: %v", err)
		}
		share.Release()
		r.caller.client.CloseIdleConnections()
	})
	return r
}

// served is the router behind an address.
func served(t testing.TB, r *Router) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(ready(process.Stopping(forever{}), r))
	t.Cleanup(server.Close)
	return server
}

// ask has the answer in one line: status, kind, body.
func ask(t testing.TB, url, body string) string {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(response.StatusCode, " ", cmp.Or(response.Header.Get("Content-Type"), "-"), " ", string(text))
}

const failedWith = ` application/json {"error":"Failed to process request","cause":"`

func TestNodes(t *testing.T) {
	const switched = `{"routerType":"Switch","steps":[{"serviceUrl":"BASE/name/one","condition":"a.#(id==1)"},{"serviceUrl":"BASE/name/two","condition":"{ .kind == \"two\" }"}]}`
	for _, c := range []struct {
		name, graph, in, want string
	}{
		{"a sequence hands its input to every step", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a"},{"serviceUrl":"BASE/name/b","data":"$request"}]}`,
			`{"x":1}`, `200 application/json {"name":"b","in":{"x":1}}`},
		{"or the reply before", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a"},{"serviceUrl":"BASE/name/b","data":"$response"}]}`,
			`1`, `200 application/json {"name":"b","in":{"name":"a","in":1}}`},
		{"or a part of it", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/predictions"},{"serviceUrl":"BASE/name/b","data":"$response.predictions"}]}`,
			`1`, `200 application/json {"name":"b","in":[1.10,12345678901234567890]}`},
		{"which has to be there", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a"},{"serviceUrl":"BASE/name/b","data":"$response.predictions"}]}`,
			`1`, `500` + failedWith + `step 1 of node root gets $response.predictions, which the reply before it does not have"}`},
		{"and have parts", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/text"},{"serviceUrl":"BASE/name/b","data":"$response.predictions"}]}`,
			`1`, `500` + failedWith + `invalid response"}`},
		{"the first step has no reply before it", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a","data":"$response"}]}`,
			`1`, `200 application/json {"name":"a","in":1}`},
		{"predictions become instances", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/predictions"},{"serviceUrl":"BASE/name/b","data":"$response","mapPredictionsToInstances":true}]}`,
			`1`, `200 application/json {"name":"b","in":{"instances":[1.10,12345678901234567890]}}`},
		{"what has none stays", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/b","mapPredictionsToInstances":true}]}`,
			`{"predictions":[]}`, `200 application/json {"name":"b","in":{"predictions":[]}}`},
		{"a condition is met", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a"},{"serviceUrl":"BASE/name/b","condition":"name"}]}`,
			`1`, `200 application/json {"name":"b","in":1}`},
		{"a condition is not met", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a"},{"serviceUrl":"BASE/name/b","condition":"nothing"}]}`,
			`1`, `200 application/json {"name":"a","in":1}`},
		{"and an earlier status is kept", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/status/503"},{"serviceUrl":"BASE/name/b","condition":"nothing"}]}`,
			`1`, `503 application/json {"code":503}`},
		{"a condition on the first step", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a","condition":"a"}]}`,
			`1`, `500` + failedWith + `invalid response"}`},
		{"a condition on a text", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/text"},{"serviceUrl":"BASE/name/b","condition":"name"}]}`,
			`1`, `500` + failedWith + `invalid response"}`},
		{"a hard step fails", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/status/422","dependency":"Hard"},{"serviceUrl":"BASE/name/b"}]}`,
			`1`, `422 application/json {"code":422}`},
		{"a soft step fails", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/status/422","dependency":"Soft"},{"serviceUrl":"BASE/name/b","data":"$response"}]}`,
			`1`, `200 application/json {"name":"b","in":{"code":422}}`},
		{"the last step fails", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a"},{"serviceUrl":"BASE/status/500"}]}`,
			`1`, `500 application/json {"code":500}`},
		{"a sequence without steps", `"root":{"routerType":"Sequence"}`, `1`, `500` + failedWith + `node root is a Sequence without steps"}`},

		{"a switch chooses by what the request says", `"root":` + switched, `{"a":[{"id":2},{"id":1}]}`, `200 application/json {"name":"one","in":{"a":[{"id":2},{"id":1}]}}`},
		{"also in the form that the API describes", `"root":` + switched, `{"kind":"two"}`, `200 application/json {"name":"two","in":{"kind":"two"}}`},
		{"or finds nothing", `"root":` + switched, `{"kind":"three"}`, `404` + failedWith + `None of the routes matched with the switch condition"}`},
		{"or no JSON", `"root":` + switched, `kind`, `404` + failedWith + `None of the routes matched with the switch condition"}`},
		{"a switch below keeps its status", `"root":{"routerType":"Sequence","steps":[{"nodeName":"below"}]},"below":` + switched, `1`,
			`404` + failedWith + `None of the routes matched with the switch condition"}`},
		{"a switch leads to a node", `"root":{"routerType":"Switch","steps":[{"nodeName":"below","condition":"a"}]},"below":` + switched, `{"a":[{"id":1}]}`,
			`200 application/json {"name":"one","in":{"a":[{"id":1}]}}`},

		{"an ensemble puts answers under names", `"root":{"routerType":"Ensemble","steps":[{"name":"z","serviceUrl":"BASE/name/a"},{"serviceUrl":"BASE/exact"}]}`,
			`1`, `200 application/json {"1":{"n":12345678901234567890,"f":1.10,"t":"<&>"},"z":{"name":"a","in":1}}`},
		{"an ensemble of nothing", `"root":{"routerType":"Ensemble"}`, `1`, `200 application/json {}`},
		{"a soft step of an ensemble fails", `"root":{"routerType":"Ensemble","steps":[{"name":"a","serviceUrl":"BASE/status/500"},{"name":"b","serviceUrl":"BASE/null","dependency":"Hard"}]}`,
			`1`, `200 application/json {"a":{"code":500},"b":null}`},
		{"a hard step of an ensemble fails, the first in the list", `"root":{"routerType":"Ensemble","steps":[{"name":"a","serviceUrl":"BASE/name/a"},` +
			`{"name":"b","serviceUrl":"BASE/status/503","dependency":"Hard"},{"name":"c","serviceUrl":"BASE/status/500","dependency":"Hard"}]}`, `1`, `503 application/json {"code":503}`},
		{"a soft step is no object", `"root":{"routerType":"Ensemble","steps":[{"name":"a","serviceUrl":"BASE/list"}]}`, `1`,
			`200 application/json {"a":{"error":"Failed to process request","cause":"the reply of step a of node root is no JSON object"}}`},
		{"a hard step is no object", `"root":{"routerType":"Ensemble","steps":[{"name":"a","serviceUrl":"BASE/text","dependency":"Hard"}]}`, `1`,
			`500` + failedWith + `the reply of step a of node root is no JSON object"}`},
		{"a node in an ensemble", `"root":{"routerType":"Ensemble","steps":[{"name":"a","nodeName":"below"}]},"below":` + switched, `{"kind":"two"}`,
			`200 application/json {"a":{"name":"two","in":{"kind":"two"}}}`},

		{"a splitter without weights", `"root":{"routerType":"Splitter","steps":[{"serviceUrl":"BASE/name/a"}]}`, `1`, `500` + failedWith + `no route was selected by the splitter"}`},
		{"a splitter with one way", `"root":{"routerType":"Splitter","steps":[{"serviceUrl":"BASE/name/a","weight":0},{"serviceUrl":"BASE/name/b","weight":100}]}`, `1`,
			`200 application/json {"name":"b","in":1}`},

		{"no root", `"other":{"routerType":"Ensemble"}`, `1`, `500` + failedWith + `invalid route type: "}`},
		{"a node that is not there", `"root":{"routerType":"Sequence","steps":[{"nodeName":"x"}]}`, `1`, `500` + failedWith + `invalid route type: "}`},
		{"a type that is not there", `"root":{"routerType":"Guess"}`, `1`, `500` + failedWith + `invalid route type: Guess"}`},
		{"a circle", `"root":{"routerType":"Sequence","steps":[{"nodeName":"root"}]}`, `1`,
			`500` + failedWith + `node root is reached through 100 others, which is the most; look for nodes that lead to each other in a circle"}`},
		{"a circle that ends", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/inner"},{"nodeName":"root","data":"$response","condition":"in"}]}`,
			`{"in":{"in":{"in":{"x":1}}}}`, `200 application/json {"x":1}`},
		{"no address", `"root":{"routerType":"Sequence","steps":[{}]}`, `1`, `500` + failedWith + `Post \"\": unsupported protocol scheme \"\""}`},
		{"no address that can be read", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"http://a b/"}]}`, `1`, `500` + failedWith + `parse \"http://a b/\": invalid character \" \" in host name"}`},
		{"nor is its password told", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"http://me:hush@a b/"}]}`, `1`, `500` + failedWith + `the serviceUrl of step 0 of node root cannot be read"}`},

		{"a text is one", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/text"}]}`, `1`, `200 text/plain; charset=utf-8 hello`},
		{"nothing is of no kind", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/empty"}]}`, `1`, `200 - `},
		{"no content", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/status/204"}]}`, `1`, `204 - `},
		{"redirects are followed", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/moved"}]}`, `1`, `200 application/json {"name":"moved","in":1}`},
		{"an input that is no JSON", `"root":{"routerType":"Sequence","steps":[{"serviceUrl":"BASE/name/a"}]}`, `x`, `200 application/json {"name":"a","in":"x"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := served(t, made(t, `{"nodes":{`+c.graph+`}}`, "", usual))
			if got := ask(t, server.URL+"/v1/models/any:predict?x=y", c.in); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestNobodyThere: errors of the network name the address, and a soft step of an Ensemble covers them.
func TestNobodyThere(t *testing.T) {
	for graph, want := range map[string][]string{
		`{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"DEAD/x","dependency":"Soft"}]}}}`:                      {"500", `Post \"http://127.0.0.1:`, "connection refused"},
		`{"nodes":{"root":{"routerType":"Ensemble","steps":[{"name":"a","serviceUrl":"DEAD/x","dependency":"Hard"}]}}}`:           {"500", `"cause":"Post `, "connection refused"},
		`{"nodes":{"root":{"routerType":"Ensemble","steps":[{"name":"a","serviceUrl":"DEAD/x"},{"serviceUrl":"BASE/exact"}]}}}`:   {"200", `"a":{"error":"Failed to process request","cause":"Post`, `"1":{"n":12345678901234567890`},
		`{"nodes":{"root":{"routerType":"Splitter","steps":[{"serviceUrl":"BASE/cut","weight":100}]}}}`:                           {"500", `/cut\": the reply breaks off: unexpected EOF`},
		`{"nodes":{"root":{"routerType":"Ensemble","steps":[{"name":"a","serviceUrl":"BASE/cut"},{"serviceUrl":"BASE/exact"}]}}}`: {"200", `"a":{"error":`, "breaks off"},
	} {
		server := served(t, made(t, graph, "", usual))
		got := ask(t, server.URL, "1")
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %s does not say %s", graph, got, part)
			}
		}
	}
}

func TestSplitter(t *testing.T) {
	server := served(t, made(t, `{"nodes":{"root":{"routerType":"Splitter","steps":[
		{"serviceUrl":"BASE/name/a","weight":20},{"serviceUrl":"BASE/name/b","weight":70},{"serviceUrl":"BASE/name/c","weight":10}]}}}`, "", usual))
	counts := map[string]int{}
	const requests = 2000
	for range requests {
		counts[ask(t, server.URL, "1")]++
	}
	for name, share := range map[string]int{"a": 20, "b": 70, "c": 10} {
		got := 100 * float64(counts[`200 application/json {"name":"`+name+`","in":1}`]) / requests
		if got < float64(share)-6 || got > float64(share)+6 { // more than five standard deviations
			t.Errorf("%s got %.1f %% of requests, want %d %%", name, got, share)
		}
	}
}

func TestHeaders(t *testing.T) {
	in := http.Header{
		"Authorization": {"secret"}, "Proxy-Authorization": {"other"}, "X-Request-Id": {"1", "2"}, "X-B3-Traceid": {"t"}, "Test-Header-One": {"1"},
		"My-Trace-Id-Too": {"m"}, "Accept-Encoding": {"gzip"}, "Connection": {"close, x-mine"}, "X-Mine": {"1"}, "Content-Type": {"text/csv"}, "Content-Length": {"3"},
	}
	for patterns, want := range map[string]string{
		"":                               "",
		",":                              "",
		"Authorization":                  "Authorization",
		"authorization, x-request-id":    "Authorization X-Request-Id",
		"Test-Header-*":                  "Test-Header-One",
		"*Trace-Id*":                     "My-Trace-Id-Too",
		"X-.*":                           "X-B3-Traceid X-Request-Id",
		"^X-B3":                          "X-B3-Traceid",
		"-Id$":                           "X-Request-Id",
		"X-[A-Z]{1,9}-Id,Authorization":  "Authorization X-Request-Id",
		"(Test|My)-.*":                   "My-Trace-Id-Too Test-Header-One",
		"[,Authorization":                "", // no pattern at all
		"*":                              "Authorization Content-Type My-Trace-Id-Too Test-Header-One X-B3-Traceid X-Request-Id",
		`Content-Type,Nobody\,Has-This`:  "Content-Type",
		"Accept-Encoding,Content-Length": "",
	} {
		read, wrong := readHeaders(patterns)
		out := read.of(in)
		kind := "application/json"
		if strings.Contains(want, "Content-Type") {
			kind = "text/csv"
		} else {
			want = strings.TrimSpace(want + " Content-Type")
		}
		if out.Get("Content-Type") != kind {
			t.Errorf("%s: the kind is %s", patterns, out.Get("Content-Type"))
		}
		if got := names(out); got != sorted(want) {
			t.Errorf("%s: got %s, want %s", patterns, got, sorted(want))
		}
		if (len(wrong) > 0) != strings.HasPrefix(patterns, "[") {
			t.Errorf("%s: %v", patterns, wrong)
		}
	}
}

func names(h http.Header) string { return strings.Join(slices.Sorted(maps.Keys(h)), " ") }

func sorted(words string) string {
	all := strings.Fields(words)
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestHeadersArrive: all values of a header reach all steps, and no other header does.
func TestHeadersArrive(t *testing.T) {
	got := make(chan http.Header, 2)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got <- req.Header }))
	defer service.Close()
	server := served(t, made(t, `{"nodes":{"root":{"routerType":"Sequence","steps":[{"serviceUrl":"`+service.URL+`"},{"serviceUrl":"`+service.URL+`"}]}}}`, "X-*", usual))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL, strings.NewReader("1"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-A": {"1", "2"}, "Authorization": {"secret"}, "Content-Type": {"text/csv"}}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	for range 2 {
		h := <-got
		if fmt.Sprint(h["X-A"]) != "[1 2]" || h.Get("Authorization") != "" || h.Get("Content-Type") != "application/json" {
			t.Errorf("a step got %v", h)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "--graph-json is empty",
		"  ":                             "--graph-json is empty",
		"{":                              "--graph-json is no InferenceGraph: unexpected end of JSON input",
		`{"nodes":[]}`:                   "--graph-json is no InferenceGraph",
		`{} {}`:                          "--graph-json is no InferenceGraph",
		`{"nodes":{"a":null}}`:           "",
		`null`:                           "",
		`{"resources":{},"timeout":5}`:   "",
		`{"routerTimeouts":null}`:        "",
		`{"nodes":{"a":{"steps":null}}}`: "",
	} {
		g, err := Parse(text)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", text, err, want)
		case err == nil:
			g.Doubts()
		}
	}
}

func TestDoubts(t *testing.T) {
	g, err := Parse(`{"nodes":{
		"a":{"routerType":"Sequence","steps":[{"nodeName":"b"}]},
		"b":{"routerType":"Ensemble","steps":[{"nodeName":"a"},{"nodeName":"gone"}]},
		"c":{"routerType":"Sequence","steps":[{"serviceUrl":"x"},{"nodeName":"c","condition":"a"}]},
		"d":{"routerType":"Switch","steps":[{"serviceUrl":"x","condition":"{a}"},{"serviceUrl":"x","condition":"l.#(a==1)#"},{"name":"n"}]},
		"e":{"routerType":"Guess"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"there is no node root, where every request begins",
		"node a leads to itself without a condition on the way",
		"step 1 of node b leads to the node gone, which does not exist",
		"node b leads to itself without a condition on the way",
		"the condition of step 0 of node d always holds: it is a value and no path; write { .a == 1 } or [@this].#(a==1)",
		"the condition of step 1 of node d holds whenever there is such a list, whatever is in it; leave out the # at the end",
		"step n of node d leads nowhere: it has neither nodeName nor serviceUrl",
		"step n of node d has no condition, so that it is never chosen",
		`node e has the type "Guess", which is none of Sequence, Splitter, Switch and Ensemble`,
		"node e has no steps",
	}
	if got := strings.Join(g.Doubts(), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestConditions(t *testing.T) {
	for _, c := range []struct {
		condition, body string
		met             bool
	}{
		{`a.b`, `{"a":{"b":null}}`, true},
		{`a.b`, `{"a":{"b":false}}`, true},
		{`a.b`, `{"a":{}}`, false},
		{`list.#(id==1)`, `{"list":[{"id":2},{"id":1}]}`, true},
		{`list.#(id==1)`, `{"list":[{"id":2}]}`, false},
		{`list.#(name%"x*")`, `{"list":[{"name":"xy"}]}`, true},
		{`list.#(id==1)#`, `{"list":[]}`, true},
		{`[@this].#(predictions.class=="dog")`, `{"predictions":{"class":"dog"}}`, true},
		{`[@this].#(predictions.class=="dog")`, `{"predictions":{"class":"cat"}}`, false},
		{`{ .a == 1 }`, `{"a":1}`, true},
		{`{ .a == 1 }`, `{"a":2}`, false},
		{`{.a.b[1]>=2.5}`, `{"a":{"b":[0,3]}}`, true},
		{`{.a.b[1]>=2.5}`, `{"a":{"b":[0,2]}}`, false},
		{`{ .a == 'x y' }`, `{"a":"x y"}`, true},
		{`{ .a != "x" }`, `{"a":"x"}`, false},
		{`{ .a == "q\"}" }`, `{"a":"q\"}"}`, true},
		{`{ .a == true }`, `{"a":true}`, true},
		{`{ .a == true }`, `{"a":false}`, false},
		{`{a}`, `{}`, true},
		{``, `{"a":1}`, false},
	} {
		if got := readCondition(c.condition).met([]byte(c.body)); got != c.met {
			t.Errorf("%s on %s is %v", c.condition, c.body, got)
		}
	}
}

func FuzzGraph(f *testing.F) {
	f.Add(`{"nodes":{"root":{"routerType":"Switch","steps":[{"serviceUrl":"http://x","condition":"[@this].#(a==1)"}]}}}`, []byte(`{"a":1}`))
	f.Add(`{"nodes":{"root":{"routerType":"Sequence","steps":[{"nodeName":"root","data":"$response.a","mapPredictionsToInstances":true,"weight":3}]}}}`, []byte(`{"predictions":[1]}`))
	f.Add(`{"nodes":{"a":null},"routerTimeouts":{"serverRead":-1}}`, []byte(`[[`))
	f.Add(`{"nodes":{"a":{"routerType":"Switch","steps":[{"condition":"{ .a[0] == \"b\" }"},{"condition":"a.@this.#(b%\"*\")#|@flatten"}]}}}`, []byte(`{"a":[{"b":"c"}]}`))
	f.Fuzz(func(t *testing.T, text string, body []byte) {
		g, err := Parse(text)
		if err != nil {
			return
		}
		g.Doubts()
		seconds(g.Timeouts.ServerRead, 1)
		mapped := instancesOf(body)
		if !json.Valid(body) {
			if !bytes.Equal(mapped, body) {
				t.Errorf("%q became %q", body, mapped)
			}
			return
		}
		if !json.Valid(mapped) {
			t.Errorf("%q became %q", body, mapped)
		}
		for _, node := range g.Nodes {
			for _, step := range node.Steps {
				step.condition.met(body)
				if step.part != "" {
					part(body, step.part)
				}
			}
		}
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add("Authorization,X-[A-Z]{1,2}", "X-Ab")
	f.Add(`*Trace-Id*,^a$,\`, "Trace-Id")
	f.Fuzz(func(t *testing.T, patterns, name string) {
		read, _ := readHeaders(patterns)
		out := read.of(http.Header{name: {"v"}})
		if strings.Trim(patterns, ", \t\r\n") == "" && name != "Content-Type" && len(out) != 1 {
			t.Errorf("no pattern hands on %v", out)
		}
	})
}
