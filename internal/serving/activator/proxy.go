// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/modelplane/modelplane/internal/serving/activation"
)

// headerForwarded is on requests that another replica has handed over, which are not handed on again. It proves that the
// replica has the key, and speaks of whom the header activation.Header names.
const headerForwarded = "Modelplane-Forwarded"

// handedOver tells whether a request comes from another replica.
func (b *table) handedOver(r *http.Request) bool {
	said := r.Header.Get(headerForwarded)
	return said != "" && len(b.key()) > 0 && hmac.Equal([]byte(said), []byte(handing(b.key(), r.Header.Get(activation.Header))))
}

// handing is what a replica says in headerForwarded. It never reaches a pod or a client, so that it need not run out: clocks
// may differ.
func handing(key []byte, to string) string { return digestOf(key, "", "handed over", []byte(to)) }

// smallBody is the most bytes of a body that are kept while a pod has the request, to send it again over another
// connection if the pod closed the first one without having looked at it. While a request waits nothing is kept.
const smallBody = 64 << 10

// proxy hands requests on to pods.
type proxy struct {
	table *table
	hold  time.Duration
	// strange is how long a request for nobody waits for somebody.
	strange time.Duration
	// owner is the replica that alone counts the requests of a service with a limit; empty: this one.
	owner   func(*target) string
	log     *slog.Logger
	metrics *metrics
	reverse *httputil.ReverseProxy
}

// strangeFor is longer than it takes to hear of a Service, also when much is going on.
const strangeFor = 2 * time.Second

func newProxy(t *table, hold time.Duration, owner func(*target) string, m *metrics, log *slog.Logger) *proxy {
	p := &proxy{table: t, hold: hold, strange: strangeFor, owner: owner, log: log, metrics: m}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:       asItCame,
		Transport:     newCarrier(t.key),
		FlushInterval: -1, // streams go on as they come
		ErrorHandler:  p.failed,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return p
}

// asItCame changes nothing: a Service changes nothing either.
func asItCame(r *httputil.ProxyRequest) {
	r.Out.Host, r.Out.URL.Scheme, r.Out.URL.RawQuery = r.In.Host, "http", r.In.URL.RawQuery
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, has := r.In.Header[name]; has {
			r.Out.Header[name] = values
		}
	}
	r.Out.Header.Del(activation.Header)
}

// passage is the way of one request.
type passage struct {
	target *target
	port   port
	hold   time.Duration
	body   *body
	pod    *pod
	// peer is the replica that the request is handed over to; empty: none. One that is not handed over is counted.
	peer    string
	counted bool
	waited  time.Duration
}

type passageKey struct{}

// ServeHTTP answers every request for a service.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, port, ambiguous := p.table.expect(r, p.strange)
	if t == nil {
		p.unknown(w, r, ambiguous)
		return
	}
	if t.parts() {
		w.Header().Set("Connection", "close")
	}
	passage := &passage{target: t, port: port, hold: p.hold, body: newBody(r)}
	seen := &status{ResponseWriter: w}
	if !p.table.handedOver(r) {
		passage.peer = p.owner(t)
	}
	if passage.peer == "" {
		passage.count()
	}
	defer func() {
		passage.end()
		p.metrics.answered(t, seen.code, passage)
	}()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = passage.body
	}
	r.Header.Del(headerForwarded)
	p.reverse.ServeHTTP(seen, r.WithContext(context.WithValue(r.Context(), passageKey{}, passage)))
}

func (p *passage) count() {
	p.target.enter()
	p.counted = true
}

// end gives the pod back, and is the end of the request.
func (p *passage) end() {
	p.giveBack()
	if p.counted {
		p.target.leave()
	}
}

func (p *passage) giveBack() {
	if p.pod != nil {
		p.target.release(p.pod)
		p.pod = nil
	}
}

// status remembers what was answered.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	if s.code == 0 && code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap lets net/http find what else the writer can do.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// carrier sends requests to pods: it waits for one, and tries another when one cannot be reached.
type carrier struct {
	key func() []byte // of the replicas
	// kept connections are for requests that can be sent again, others get a connection of their own.
	kept, own, http2 *http.Transport
}

const (
	dialTimeout  = 3 * time.Second
	idleTimeout  = 3 * time.Second // before servers close connections, of which uvicorn's 5 s are the shortest
	idlePerPod   = 64
	headerBytes  = 1 << 20
	pingInterval = 15 * time.Second
)

func newCarrier(key func() []byte) *carrier {
	plain := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingInterval}).DialContext,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    idlePerPod,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: headerBytes,
		Protocols:              new(http.Protocols),
	}
	plain.Protocols.SetHTTP1(true)
	own, http2 := plain.Clone(), plain.Clone()
	own.DisableKeepAlives = true
	http2.Protocols = new(http.Protocols)
	http2.Protocols.SetUnencryptedHTTP2(true)
	http2.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingInterval}
	return &carrier{key: key, kept: plain, own: own, http2: http2}
}

// RoundTrip implements http.RoundTripper. A request is sent again only if no pod can have seen it, or if it may be repeated
// anyway.
func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	p, ok := r.Context().Value(passageKey{}).(*passage)
	if !ok {
		return nil, errors.New("a request without a passage")
	}
	if p.peer != "" {
		resp, err := c.send(r, p, p.peer)
		if err == nil || !p.body.untouched(err, r) {
			return resp, err
		}
		p.peer = "" // it is gone
		p.count()
	}
	patience, then := p.target.patience(p.hold)
	waiting, cancel := context.WithTimeoutCause(r.Context(), patience, then)
	defer cancel()
	for {
		begun := time.Now()
		pod, err := p.target.acquire(waiting, p.port.name)
		p.waited += time.Since(begun)
		if err != nil {
			return nil, err
		}
		p.pod = pod
		resp, err := c.send(r, p, pod.at(p.port.name))
		if err == nil {
			return resp, nil
		}
		p.giveBack()
		if r.Context().Err() != nil || !p.body.untouched(err, r) {
			return nil, err
		}
		p.target.shun(pod)
	}
}

