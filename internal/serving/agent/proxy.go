// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// idleConnections are kept to the model server.
const idleConnections = 1000

// way leads to the model server: with HTTP/2 for clients that speak it, because gRPC needs it, and else with HTTP/1.1.
type way struct{ one, two *http.Transport }

func newWay() *way {
	by := func(http2 bool) *http.Transport {
		t := &http.Transport{
			DialContext:  (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			MaxIdleConns: idleConnections, MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: 90 * time.Second,
			DisableCompression: true, // what client and server agreed upon passes
			Protocols:          new(http.Protocols),
		}
		t.Protocols.SetHTTP1(!http2)
		t.Protocols.SetUnencryptedHTTP2(http2)
		return t
	}
	return &way{by(false), by(true)}
}

// RoundTrip takes the way that the client came.
func (w *way) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.ProtoMajor == 2 {
		return w.two.RoundTrip(req)
	}
	return w.one.RoundTrip(req)
}

// newProxy hands requests on as they came. Of what was forwarded it says from whom, as a proxy does.
func newProxy(to *url.URL, by http.RoundTripper, log *slog.Logger) http.Handler {
	return &httputil.ReverseProxy{
		Transport: by,
		Rewrite: func(r *httputil.ProxyRequest) {
			out := r.Out
			out.URL.Scheme, out.URL.Host, out.URL.RawQuery = to.Scheme, to.Host, r.In.URL.RawQuery
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if values := r.In.Header.Values(name); len(values) > 0 {
					out.Header[name] = values
				}
			}
			if host, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
				out.Header.Set("X-Forwarded-For", strings.Join(append(append([]string(nil), r.In.Header.Values("X-Forwarded-For")...), host), ", "))
			}
		},
		FlushInterval: -1, // what streams is not held up
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				log.Warn("The model server did not answer a request", "path", req.URL.Path, "err", err.Error())
			}
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
}
