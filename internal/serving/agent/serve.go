// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/process"
)

// socket is where Knative's sidecar may reach the agent: a name in the pod's network, and no file.
const socket = "@/kserve/agent.sock"

const headerTime = time.Minute

// server answers at the agent's addresses until it is told to stop.
type server struct {
	front   *front
	address string
	// socket is empty where there is none.
	socket string
	// aside are metrics.
	aside    []process.Server
	patience patience
	// settle is called when no more requests come, and close when the last one is answered.
	settle func()
	close  func(context.Context)
	log    *slog.Logger
}

// flushTime is what is kept of the end for what the last requests leave behind.
const flushTime = 5 * time.Second

// run serves until the context ends.
func (s *server) run(ctx context.Context) error {
	servers, failed, err := s.open()
	if err != nil {
		return err
	}
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-failed:
	}
	end, cancel := context.WithTimeout(context.Background(), s.patience.all)
	defer cancel()
	deadline, _ := end.Deadline()
	requests, stop := context.WithDeadline(end, deadline.Add(-min(flushTime, s.patience.all/3)))
	defer stop()
	if failure == nil {
		s.log.Info("Asked to stop", "quiet", s.patience.quiet.String(), "atMost", s.patience.all.String())
		half, cancel := context.WithTimeout(requests, s.patience.all/2)
		s.front.drain(half, s.patience.quiet)
		cancel()
	}
	s.settle()
	failure = errors.Join(failure, shutdown(requests, servers))
	s.close(end)
	return failure
}

// open listens everywhere, at the socket last, then serves.
func (s *server) open() ([]*http.Server, <-chan error, error) {
	type opened struct {
		net.Listener
		*http.Server
		name string
	}
	var all []opened
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for requests: %w", err)
	}
	all = append(all, opened{listener, s.httpServer(process.Limits{Header: headerTime, Read: -1, Write: -1, Idle: -1}), "requests"})
	for _, a := range s.aside {
		if process.Off(a.Address) {
			continue
		}
		listener, err := a.Listen()
		if err != nil {
			_ = all[0].Listener.Close()
			return nil, nil, err
		}
		all = append(all, opened{listener, process.NewHTTPServer(a.Handler, a.Limits), a.Name})
	}
	if s.socket != "" {
		listener, err := net.Listen("unix", s.socket)
		if err != nil { // nobody in a pod without Knative would ever use it
			s.log.Warn("The socket cannot be opened; requests are taken at the port only", "socket", s.socket, "err", err.Error())
		} else {
			all = append(all, opened{listener, s.httpServer(process.Limits{Header: headerTime, Read: -1, Write: time.Minute, Idle: 3 * time.Minute}), "requests"})
		}
	}
	failed := make(chan error, len(all))
	servers := make([]*http.Server, len(all))
	for i, o := range all {
		servers[i] = o.Server
		s.log.Info("Serving", "what", o.name, "address", o.Listener.Addr().String())
		go func() {
			if err := o.Serve(o.Listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve %s: %w", o.name, err)
			}
		}()
	}
	return servers, failed, nil
}

// httpServer speaks HTTP/1.1 and, without TLS, HTTP/2. Bodies are the model's to bound.
func (s *server) httpServer(limits process.Limits) *http.Server {
	limits.Body, limits.HeaderBytes = -1, 1<<20
	out := process.NewHTTPServer(s.front, limits)
	out.Protocols = new(http.Protocols)
	out.Protocols.SetHTTP1(true)
	out.Protocols.SetUnencryptedHTTP2(true)
	return out
}

// shutdown lets requests under way be answered until the context ends.
func shutdown(ctx context.Context, servers []*http.Server) error {
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			if err := s.Shutdown(ctx); err != nil {
				_ = s.Close()
				errs[i] = fmt.Errorf("requests were cut off: %w", err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
