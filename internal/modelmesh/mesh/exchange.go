// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// mostReplay bounds what is kept of a stream, besides its first message, so that it can be sent to another instance.
const mostReplay = 1 << 20

// exchange is one call from a client. What the client sent is kept until somebody has begun to answer, so that the call can
// be moved from an instance that fails to one that does not.
type exchange struct {
	in     grpc.ServerStream
	method string      // with the slash that it begins with
	header metadata.MD // what is passed on
	began  time.Time
	ledger *ledger
	ctx    context.Context //nolint:containedctx // that of the call, which ends as well when it is turned away
	end    context.CancelCauseFunc

	reading sync.Mutex // held by whoever waits for the client

	mu     sync.Mutex
	frames []*frame // nil where one was let go
	size   int
	ended  error // why the client sends no more
	lossy  bool  // some frame was let go: the call cannot be moved any more
	closed bool

	begun    bool // the client has got something
	received int  // bytes, for metrics
	sent     int
}

func newExchange(in grpc.ServerStream, method string, header metadata.MD, l *ledger) *exchange {
	x := &exchange{in: in, method: method, header: header, began: time.Now(), ledger: l}
	x.ctx, x.end = context.WithCancelCause(in.Context())
	return x
}

// close lets go of all that is kept. What is still read from the client afterwards is dropped.
func (x *exchange) close() {
	x.end(nil)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, f := range x.frames {
		if f != nil {
			f.free()
		}
	}
	x.frames = nil
}

// first is the first message, nil if the client sent none. Whoever is turned away meanwhile need not wait for the rest of it.
func (x *exchange) first() (*frame, error) {
	var f *frame
	var err error
	done := make(chan struct{})
	go func() {
		f, err = x.next(0)
		close(done)
	}()
	select {
	case <-done:
	case <-x.ctx.Done():
		if wasTurnedAway(x.ctx) {
			return nil, errFull
		}
		return nil, status.FromContextError(x.ctx.Err()).Err()
	}
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return f, err
}

var errMoved = errors.New("part of the stream was let go already")

// next is the message with a number. It waits for the client where that is needed; one at a time does.
func (x *exchange) next(number int) (*frame, error) {
	if f, err, known := x.known(number); known {
		return f, err
	}
	x.reading.Lock()
	defer x.reading.Unlock()
	if f, err, known := x.known(number); known {
		return f, err
	}
	f, err := x.receive(number)
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.ended = err
		return nil, err
	}
	if x.closed {
		f.free()
		return nil, errMoved
	}
	if number > 0 {
		x.size += f.data.Len()
	}
	x.received += f.data.Len()
	x.frames = append(x.frames, f)
	return f, nil
}

// receive waits for the client. The first message comes right behind its call, so whoever waits for it is receiving it.
func (x *exchange) receive(number int) (*frame, error) {
	f := &frame{}
	done := func() {}
	if number == 0 {
		done = x.ledger.receive(false, x.end)
	}
	err := x.in.RecvMsg(f)
	done()
	if err == nil && number > 0 && x.ledger.refuses(f) {
		f.free()
		return nil, errFull
	}
	return f, err //nolint:wrapcheck // the transport's
}

func (x *exchange) known(number int) (*frame, error, bool) { //nolint:revive // the error is a part of what is known
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return nil, errMoved, true
	case number < len(x.frames):
		if x.frames[number] == nil {
			return nil, errMoved, true
		}
		return x.frames[number], nil, true
	case x.ended != nil:
		return nil, x.ended, true
	}
	return nil, nil, false
}

// passed lets go of a message that was sent on, where it is not wanted any more. The first is kept for whoever logs payloads.
func (x *exchange) passed(number int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if number == 0 || x.closed || (!x.begun && x.size <= mostReplay) {
		return
	}
	x.lossy = true
	if f := x.frames[number]; f != nil {
		f.free()
		x.frames[number] = nil
	}
}

// movable tells whether the call can still be sent to another instance.
func (x *exchange) movable() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.begun && !x.lossy
}

// outbound is where an attempt sends a call.
type outbound struct {
	conn   grpc.ClientConnInterface
	header metadata.MD
	// change rewrites each message; nil leaves them as they are.
	change func([]byte) ([]byte, error)
	// answered sees the first message of the answer; nil when nobody wants to.
	answered func(*frame)
}

