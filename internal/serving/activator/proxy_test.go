// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/serving/activation"
	"github.com/modelplane/modelplane/internal/testkit"
)

const patience = 2 * time.Minute

// bench is a proxy with a table, over real sockets, without an API server.
type bench struct {
	*table
	proxy  *proxy
	server *httptest.Server
	woken  atomic.Int64
}

func newBench(t *testing.T, hold time.Duration, held int64, owner func(*target) string) *bench {
	t.Helper()
	b := &bench{}
	b.table = newTable(&bounds{perService: held, total: held + 1}, func(*target) { b.woken.Add(1) }, func() []byte { return []byte("key") })
	if owner == nil {
		owner = func(*target) string { return "" }
	}
	log := slog.New(slog.DiscardHandler)
	b.proxy = newProxy(b.table, hold, owner, newMetrics(prometheus.NewRegistry(), b.table), log)
	b.proxy.strange = 0
	b.server = httptest.NewUnstartedServer(b.proxy)
	b.server.Config.Protocols = new(http.Protocols)
	b.server.Config.Protocols.SetHTTP1(true)
	b.server.Config.Protocols.SetUnencryptedHTTP2(true)
	b.server.Start()
	t.Cleanup(b.server.Close)
	return b
}

var plainPorts = []port{{name: "http1", number: 80}, {name: "grpc", number: 9000, http2: true}}

func (b *bench) service(namespace, name string, limit int64) *target {
	s := activation.Settings{Metric: activation.Concurrency, Target: 10, Max: 3, Limit: limit, Hosts: []string{name + "-" + namespace + ".example.com"}}
	return b.put(namespace, name, time.Unix(1, 0), s, plainPorts)
}

// podAt is a pod whose ports are both those of a server.
func podAt(t *testing.T, address string) *pod {
	t.Helper()
	host, digits, err := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return &pod{address: host, ports: map[string]int32{"http1": int32(number), "grpc": int32(number)}}
}

// ask sends one request, and says what came back.
func (b *bench) ask(ctx context.Context, host, body string) (code int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.server.URL+"/v1/models/a:predict?x=1;y=2", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all) + resp.Header.Get("Retry-After"), err
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // whoever asks notices
	_, _ = io.WriteString(w, r.Host+" "+r.RequestURI+" "+string(body))
}

// TestFind: who is meant by a host.
func TestFind(t *testing.T) {
	b := newBench(t, time.Second, 10, nil)
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	b.service("team", "iris", 0).setPods([]*pod{podAt(t, server.URL)})
	b.service("team", "both", 0).setPods([]*pod{podAt(t, server.URL)})
	b.service("other", "both", 0).setPods([]*pod{podAt(t, server.URL)})
	for host, want := range map[string]int{
		"iris": 200, "iris.team": 200, "iris.team.svc": 200, "iris.team.svc.cluster.local": 200, "IRIS.team.svc.any.domain.:80": 200,
		"iris-team.example.com:8080": 200, "both.other": 200, "both": 421, "iris.other": 404, "nobody": 404, "": 404,
	} {
		code, text, err := b.ask(t.Context(), host, "hello")
		if err != nil || code != want {
			t.Errorf("%q: %d %s %v, want %d", host, code, text, err, want)
		}
		if code == 200 && text != host+" /v1/models/a:predict?x=1;y=2 hello" {
			t.Errorf("%q: the pod got %s", host, text)
		}
	}
}

