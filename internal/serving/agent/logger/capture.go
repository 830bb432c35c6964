// SPDX-License-Identifier: Apache-2.0

package logger

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Bounds of what a client says beside its body: how it calls its event, of which kind it is, and all headers that are
// repeated. A receiver would refuse an event with more, and the client's request would go unlogged.
const (
	longestID    = 256
	longestType  = 1 << 10
	mostMetadata = 16 << 10
)

// Handler copies requests and answers on their way. Connections that become something else than HTTP pass uncopied.
func (l *Logger) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if upgrade(req) {
			next.ServeHTTP(w, req)
			return
		}
		e := l.about(req)
		settle := func() {}
		if l.Mode != ModeResponse {
			var ok bool
			if settle, ok = l.copyRequest(req, e); !ok {
				http.Error(w, "can't read body", http.StatusBadRequest)
				return
			}
		}
		if l.Mode == ModeRequest {
			defer settle()
			next.ServeHTTP(w, req)
			return
		}
		out := &answer{ResponseWriter: w, copy: pocket{logger: l}}
		complete := false
		defer func() { // also when the way to the client breaks, which is a panic
			settle()
			out.end(e, complete)
		}()
		next.ServeHTTP(out, req)
		complete = true
	})
}

// upgrade tells whether a request asks for another protocol.
func upgrade(req *http.Request) bool {
	for _, value := range req.Header.Values("Connection") {
		for name := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(name), "upgrade") && req.Header.Get("Upgrade") != "" {
				return true
			}
		}
	}
	return req.Method == http.MethodConnect
}

// about is what the events of a request and of its answer have in common.
func (l *Logger) about(req *http.Request) Event {
	e := Event{
		ID: req.Header.Get("Ce-Id"), Foreign: true, Time: time.Now(),
		ContentType: req.Header.Get("Content-Type"), Encoding: req.Header.Get("Content-Encoding"), Headers: map[string][]string{},
	}
	if e.ID == "" || len(e.ID) > longestID {
		e.ID, e.Foreign = uuid.NewString(), false
	}
	if len(e.ContentType) > longestType || len(e.Encoding) > longestType {
		e.ContentType, e.Encoding = "", ""
	}
	room := mostMetadata
	for _, name := range l.Headers {
		values := req.Header.Values(name)
		size := 0
		for _, value := range values {
			size += len(value)
		}
		switch {
		case len(values) == 0:
		case size > room:
			e.Headers[name] = []string{"left out: " + strconv.Itoa(size) + " bytes"}
		default:
			room -= size
			e.Headers[name] = values
		}
	}
	return e
}

// copyRequest has a copy of the body offered as an event as soon as it is complete. A body of a known length is read first,
// so that the event of a request is there before that of its answer; one that streams is copied while it passes. The
// returned function ends the copy of one that streams. It is false when the client does not send what it announced.
func (l *Logger) copyRequest(req *http.Request, e Event) (settle func(), ok bool) {
	e.Kind = Request
	length := req.ContentLength
	switch {
	case length < 0:
		passing := &passingBody{ReadCloser: req.Body, event: e, copy: pocket{logger: l}}
		req.Body = passing
		return passing.settle, true
	case length > l.Body:
		l.Counts.lose(TooLarge, 1)
		return func() {}, true
	}
	body, kept, err := l.read(req.Body, length)
	switch {
	case err != nil:
		return nil, false
	case !kept:
		l.Counts.lose(Full, 1)
		req.Body = replayed{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}
	default:
		e.Body = body
		req.Body = io.NopCloser(bytes.NewReader(body))
		l.offer(e)
	}
	return func() {}, true
}

// replayed is a body of which a part was read already.
type replayed struct {
	io.Reader
	io.Closer
}

// read takes a body of that length, and room for it as it comes: whoever announces much and sends little takes little. It is
// not kept where there is no room; what was read then belongs before the rest.
func (l *Logger) read(from io.Reader, length int64) (body []byte, kept bool, err error) {
	const step = 32 << 10
	taken := int64(0)
	for taken < length {
		more := min(max(taken, step), length-taken) // twice as much each time
		if !l.room.take(more) {
			l.room.release(taken)
			return body, false, nil
		}
		taken += more
		body = append(make([]byte, 0, taken), body...)
		n, err := io.ReadFull(from, body[len(body):taken])
		body = body[:len(body)+n]
		if err != nil {
			l.room.release(taken)
			return nil, false, err
		}
	}
	return body, true, nil
}

// pocket holds a copy as long as there is room for it.
type pocket struct {
	logger *Logger
	data   []byte
	lost   string // why there is no copy
}

func (p *pocket) add(some []byte) {
	if p.lost != "" || len(some) == 0 {
		return
	}
	switch n := int64(len(some)); {
	case int64(len(p.data))+n > p.logger.Body:
		p.lose(TooLarge)
	case !p.logger.room.take(n):
		p.lose(Full)
	default:
		p.data = append(p.data, some...)
	}
}

func (p *pocket) lose(why string) {
	p.lost = why
	p.logger.room.release(int64(len(p.data)))
	p.data = nil
	p.logger.Counts.lose(why, 1)
}

// offer hands the copy over, if there is one.
func (p *pocket) offer(e Event) {
	if p.lost == "" {
		e.Body, p.data = p.data, nil
		p.logger.offer(e)
	}
}

// passingBody is the body of a request that streams. The model's transport reads it beside the handler.
type passingBody struct {
	io.ReadCloser
	event Event

	mu   sync.Mutex
	copy pocket
	done bool
}

func (b *passingBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done {
		b.copy.add(into[:n])
		if errors.Is(err, io.EOF) {
			b.finish()
		}
	}
	return n, err
}

// settle ends the copy: a model may answer before it has read everything.
func (b *passingBody) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done {
		b.finish()
	}
}

func (b *passingBody) finish() {
	b.done = true
	b.copy.offer(b.event)
}

// answer copies what is written to a client.
type answer struct {
	http.ResponseWriter
	copy   pocket
	status int
}

// Unwrap lets the proxy flush, and take over a connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.copy.add(p)
	return a.ResponseWriter.Write(p)
}

// end offers the event. An answer that broke off is none.
func (a *answer) end(e Event, complete bool) {
	if !complete {
		if a.copy.lost == "" {
			a.copy.lose(Cut)
		}
		return
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	h := a.Header()
	e.Kind, e.Time, e.Status = Response, time.Now(), a.status
	e.ContentType, e.Encoding = h.Get("Content-Type"), h.Get("Content-Encoding")
	a.copy.offer(e)
}