// send sends a request once.
func (c *carrier) send(r *http.Request, p *passage, address string) (*http.Response, error) {
	out := r.WithContext(r.Context())
	to := *r.URL
	to.Host = address
	out.URL = &to
	if p.peer != "" {
		out.Header = r.Header.Clone()
		to := fmt.Sprintf("%s.%s:%d", p.target.name, p.target.namespace, p.port.number)
		out.Header.Set(activation.Header, to)
		out.Header.Set(headerForwarded, handing(c.key(), to))
	}
	if r.Body != nil && r.Body != http.NoBody {
		if err := p.body.keep(); err != nil {
			return nil, err
		}
		out.Body, out.GetBody = p.body.again()
	}
	switch {
	case p.port.http2:
		return c.http2.RoundTrip(out)
	case out.Body == nil || out.Body == http.NoBody || out.GetBody != nil:
		return c.kept.RoundTrip(out)
	}
	return c.own.RoundTrip(out)
}

// body is what a client sends. Closing it is left to the server: a transport that failed must not take it from the next.
type body struct {
	io.ReadCloser
	length  int64
	small   []byte
	kept    bool
	touched atomic.Bool
}

func newBody(r *http.Request) *body { return &body{ReadCloser: r.Body, length: r.ContentLength} }

func (b *body) Read(into []byte) (int, error) {
	b.touched.Store(true)
	return b.ReadCloser.Read(into)
}

// Close leaves the client's body open.
func (b *body) Close() error { return nil }

// keep reads a small body, once a pod is there to take it.
func (b *body) keep() error {
	if b.kept || b.length <= 0 || b.length > smallBody {
		return nil
	}
	small, err := io.ReadAll(io.LimitReader(b.ReadCloser, b.length))
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	b.small, b.kept = small, true
	return nil
}

// again is the body for one more attempt and, where it was kept, how to have it once more.
func (b *body) again() (io.ReadCloser, func() (io.ReadCloser, error)) {
	if !b.kept {
		return b, nil
	}
	get := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.small)), nil }
	first, _ := get()
	return first, get
}

// untouched tells that a request which failed can be sent again: nothing was connected to, or it asks for something that
// does no harm when done twice.
func (b *body) untouched(err error, r *http.Request) bool {
	if b.touched.Load() {
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}

// retryAfter is what clients are told to wait, in seconds.
const retryAfter = "5"

// failed answers for pods that did not.
func (p *proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	passage, ok := r.Context().Value(passageKey{}).(*passage)
	if !ok {
		return
	}
	name := passage.target.key()
	switch {
	case errors.Is(err, errFull):
		w.Header().Set("Retry-After", retryAfter)
		answer(w, r, http.StatusServiceUnavailable, "Too many requests wait for pods of "+name+" already. Try again later, or let it have more pods (maxReplicas).")
	case errors.Is(err, errTooLong):
		w.Header().Set("Retry-After", retryAfter)
		answer(w, r, http.StatusGatewayTimeout, fmt.Sprintf("No pod of %s could take the request within %s. The conditions of its InferenceService say why.", name, p.hold))
	case errors.Is(err, errLeft):
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", retryAfter)
		answer(w, r, http.StatusServiceUnavailable, "The service "+name+" is no longer scaled by its traffic, and no pod of it is known here. Ask again: a new connection leads to its pods.")
	case r.Context().Err() != nil:
		answer(w, r, statusClientGone, "The client has gone.")
	default:
		p.log.Info("A pod broke off", "service", name, "err", err.Error())
		answer(w, r, http.StatusBadGateway, "The pod of "+name+" that had the request broke off. It may have done what was asked, so that the request was not sent again.")
	}
}

// statusClientGone is what proxies write in their logs for a client that did not wait for its answer.
const statusClientGone = 499

// unknown answers requests for nobody.
func (p *proxy) unknown(w http.ResponseWriter, r *http.Request, ambiguous bool) {
	p.metrics.unknown.Inc()
	w.Header().Set("Connection", "close") // it may be one from before, and a new one lead elsewhere
	if ambiguous {
		answer(w, r, http.StatusMisdirectedRequest, fmt.Sprintf("Several namespaces have a service called %q. Ask for it with its namespace, as %[1]s.NAMESPACE.", shown(r.Host)))
		return
	}
	answer(w, r, http.StatusNotFound, fmt.Sprintf("No service that is scaled by its traffic is known as %q. Ask for SERVICE.NAMESPACE, or set the header %s as the routes of the service do.", shown(r.Host), activation.Header))
}

// shown is what may be repeated of a host.
func shown(host string) string {
	const most = 253
	return host[:min(len(host), most)]
}

// answer says what is wrong as model servers do.
func answer(w http.ResponseWriter, r *http.Request, code int, words string) {
	if isGRPC(r) {
		answerCall(w, code, words)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": words})
}

// answerCall says it to a client of gRPC, for which HTTP carries no errors.
func answerCall(w http.ResponseWriter, code int, words string) {
	if seen, ok := w.(*status); ok {
		seen.code = code // what is counted
	}
	meant := codes.Unavailable
	switch code {
	case http.StatusNotFound, http.StatusMisdirectedRequest:
		meant = codes.NotFound
	case statusClientGone:
		meant = codes.Canceled
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", strconv.Itoa(int(meant)))
	w.Header().Set("Grpc-Message", url.PathEscape(words))
	w.WriteHeader(http.StatusOK)
}