// TestHeader: only who has the key of a component, or of the replicas, says by the header whom a request is for. Nobody gets to
// a service of another namespace by it, and nobody takes its names.
func TestHeader(t *testing.T) {
	b := newBench(t, time.Second, 10, nil)
	pod := func(says string) []*pod {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, says, r.Header[activation.Header], r.Header[headerForwarded])
		}))
		t.Cleanup(server.Close)
		return []*pod{podAt(t, server.URL)}
	}
	put := func(namespace, name string, at int64, hosts ...string) activation.Settings {
		s := activation.Settings{Metric: activation.Concurrency, Target: 10, Max: 3, Hosts: hosts, Key: activation.KeyOf(types.UID(namespace), name)}
		b.put(namespace, name, time.Unix(at, 0), s, plainPorts).setPods(pod(namespace))
		return s
	}
	evil := put("evil", "iris", 1, "evil.example.com", "iris.team", "iris.team.svc.cluster.local")
	mine := put("team", "iris", 2, "team.example.com")
	for name, c := range map[string]struct{ host, header, forwarded, want string }{
		"no header":                          {"evil.example.com", "", "", "evil[] []"},
		"the name of another":                {"evil.example.com", "iris.team", "", "evil[] []"},
		"its name, and no key":               {"evil.example.com", "iris.team/", "", "evil[] []"},
		"its name, and a guess":              {"evil.example.com", "iris.team/" + strings.Repeat("a", 26), "", "evil[] []"},
		"its name, and one's own key":        {"evil.example.com", "iris.team/" + evil.Key, "", "evil[] []"},
		"a host of nobody and no key":        {"path.example.com", "iris.team", "", "404"},
		"a host of nobody and the key":       {"path.example.com", mine.Address("team", "iris"), "", "team[] []"},
		"a host of another and the key":      {"evil.example.com", mine.Address("team", "iris"), "", "team[] []"},
		"as if a replica had it handed over": {"evil.example.com", "iris.team:80", "1", "evil[] []"},
		"a replica hands it over":            {"evil.example.com", "iris.team:80", handing([]byte("key"), "iris.team:80"), "team[] []"},
		"what was handed over for another":   {"team.example.com", "iris.team:80", handing([]byte("key"), "iris.evil:80"), "team[] []"},
		"a name that another claims":         {"iris.team", "", "", "team[] []"},
		"a longer one":                       {"iris.team.svc.cluster.local", "", "", "team[] []"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = c.host
			for name, value := range map[string]string{activation.Header: c.header, headerForwarded: c.forwarded} {
				if value != "" {
					req.Header.Set(name, value)
				}
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK && c.want != strconv.Itoa(resp.StatusCode) || resp.StatusCode == http.StatusOK && string(text) != c.want {
				t.Errorf("%s: %s %v, want %s", resp.Status, text, err, c.want)
			}
		})
	}
	// Without a key of the replicas nobody is one of them.
	b.key = func() []byte { return nil }
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set(activation.Header, "iris.team:80")
	r.Header.Set(headerForwarded, handing(nil, "iris.team:80"))
	if b.handedOver(r) {
		t.Error("no key opens everything")
	}
}

// TestParting: a service that is no longer ours is handed on to for a while, on connections that end, and nobody else has its
// name when it comes back.
func TestParting(t *testing.T) {
	b := newBench(t, time.Second, 10, nil)
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	b.service("team", "iris", 0).setPods([]*pod{podAt(t, server.URL)})
	for _, c := range []struct {
		do    func()
		close bool
	}{{func() {}, false}, {func() { b.remove("team", "iris", func() {}) }, true}, {func() { b.service("team", "iris", 0) }, false}} {
		c.do()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "iris"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Close != c.close {
			t.Errorf("%s, closed %v, want %v", resp.Status, resp.Close, c.close)
		}
	}
	if all := b.all(); len(all) != 1 {
		t.Errorf("%d targets", len(all))
	}
}

// TestLeavesInAnyOrder: the activator hears of the end of a Service and of its EndpointSlice in any order, and hands requests on
// to the pods that it knew; of pods that are gone it hears by the slice.
func TestLeavesInAnyOrder(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	at := podAt(t, server.URL)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: activation.PodsService("iris"), Annotations: map[string]string{
		activation.Annotation: settings(0).Encode()}}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http1", Port: 80}}}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", Labels: map[string]string{
		discoveryv1.LabelServiceName: service.Name}}, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http1"), Port: ptr.To(at.ports["http1"])}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{at.address}}}}
	empty := slice.DeepCopy()
	empty.Endpoints = nil
	type step func(*watcher)
	come, listed := func(w *watcher) { w.putService(service) }, func(w *watcher) { w.putSlice(slice) }
	gone, unlisted := func(w *watcher) { w.removeService(service) }, func(w *watcher) { w.removeSlice(slice) }
	for name, c := range map[string]struct {
		steps []step
		code  int
	}{
		"there":                             {[]step{come, listed}, 200},
		"the Service is heard of last":      {[]step{listed, come}, 200},
		"the Service first":                 {[]step{come, listed, gone, unlisted}, 200},
		"the slice first":                   {[]step{come, listed, unlisted, gone}, 200},
		"the slice, and the Service stays":  {[]step{come, listed, unlisted, come}, 200},
		"pods are known when it is leaving": {[]step{come, gone, listed}, 200},
		"no pod":                            {[]step{come, listed, func(w *watcher) { w.putSlice(empty) }}, 504},
		"another slice is left":             {[]step{come, listed, func(w *watcher) { other := empty.DeepCopy(); other.Name = "b"; w.putSlice(other) }, unlisted}, 504},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 100*time.Millisecond, 10, nil)
			w := newWatcher(b.table, &peers{}, newMetrics(prometheus.NewRegistry(), b.table), slog.New(slog.DiscardHandler))
			for _, do := range c.steps {
				do(w)
			}
			if code, text, err := b.ask(t.Context(), "iris.team", "x"); code != c.code || err != nil {
				t.Errorf("%d %s %v, want %d", code, text, err, c.code)
			}
		})
	}
}