// attempt sends the call to a place and passes the answer on. The trailer tells, besides the error, what a peer meant by it;
// when the call can be moved, nothing of the failed answer has reached the client.
func (x *exchange) attempt(ctx context.Context, to outbound) (metadata.MD, error) {
	ctx, turnAway := context.WithCancelCause(metadata.NewOutgoingContext(ctx, to.header))
	defer turnAway(nil)
	out, err := to.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, x.method)
	if err != nil {
		return nil, err //nolint:wrapcheck // the status of the other side is what the client gets
	}
	go x.send(out, to, turnAway)
	_, _ = out.Header() // comes right before the first message of the answer; whatever is wrong is told by that
	done := x.ledger.receive(true, turnAway)
	for number := 0; ; number++ {
		f := &frame{}
		err := out.RecvMsg(f)
		done()
		switch {
		case err != nil && wasTurnedAway(ctx):
			return nil, errFull
		case err != nil:
			return x.finish(out, err)
		case number > 0 && x.ledger.refuses(f):
			f.free()
			return nil, errFull
		}
		if err := x.answer(out, f, to); err != nil {
			return nil, err
		}
		done = func() {}
	}
}

// send passes on what the client sends, until one side has had enough.
func (x *exchange) send(out grpc.ClientStream, to outbound, cancel context.CancelCauseFunc) {
	for number := 0; ; number++ {
		f, err := x.next(number)
		if errors.Is(err, io.EOF) {
			_ = out.CloseSend()
			return
		}
		if err == nil {
			err = x.sendOne(out, f, to)
		}
		switch {
		case errors.Is(err, io.EOF): // the other side has answered already; whoever receives sees how
			return
		case err != nil:
			cancel(err)
			return
		}
		x.passed(number)
	}
}

// sendOne holds the frame while it is handed over: the exchange may end at any moment.
func (x *exchange) sendOne(out grpc.ClientStream, f *frame, to outbound) error {
	x.mu.Lock()
	if x.closed || f.data == nil {
		x.mu.Unlock()
		return errMoved
	}
	held := frame{f.data}
	held.data.Ref()
	x.mu.Unlock()
	defer held.free()
	if to.change == nil {
		return out.SendMsg(&held) //nolint:wrapcheck // io.EOF means something to the caller
	}
	message, free := held.bytes()
	changed, err := to.change(message)
	free()
	if err != nil {
		return err
	}
	return out.SendMsg(newFrame(changed)) //nolint:wrapcheck // io.EOF means something to the caller
}

// answer passes on one message, and before the first the header.
func (x *exchange) answer(out grpc.ClientStream, f *frame, to outbound) error {
	defer f.free()
	if !x.hasBegun() {
		header, err := out.Header()
		if err != nil {
			return err //nolint:wrapcheck // the status of the other side is what the client gets
		}
		x.begin()
		_ = x.in.SetHeader(passedOn(header))
		if to.answered != nil {
			to.answered(f)
		}
	}
	x.sent += f.data.Len()
	return x.in.SendMsg(f) //nolint:wrapcheck // the client is gone, nobody reads it
}

func (x *exchange) hasBegun() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.begun
}

func (x *exchange) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.begun = true
}

// finish passes on how the other side ended. The trailer of an error that may yet be answered elsewhere is not the client's.
func (x *exchange) finish(out grpc.ClientStream, err error) (metadata.MD, error) {
	trailer := out.Trailer()
	if errors.Is(err, io.EOF) {
		if !x.hasBegun() {
			if header, failed := out.Header(); failed == nil {
				_ = x.in.SetHeader(passedOn(header))
			}
		}
		x.in.SetTrailer(passedOn(trailer))
		return trailer, nil
	}
	return trailer, err //nolint:wrapcheck // the status of the other side is what the client gets
}

// passedOn are the headers that are neither the transport's nor the mesh's own.
func passedOn(header metadata.MD) metadata.MD {
	out := make(metadata.MD, len(header))
	for name, values := range header {
		if kept(name) {
			out[name] = values
		}
	}
	return out
}

func kept(name string) bool {
	switch {
	case strings.HasPrefix(name, "mm-"), strings.HasPrefix(name, "grpc-"), strings.HasPrefix(name, ":"):
		return false
	case name == "content-type", name == "user-agent", name == "tas-model-id", name == "te":
		return false
	}
	return true
}
