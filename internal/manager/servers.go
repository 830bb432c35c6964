// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/process"
	"github.com/modelplane/modelplane/internal/process/profiles"
)

// drainingServer is the webhook server with a soft end. An API server keeps its connections open and sends the next
// request on one of them at any moment; a connection that is closed just then is a failed admission. So after the
// request to stop, webhooks are still answered for a while, each answer asks the caller to connect anew (which leads it
// to another replica), and only connections that stayed idle all that time are closed.
//
// It listens itself, because anybody can reach its port: the server of controller-runtime knows no bounds on headers,
// connections and slow clients.
type drainingServer struct {
	webhook.Server                 // keeps the handlers, and counts their answers
	asked          context.Context // ends when the process is asked to stop
	delay          time.Duration
	address        string
	tls            []func(*tls.Config)
	budget         *budget
	clients        *clients // nil: anybody may ask
	listening      atomic.Bool
	ended          func() // is called when controllers have ended; may be nil
	// reader is what admission rules read other objects with; nil until there is a manager.
	reader admission.Reader
}

func newDrainingServer(asked context.Context, opts Options, tlsOpts []func(*tls.Config)) *drainingServer {
	s := &drainingServer{
		Server: webhook.NewServer(webhook.Options{}),
		asked:  asked, delay: opts.ShutdownDelay, budget: newBudget(webhookMemory()), tls: tlsOpts,
		address: net.JoinHostPort(opts.WebhookHost, strconv.Itoa(opts.WebhookPort)),
	}
	if opts.WebhookClientCA != "" {
		s.clients = &clients{file: opts.WebhookClientCA, names: opts.WebhookClientNames}
		s.tls = append(slices.Clone(tlsOpts), s.clients.ask)
	}
	return s
}

// Register serves a review of objects, within bounds and for those who may ask.
func (s *drainingServer) Register(path string, hook http.Handler) {
	withReader := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.reader != nil {
			req = req.WithContext(admission.WithReader(req.Context(), s.reader))
		}
		hook.ServeHTTP(w, req)
	})
	s.register(path, s.clients.only(s.budget.review(withReader)))
}

// registerConversion serves conversion. The API server has no way to prove who it is when it asks for it, and the answer
// holds nothing but what was sent.
func (s *drainingServer) registerConversion(one http.Handler) {
	s.register("/convert", converter{one: one, budget: s.budget}.handler())
}

// register adds the request to connect anew to the answers of a process that is about to end.
func (s *drainingServer) register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.asked.Err() != nil {
			w.Header().Set("Connection", "close")
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
		<-ctx.Done() // the manager stops webhooks after the controllers
		if s.ended != nil {
			go s.ended()
		}
		if s.asked.Err() != nil { // otherwise something failed, and there is nothing to wait for
			<-drained
		}
		stop()
	}()
	return s.serve(serving)
}

// serve answers until the context ends, and then what is in flight.
func (s *drainingServer) serve(ctx context.Context) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, set := range s.tls {
		set(config)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if err != nil {
		return err
	}
	server := process.NewHTTPServer(s.WebhookMux(), process.Limits{
		HeaderBytes: maxHeaders, Header: headerTimeout, Read: readTimeout, Write: writeTimeout, Idle: idleTimeout,
		Body: -1, // the budget looks after bodies
	})
	server.ConnState = newCrowd(fewConnections).changed
	answered := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(answered)
		s.listening.Store(false)
		until, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_ = server.Shutdown(until) // what is not answered by then is cut off
	})
	s.listening.Store(true)
	err = server.Serve(tls.NewListener(netutil.LimitListener(listener, maxConnections), config))
	if !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	<-answered
	return nil
}

// StartedChecker tells whether somebody answers. It does not connect: a probe would take a connection from the bounded ones.
func (s *drainingServer) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.listening.Load() {
			return errors.New("webhooks are not answered yet")
		}
		return nil
	}
}

// addServers adds health, metrics and profiles, which every replica serves from its first moment to its last.
func addServers(mgr ctrl.Manager, opts Options, health process.Health, get getCertificate) error {
	log := slog.New(logr.ToSlogHandler(opts.Log))
	servers := []process.Server{
		{Name: "health (--health-probe-bind-address)", Address: opts.HealthAddress, Handler: health.Handler(log)},
		{Name: "profiles (--profiling-bind-address)", Address: opts.ProfilingAddress, Handler: profiles.Handler(), Limits: process.Limits{Write: -1}},
	}
	if !process.Off(opts.MetricsAddress) {
		metrics, err := metricsServer(mgr, opts, get, log)
		if err != nil {
			return err
		}
		servers = append(servers, metrics)
	}
	patience := time.Second
	for _, s := range servers {
		if process.Off(s.Address) {
			continue
		}
		listener, err := s.Listen()
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(s.Name, " ")
		if err := mgr.Add(&ctrlmanager.Server{
			Name: name, Server: process.NewHTTPServer(s.Handler, s.Limits), Listener: listener, ShutdownTimeout: &patience,
		}); err != nil {
			return err
		}
	}
	return nil
}

// metricsServer serves metrics over TLS to those whom the gate lets through.
func metricsServer(mgr ctrl.Manager, opts Options, get getCertificate, log *slog.Logger) (process.Server, error) {
	none := process.Server{}
	if opts.MetricsCertDir != "" {
		certificate, err := process.LoadCertificate(opts.MetricsCertDir, log)
		if err != nil {
			return none, fmt.Errorf("--metrics-cert-dir: %w", err)
		}
		get = certificate.Get
	}
	gate, err := newGate(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return none, err
	}
	return process.Server{
		Name: "metrics (--metrics-bind-address)", Address: opts.MetricsAddress, Handler: process.Metrics(metrics.Registry, gate.may, log),
		TLS: tlsConfig(opts, get),
	}, nil
}