// TestManyHosts: a service is known by all the hosts that its Service can be told of.
func TestManyHosts(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	b := newBench(t, time.Second, 10, nil)
	w := newWatcher(b.table, &peers{}, newMetrics(prometheus.NewRegistry(), b.table), slog.New(slog.DiscardHandler))
	s := settings(0)
	for i := range activation.MostHosts {
		s.Hosts = append(s.Hosts, fmt.Sprintf("iris-team.domain-%d-of-many-that-the-platform-has.example.com", i))
	}
	w.putService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: activation.PodsService("iris"), Annotations: map[string]string{
		activation.Annotation: s.Encode()}}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http1", Port: 80}}}})
	if b.get("team/iris") == nil {
		t.Fatal("it is not known")
	}
	b.get("team/iris").setPods([]*pod{podAt(t, server.URL)})
	for _, host := range []string{s.Hosts[0], s.Hosts[len(s.Hosts)-1]} {
		if code, text, err := b.ask(t.Context(), host, "x"); code != http.StatusOK || err != nil {
			t.Errorf("%s: %d %s %v", host, code, text, err)
		}
	}
}

// TestLeftWithoutPods: requests that wait for pods of a service when it leaves are sent to ask again, and do not wait for
// pods that nobody brings.
func TestLeftWithoutPods(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Hour, 10, nil)
	target := b.service("team", "iris", 0)
	answers := make(chan string, 2)
	ask := func() {
		code, text, err := b.ask(t.Context(), "iris.team", "x")
		answers <- fmt.Sprint(code, " ", text, err)
	}
	go ask()
	testkit.Eventually(t, patience, "the request to wait", func() error {
		if target.figures().Waiting != 1 {
			return errors.New("it does not")
		}
		return nil
	})
	b.remove("team", "iris", func() {})
	go ask()
	for range 2 {
		if got := <-answers; !strings.HasPrefix(got, "503") || !strings.Contains(got, "Ask again") {
			t.Error(got)
		}
	}
	if f := target.figures(); f.Inside != 0 || f.Waiting != 0 || b.bounds.waiting.Load() != 0 {
		t.Errorf("left over: %+v", f)
	}
}

// TestComesTooEarly: a request that comes before the word of its service waits for it, and only so many do.
func TestComesTooEarly(t *testing.T) {
	b := newBench(t, patience, 10, nil)
	b.proxy.strange = patience
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	answered := make(chan int, 1)
	go func() {
		code, _, err := b.ask(t.Context(), "iris.team", "x")
		if err != nil {
			t.Error(err)
		}
		answered <- code
	}()
	testkit.Eventually(t, patience, "the request to wait", func() error {
		if b.bounds.strangers.Load() != 1 {
			return errors.New("it does not")
		}
		return nil
	})
	b.service("team", "other", 0)
	b.service("team", "iris", 0).setPods([]*pod{podAt(t, server.URL)})
	if code := <-answered; code != 200 {
		t.Error(code)
	}
	b.bounds.strangers.Store(mostStrangers)
	if code, text, err := b.ask(t.Context(), "nobody.team", "x"); code != 404 {
		t.Errorf("one too many: %d %s %v", code, text, err)
	}
	if n := b.bounds.strangers.Load(); n != mostStrangers {
		t.Errorf("%d are counted", n)
	}
}

