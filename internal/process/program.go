// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Program is a process that serves until it is asked to stop.
type Program struct {
	Log *slog.Logger
	// Servers are what the program is for. When it is asked to stop they go on answering for Delay, while it is being
	// taken out of a Service's endpoints; each answer asks the client to connect anew, which leads it to another replica.
	Servers []Server
	// Aside are health, metrics and profiles. They end last.
	Aside []Server
	// Tasks run beside the servers until the program was asked to stop; one that fails ends the program.
	Tasks []func(context.Context) error
	// Delay and Timeout bound the end: Timeout is for all of it.
	Delay, Timeout time.Duration

	after func(time.Duration) <-chan time.Time // nil: time.After
}

// running is a Program that has opened its addresses.
type running struct {
	Program
	asked  context.Context // ends when the program is asked to stop
	failed chan error
	tasks  sync.WaitGroup

	servers, aside []*http.Server
}

// Run serves until the context ends, which is a clean stop and returns nil, or something fails. All addresses are opened
// before the first request is answered.
func (p Program) Run(ctx context.Context) error {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &running{Program: p, asked: ctx, failed: make(chan error, len(p.Servers)+len(p.Aside)+len(p.Tasks))}
	if err := r.open(); err != nil {
		return err
	}
	for _, task := range p.Tasks {
		r.tasks.Go(func() {
			if err := task(working); err != nil && working.Err() == nil {
				r.failed <- err
			}
		})
	}
	var failure error
	select {
	case <-ctx.Done():
		p.Log.Info("Asked to stop", "delay", p.Delay.String())
	case failure = <-r.failed:
	}
	cancel()
	return errors.Join(failure, r.end(failure == nil))
}

// open listens everywhere, then serves.
func (r *running) open() error {
	type opened struct {
		net.Listener
		*http.Server
		name string
	}
	var all []opened
	add := func(s Server, handler http.Handler, to *[]*http.Server) error {
		if Off(s.Address) {
			return nil
		}
		listener, err := s.Listen()
		if err != nil && s.Dispensable {
			r.Log.Warn("An address cannot be opened; the program goes on without", "what", s.Name, "err", err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		server := s.http(handler)
		*to = append(*to, server)
		all = append(all, opened{listener, server, s.Name})
		return nil
	}
	var err error
	for _, s := range r.Servers {
		err = errors.Join(err, add(s, r.parting(s.Handler), &r.servers))
	}
	for _, s := range r.Aside {
		err = errors.Join(err, add(s, s.Handler, &r.aside))
	}
	if err != nil {
		for _, o := range all {
			_ = o.Listener.Close()
		}
		return err
	}
	for _, o := range all {
		r.Log.Info("Serving", "what", o.name, "address", o.Listener.Addr().String())
		go func() {
			if err := o.Serve(o.Listener); !errors.Is(err, http.ErrServerClosed) {
				r.failed <- fmt.Errorf("serve %s: %w", o.name, err)
			}
		}()
	}
	return nil
}

// parting asks clients of a program that is about to end to connect anew.
func (r *running) parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.asked.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, req)
	})
}

// end drains. After a failure there is nothing to wait for but requests that are under way.
func (r *running) end(softly bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.Timeout)
	defer cancel()
	if softly {
		after := r.after
		if after == nil {
			after = time.After
		}
		select {
		case <-after(r.Delay):
		case <-ctx.Done():
		}
	}
	var err error
	for _, group := range [][]*http.Server{r.servers, r.aside} {
		err = errors.Join(err, shutdown(ctx, group))
	}
	ended := make(chan struct{})
	go func() { r.tasks.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, errors.New("what runs beside the servers did not end in time"))
	}
	return err
}

// shutdown lets requests under way be answered until the context ends.
func shutdown(ctx context.Context, servers []*http.Server) error {
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			if errs[i] = s.Shutdown(ctx); errs[i] != nil {
				_ = s.Close()
				errs[i] = fmt.Errorf("requests were cut off: %w", errs[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
