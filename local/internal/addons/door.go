// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxGuests is how many connections pass a door at a time; others wait outside.
	maxGuests = 4096
	// patience is how long a Service may take to take a connection.
	patience = 10 * time.Second
)

// door listens on a port of the machine and hands on what comes, byte for byte.
type door struct {
	listeners []net.Listener
	target    atomic.Pointer[string]
	guests    chan struct{}
	ctx       context.Context
	cancel    context.CancelFunc
	inside    sync.WaitGroup
}

// openDoor listens on the IPv4 loopback address, which every machine has, and on that of IPv6 where there is one.
func openDoor(port int32) (*door, error) {
	first, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return nil, errors.Unwrap(err) // without the address, which the caller tells
	}
	listeners := []net.Listener{first}
	if second, err := net.Listen("tcp", net.JoinHostPort("::1", strconv.Itoa(int(port)))); err == nil {
		listeners = append(listeners, second)
	}
	return newDoor(listeners...), nil
}

func newDoor(listeners ...net.Listener) *door {
	d := &door{listeners: listeners, guests: make(chan struct{}, maxGuests)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	for _, l := range listeners {
		d.inside.Go(func() { d.serve(l) })
	}
	return d
}

// leadTo says where connections go from now on.
func (d *door) leadTo(target string) { d.target.Store(&target) }

// close ends with the last connection, which it ends too.
func (d *door) close() {
	d.cancel()
	for _, l := range d.listeners {
		_ = l.Close()
	}
	d.inside.Wait()
}

func (d *door) serve(l net.Listener) {
	for {
		guest, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, say
			slog.Warn("A connection was not taken", "address", l.Addr().String(), "error", err)
			select {
			case <-d.ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		select {
		case d.guests <- struct{}{}:
		case <-d.ctx.Done():
			_ = guest.Close()
			return
		}
		d.inside.Go(func() {
			defer func() { <-d.guests }()
			d.lead(guest)
		})
	}
}

// lead connects a guest with the Service until both have said all. When one breaks off, so does the other.
func (d *door) lead(guest net.Conn) {
	defer func() { _ = guest.Close() }()
	target := d.target.Load()
	if target == nil {
		return
	}
	host, err := (&net.Dialer{Timeout: patience}).DialContext(d.ctx, "tcp", *target)
	if err != nil {
		return // the guest learns it from the end of the connection, as from a Service without pods
	}
	defer func() { _ = host.Close() }()
	stop := context.AfterFunc(d.ctx, func() { _, _ = guest.Close(), host.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { pass(host, guest) })
	both.Go(func() { pass(guest, host) })
	both.Wait()
}

// pass tells the other side when nothing more comes; it may still answer.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(*net.TCPConn); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_, _ = to.Close(), from.Close()
}