// TestBounds: what a replica does not hold, and for how long it holds the rest.
func TestBounds(t *testing.T) {
	b := newBench(t, 2*time.Second, 2, nil)
	b.service("team", "iris", 0)
	var all sync.WaitGroup
	answers := make(chan int, 5)
	for range 2 {
		all.Go(func() {
			code, text, err := b.ask(t.Context(), "iris.team", "")
			if err != nil || !strings.Contains(text, "within 2s") {
				t.Errorf("%d %s %v", code, text, err)
			}
			answers <- code
		})
	}
	testkit.Eventually(t, patience, "two requests to wait", func() error {
		if n := b.get("team/iris").figures().Waiting; n != 2 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	if code, text, err := b.ask(t.Context(), "iris.team", ""); code != 503 || !strings.HasSuffix(text, retryAfter) {
		t.Errorf("one too many: %d %s %v", code, text, err)
	}
	all.Wait()
	for range 2 {
		if code := <-answers; code != 504 {
			t.Errorf("%d after the time, want 504", code)
		}
	}
	if b.woken.Load() == 0 {
		t.Error("nobody was asked for a pod")
	}
	if f := b.get("team/iris").figures(); f.Inside != 0 || f.Waiting != 0 || b.bounds.waiting.Load() != 0 {
		t.Errorf("left over: %+v", f)
	}
}

// TestUnreachablePod: a request whose pod cannot be connected to goes to another, body and all.
func TestUnreachablePod(t *testing.T) {
	b := newBench(t, patience, 10, nil)
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	gone := httptest.NewServer(http.HandlerFunc(echo))
	gone.Close()
	target := b.service("team", "iris", 0)
	target.setPods([]*pod{podAt(t, gone.URL), podAt(t, strings.Replace(server.URL, "127.0.0.1", "localhost", 1))})
	for _, size := range []int{0, 10, 3 * smallBody} {
		for range 4 {
			code, text, err := b.ask(t.Context(), "iris.team", strings.Repeat("a", size))
			if err != nil || code != 200 || strings.Count(text, "a") < size {
				t.Errorf("%d bytes: %d %d %v", size, code, len(text), err)
			}
		}
	}
}

// TestPodBreaksOff: a request that a pod had is not sent again.
func TestPodBreaksOff(t *testing.T) {
	b := newBench(t, patience, 10, nil)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	b.service("team", "iris", 0).setPods([]*pod{podAt(t, server.URL)})
	code, text, err := b.ask(t.Context(), "iris.team", "once")
	if err != nil || code != 502 || !strings.Contains(text, "not sent again") || asked.Load() != 1 {
		t.Errorf("%d %s %v, asked %d times", code, text, err, asked.Load())
	}
}

// TestLimit: a pod never has more requests than it takes, also when they come through two replicas, and all are answered.
func TestLimit(t *testing.T) {
	var now, most atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
			continue
		}
		<-time.After(5 * time.Millisecond)
		now.Add(-1)
	}))
	defer server.Close()
	first := newBench(t, patience, 100, nil)
	second := newBench(t, patience, 100, func(*target) string { return strings.TrimPrefix(first.server.URL, "http://") })
	for _, b := range []*bench{first, second} {
		b.service("team", "iris", 2).setPods([]*pod{podAt(t, server.URL)})
	}
	var all sync.WaitGroup
	for i := range 40 {
		b := first
		if i%2 == 1 {
			b = second
		}
		all.Go(func() {
			if code, text, err := b.ask(t.Context(), "iris.team", "x"); code != 200 {
				t.Errorf("%d %s %v", code, text, err)
			}
		})
	}
	all.Wait()
	if most.Load() != 2 {
		t.Errorf("%d at a time, want 2", most.Load())
	}
	// The replica that was handed everything over is gone: the other does it itself.
	first.server.Close()
	if code, text, err := second.ask(t.Context(), "iris.team", "x"); code != 200 {
		t.Errorf("without its peer: %d %s %v", code, text, err)
	}
}

