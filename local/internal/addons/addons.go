// SPDX-License-Identifier: Apache-2.0

// Package addons does for a cluster of one machine what a provider does for a rented one: it gives claims a directory of
// the machine as their volume. It is a client of the API server like any other, works on what it made itself, and must
// not know how the cluster is started or what runs in it.
package addons

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say what to work on.
type Options struct {
	// Volumes is the directory below which every claim gets one of its own.
	Volumes string
	// Health is the address that answers 200 once everything is being watched.
	Health string
}

// Run works until ctx ends.
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
	v := newVolumes(client, o.Volumes)
	return v.run(ctx, func() { ready.Store(true) })
}

// answerHealth listens before anything else is done, so that a port that is taken ends the program at once.
func answerHealth(address string, ready *atomic.Bool) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for questions about health: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "not everything is being watched yet", http.StatusServiceUnavailable)
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			fmt.Println("answering questions about health:", err)
		}
	}, nil
}
