// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/modelplane/modelplane/internal/admission"
)

// drainingServer is the webhook server with a soft end. An API server keeps its connections open and sends the next
// request on one of them at any moment; a connection that is closed just then is a failed admission. So after the
// request to stop, webhooks are still answered for a while, each answer asks the caller to connect anew (which leads it
// to another replica), and only connections that stayed idle all that time are closed.
type drainingServer struct {
	webhook.Server
	asked context.Context // ends when the process is asked to stop
	delay time.Duration
	// reader is what admission rules read other objects with; nil until there is a manager.
	reader admission.Reader
}

func newDrainingServer(asked context.Context, opts Options, tlsOpts []func(*tls.Config)) *drainingServer {
	return &drainingServer{
		Server: webhook.NewServer(webhook.Options{Host: opts.WebhookHost, Port: opts.WebhookPort, TLSOpts: tlsOpts}),
		asked:  asked,
		delay:  opts.ShutdownDelay,
	}
}

// Register adds the request to connect anew to the answers of a process that is about to end.
func (s *drainingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.asked.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		if s.reader != nil {
			req = req.WithContext(admission.WithReader(req.Context(), s.reader))
		}
		hook.ServeHTTP(w, req)
	}))
}

// Start serves until the context has ended and the delay since the request to stop has passed.
func (s *drainingServer) Start(ctx context.Context) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	drained := make(chan struct{})
	cancel := context.AfterFunc(s.asked, func() { time.AfterFunc(s.delay, func() { close(drained) }) })
	defer cancel()
	go func() {
		<-ctx.Done()
		if s.asked.Err() != nil { // otherwise something failed, and there is nothing to wait for
			<-drained
		}
		stop()
	}()
	return s.Server.Start(serving)
}

// addProfiling serves net/http/pprof on a listener of its own, on every replica.
func addProfiling(mgr ctrl.Manager, opts Options) error {
	if disabled(opts.ProfilingAddress) {
		return nil
	}
	listener, err := net.Listen("tcp", opts.ProfilingAddress)
	if err != nil {
		return fmt.Errorf("--profiling-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	patience := time.Second
	return mgr.Add(&ctrlmanager.Server{
		Name:            "profiling",
		Server:          &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second},
		Listener:        listener,
		ShutdownTimeout: &patience,
	})
}