// TestStreams: answers go on as they come, and what HTTP/2 without TLS carries arrives with its trailers.
func TestStreams(t *testing.T) {
	b := newBench(t, patience, 10, nil)
	more := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = fmt.Fprintf(w, "%s\n", r.Proto)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-more
		_, _ = io.WriteString(w, "last\n")
		w.Header().Set("Grpc-Status", "0")
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	b.service("team", "iris", 0).setPods([]*pod{podAt(t, server.URL)})
	http2 := &http.Transport{Protocols: new(http.Protocols)}
	http2.Protocols.SetUnencryptedHTTP2(true)
	defer http2.CloseIdleConnections()
	for _, c := range []struct {
		via         http.RoundTripper
		content     string
		proto, last string
	}{{http.DefaultTransport, "application/json", "HTTP/1.1\n", "0"}, {http2, "application/grpc", "HTTP/2.0\n", "0"}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.server.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "iris.team"
		req.Header.Set("Content-Type", c.content)
		resp, err := c.via.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(resp.Body)
		first, err := lines.ReadString('\n') // while the pod has not ended its answer
		if err != nil || first != c.proto {
			t.Errorf("%s: %q %v", c.content, first, err)
		}
		more <- struct{}{}
		rest, err := io.ReadAll(lines)
		if err != nil || string(rest) != "last\n" || resp.Trailer.Get("Grpc-Status") != c.last {
			t.Errorf("%s: %q %v, trailers %v", c.content, rest, err, resp.Trailer)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGate: while the leader takes the last pods away nothing is sent to them, and nothing is lost.
func TestGate(t *testing.T) {
	b := newBench(t, patience, 10, nil)
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	target := b.service("team", "iris", 0)
	target.setPods([]*pod{podAt(t, server.URL)})
	answered := make(chan error, 1)
	ask := func() {
		code, text, err := b.ask(t.Context(), "iris.team", "x")
		if code != 200 {
			err = errors.Join(err, fmt.Errorf("%d %s", code, text))
		}
		answered <- err
	}
	waits := func(when string) {
		t.Helper()
		testkit.Eventually(t, patience, "the request to wait "+when, func() error {
			if target.figures().Waiting != 1 {
				return errors.New("it does not")
			}
			return nil
		})
	}
	if !target.shut() {
		t.Fatal("an idle service cannot be shut")
	}
	go ask()
	waits("at the gate")
	if target.shut() {
		t.Error("a service with a request was shut")
	}
	target.open(false)
	if err := <-answered; err != nil {
		t.Errorf("the pod stayed: %v", err)
	}
	testkit.Eventually(t, patience, "the request to be over", func() error {
		if !target.shut() {
			return errors.New("it is not")
		}
		return nil
	})
	target.open(true)
	go ask()
	waits("for a new pod")
	if b.woken.Load() != 1 {
		t.Errorf("woken %d times", b.woken.Load())
	}
	other := httptest.NewServer(http.HandlerFunc(echo))
	defer other.Close()
	target.setPods([]*pod{podAt(t, strings.Replace(other.URL, "127.0.0.1", "localhost", 1))})
	if err := <-answered; err != nil {
		t.Errorf("a new pod: %v", err)
	}
}

// TestPeersKnowEachOther: only who has the key is answered.
func TestPeersKnowEachOther(t *testing.T) {
	b := newBench(t, time.Second, 1, nil)
	b.service("team", "iris", 0)
	key := func() []byte { return []byte("key") }
	me := newReplica(b.table, key)
	server := httptest.NewServer(me.handler())
	defer server.Close()
	friend := remote{address: strings.TrimPrefix(server.URL, "http://"), key: key, client: server.Client()}
	report, err := friend.figures(t.Context())
	if err != nil || report.Instance != me.instance || len(report.Services) != 1 {
		t.Errorf("%+v %v", report, err)
	}
	if done, err := friend.gate(t.Context(), gateQuestion{Service: "team/iris", Do: gateShut}); !done || err != nil {
		t.Errorf("%v %v", done, err)
	}
	if _, err := friend.gate(t.Context(), gateQuestion{Service: "team/iris", Do: "burn"}); err == nil {
		t.Error("anything is done")
	}
	stranger := friend
	stranger.key = func() []byte { return []byte("guess") }
	if _, err := stranger.figures(t.Context()); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a stranger is told: %v", err)
	}
	me.now = func() time.Time { return time.Now().Add(time.Hour) }
	if _, err := friend.figures(t.Context()); err == nil {
		t.Error("an old question is answered")
	}
}

func FuzzVerified(f *testing.F) {
	key, now := []byte("key"), time.Unix(1000, 0)
	f.Add(signed(key, "/gate", []byte("{}"), now), "/gate", []byte("{}"))
	f.Add("", "", []byte(nil))
	f.Fuzz(func(t *testing.T, said, path string, body []byte) {
		if verified([]byte("another"), said, path, body, now) {
			t.Error("without the key")
		}
		if verified(nil, said, path, body, now) {
			t.Error("no key opens everything")
		}
	})
}
