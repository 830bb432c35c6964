// SPDX-License-Identifier: Apache-2.0

// Package addons does for a cluster of one machine what a provider does for a rented one: it gives claims a directory of
// the machine as their volume and Services of type LoadBalancer a port of the machine, and tells what pods use. It is a client of the API server like any other, works on what it
// made itself, and must not know how the cluster is started or what runs in it.
package addons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say what to work on.
type Options struct {
	// Volumes is the directory below which every claim gets one of its own.
	Volumes string
	// Health is the address that answers 200 once everything is being watched.
	Health string
	// Metrics is the address that answers the API metrics.k8s.io; nothing does when it is empty.
	Metrics string
	// Certificate and Key are shown there, and FrontProxyCA vouches for who may ask. They are files.
	Certificate, Key, FrontProxyCA string
	// Kubelet is where usage is asked for.
	Kubelet string
}

// Run works until ctx ends. It listens before the API server is there, which counts on it from its first moment on: an API
// that does not answer keeps namespaces from being deleted.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var ready atomic.Bool
	stop, err := answerHealth(o.Health, &ready)
	if err != nil {
		return err
	}
	defer stop()
	if o.Metrics != "" {
		stop, err := startMetrics(ctx, config, client, o)
		if err != nil {
			return fmt.Errorf("answering for metrics: %w", err)
		}
		defer stop()
	}
	if err := awaitRights(ctx, client); err != nil {
		return nil // it was told to end
	}
	return runAll(ctx, func() { ready.Store(true) }, newVolumes(client, o.Volumes).run, newBalancer(client).run)
}

// runAll runs until ctx ends or one of them fails. It is ready when all of them are.
func runAll(ctx context.Context, ready func(), all ...func(context.Context, func()) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var missing atomic.Int32
	missing.Store(int32(len(all)))
	ended := make(chan error, len(all))
	for _, run := range all {
		go func() {
			ended <- run(ctx, func() {
				if missing.Add(-1) == 0 {
					ready()
				}
			})
		}()
	}
	var failures []error
	for range all {
		failures = append(failures, <-ended)
		cancel()
	}
	return errors.Join(failures...)
}

// awaitRights waits until the API server answers and lets this program in. Watches that fail wait longer each time.
func awaitRights(ctx context.Context, client kubernetes.Interface) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func startMetrics(ctx context.Context, config *rest.Config, client kubernetes.Interface, o Options) (stop func(), err error) {
	kubelet, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	m := &metrics{client: client, ask: askKubelet(kubelet, o.Kubelet)}
	stop, err = serveMetrics(o, m.handler())
	if err == nil {
		go m.watch(ctx)
	}
	return stop, err
}

// answerHealth listens before anything else is done, so that a port that is taken ends the program at once.
func answerHealth(address string, ready *atomic.Bool) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for questions about health: %w", err)
	}
	return serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "not everything is being watched yet", http.StatusServiceUnavailable)
			return
		}
	})), nil
}

func serve(listener net.Listener, handler http.Handler) (stop func()) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			slog.Error("A server has ended", "address", listener.Addr().String(), "error", err)
		}
	}
}
