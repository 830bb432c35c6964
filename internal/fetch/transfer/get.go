// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Item is an object and the name it is to have, relative and with slashes.
type Item struct {
	Name string
	// Whole says that the address names this very object, and not something that it is below.
	Whole bool
	Object
}

// Object is something to read.
type Object struct {
	URL    string
	Header http.Header
	Sign   Signer
	// Size when it is known, or -1.
	Size int64
	// ETag when it is known; another one means that the object was replaced meanwhile.
	ETag string
	// Sums that the content must have, when they are known.
	Sums []Sum
	// Check looks at the first answer and may refuse it.
	Check func(*http.Response) error
}

// File is what an object is written to.
type File interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	// Reserve refuses a size that is too large, or for which there is no room.
	Reserve(size int64) error
}

// errChanged means that the object is not the same in two answers.
var errChanged = &Problem{What: "it was replaced while it was read", transient: true}

// wholeAttempts is how often an object is read from its beginning when it does not add up or is replaced.
const wholeAttempts = 3

// Get reads an object into a file and returns its size.
func (c *Client) Get(ctx context.Context, o Object, into File) (int64, error) {
	var before []byte
	for attempt := 1; ; attempt++ {
		size, err := c.get(ctx, o, into)
		var wrong *mismatch
		if errors.As(err, &wrong) {
			if wrong.doubtful && bytes.Equal(before, wrong.got) {
				return size, nil // no accident happens twice; the tag is no sum
			}
			before = wrong.got
		}
		if err == nil || attempt == wholeAttempts || wrong == nil && !errors.Is(err, errChanged) {
			return size, err
		}
		if o.ETag != "" && errors.Is(err, errChanged) {
			o.ETag, o.Size, o.Sums = "", -1, nil // what the listing said is out of date
		}
		if err := into.Truncate(0); err != nil {
			return 0, fmt.Errorf("the destination cannot be written: %w", err)
		}
	}
}

// mismatch means that the content is not what it should be.
type mismatch struct {
	kind     Kind
	got      []byte
	doubtful bool
}

func (m *mismatch) Error() string {
	return fmt.Sprintf("what arrived does not have the %s that the server states", m.kind)
}

// read is one object on its way into a file. What it knows comes from the first answer; the parallel rest only compares.
type read struct {
	client *Client
	object Object
	file   File

	known     bool  // the first answer is there
	size      int64 // -1 while it is not known
	validator string
	sums      []Sum
	ranged    bool // the server sends parts
	plain     bool // do not ask for parts
}

func (c *Client) get(ctx context.Context, o Object, into File) (int64, error) {
	if o.Size >= 0 {
		if err := into.Reserve(o.Size); err != nil {
			return 0, err
		}
	}
	r := &read{client: c, object: o, file: into, plain: o.Size >= 0 && o.Size <= c.Segment}
	if err := r.first(ctx); err != nil {
		return 0, err
	}
	return r.size, r.rest(ctx)
}

// leastPart is what a server must send at a time when more was asked for and is there.
const leastPart = 64 << 10

// span is a piece of an object; without an end when to is negative.
type span struct{ from, to int64 }

// first reads the first segment, or all of an object that comes in one answer.
func (r *read) first(ctx context.Context) error {
	furthest := int64(0) // a server that starts anew each time and breaks at the same place makes no progress
	for at, failures := int64(0), 0; ; {
		next, err := r.open(ctx, at)
		if at = next; at > furthest {
			furthest, failures = at, 0
		}
		if err != nil {
			failures++
			if errors.Is(err, errChanged) || !r.client.again(ctx, err, failures) {
				return err
			}
			continue
		}
		if !r.ranged && r.size < 0 {
			r.size = at // it ended where it ended
		}
		if end := r.firstEnd(); at >= end {
			return nil
		}
	}
}

func (r *read) firstEnd() int64 {
	if r.ranged {
		return min(r.size, r.client.Segment)
	}
	return r.size
}

// open makes one attempt at the first segment and tells where it ended.
func (r *read) open(ctx context.Context, at int64) (int64, error) {
	s := span{at, -1}
	if !r.plain && (!r.known || r.ranged) {
		s.to = r.client.Segment
		if r.known {
			s.to = r.firstEnd()
		}
	}
	response, ending, err := r.client.send(ctx, r.request(s))
	if err != nil {
		return at, err
	}
	defer ending()
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusPartialContent:
		s, err = r.part(response, s)
	case http.StatusOK:
		r.known = false
		s = span{0, response.ContentLength}
		if s.to < 0 {
			s.to = r.object.Size
		}
		err = r.learn(response, s.to, true)
	case http.StatusRequestedRangeNotSatisfiable:
		if at > 0 || r.plain {
			return at, errChanged
		}
		r.plain = true // nothing has no first byte; ask for all of it
		return at, &Problem{What: "the server cannot send parts", transient: true}
	default:
		return at, refusal(response)
	}
	if err != nil {
		return at, err
	}
	n, err := r.copy(response.Body, s)
	return s.from + n, err
}

// part checks an answer with a piece and returns which one it is.
func (r *read) part(response *http.Response, asked span) (span, error) {
	from, to, total, err := contentRange(response.Header.Get("Content-Range"))
	if err == nil && r.known && total >= 0 && (r.size >= 0 && total != r.size || !sameTag(r.validator, response.Header.Get("ETag"))) {
		return span{}, errChanged // before the bounds: a part of another object has other ones
	}
	if err != nil || from != asked.from || asked.to >= 0 && to > asked.to || total < 0 {
		return span{}, &Problem{What: "the server sends another part than it was asked for"}
	}
	if to < total && to < asked.to && to-from < leastPart {
		return span{}, &Problem{What: fmt.Sprintf("the server sends parts of %d bytes, which would take for ever", to-from)}
	}
	got := span{from, to}
	if !r.known {
		r.ranged = true
		return got, r.learn(response, total, from == 0 && to == total)
	}
	return got, nil
}

// learn takes from the first answer what holds for the object. What a listing said before counts more.
func (r *read) learn(response *http.Response, size int64, whole bool) error {
	tag := response.Header.Get("ETag")
	if r.object.Size >= 0 && size >= 0 && size != r.object.Size || !sameTag(r.object.ETag, tag) {
		return errChanged
	}
	if r.object.Check != nil {
		if err := r.object.Check(response); err != nil {
			return err
		}
	}
	if size >= 0 {
		if err := r.file.Reserve(size); err != nil {
			return err
		}
	}
	r.known, r.size, r.ranged = true, size, response.StatusCode == http.StatusPartialContent
	r.validator = tag
	if r.sums = r.object.Sums; len(r.sums) == 0 {
		r.sums = stated(response, whole)
	}
	return nil
}

// sameTag compares where both are known; proxies weaken tags.
func sameTag(a, b string) bool {
	bare := func(tag string) string { return strings.Trim(strings.TrimPrefix(tag, "W/"), `"`) }
	return a == "" || b == "" || bare(a) == bare(b)
}

// request asks for a piece; for all of a small object it asks as everybody does.
func (r *read) request(s span) Request {
	header := r.object.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if s.from > 0 || s.to >= 0 {
		end := ""
		if s.to >= 0 {
			end = strconv.FormatInt(s.to-1, 10)
		}
		header.Set("Range", fmt.Sprintf("bytes=%d-%s", s.from, end))
		if strings.HasPrefix(r.validator, `"`) {
			header.Set("If-Range", r.validator)
		}
	}
	return Request{URL: r.object.URL, Header: header, Sign: r.object.Sign}
}

// rest reads what comes after the first segment, in parallel, and checks segments in their order while others arrive.
// Nothing is made in proportion to the size, which is only what the server says.
func (r *read) rest(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	segment := r.client.Segment
	count := int64(1) // what came in one answer is checked in one piece
	if r.ranged && r.size > 0 {
		count = (r.size-1)/segment + 1
	}
	arrived := newArrivals()
	checked := make(chan error, 1)
	go func() { checked <- r.verify(ctx, count, arrived) }()
	var group sync.WaitGroup
	next := make(chan int64)
	for range min(int64(r.client.Parallel()), count-1) {
		group.Go(func() {
			for i := range next {
				from := i * segment
				if err := r.segment(ctx, span{from, from + min(segment, r.size-from)}); err != nil {
					cancel(err)
					return
				}
				arrived.add(i)
			}
		})
	}
	for i := int64(1); i < count && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	group.Wait()
	return <-checked
}

// arrivals knows how many segments are there without a gap; the first is from the beginning.
type arrivals struct {
	mu      sync.Mutex
	through int64
	ahead   map[int64]bool // no more than are read at a time
	more    chan struct{}
}

func newArrivals() *arrivals {
	return &arrivals{through: 1, ahead: map[int64]bool{}, more: make(chan struct{}, 1)}
}

func (a *arrivals) add(i int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.ahead[i] = true; a.ahead[a.through]; a.through++ {
		delete(a.ahead, a.through)
	}
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// wait returns when a segment and all before it are there.
func (a *arrivals) wait(ctx context.Context, i int64) error {
	for {
		a.mu.Lock()
		there := i < a.through
		a.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-a.more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// segment reads one piece, from where it broke when it breaks.
func (r *read) segment(ctx context.Context, s span) error {
	for failures := 0; s.from < s.to; {
		n, err := r.attempt(ctx, s)
		if s.from += n; n > 0 {
			failures = 0
		}
		if err == nil {
			continue
		}
		failures++
		if errors.Is(err, errChanged) || !r.client.again(ctx, err, failures) {
			return err
		}
	}
	return nil
}

func (r *read) attempt(ctx context.Context, s span) (int64, error) {
	response, ending, err := r.client.send(ctx, r.request(s))
	if err != nil {
		return 0, err
	}
	defer ending()
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusPartialContent:
		got, err := r.part(response, s)
		if err != nil {
			return 0, err
		}
		return r.copy(response.Body, got)
	case http.StatusOK, http.StatusRequestedRangeNotSatisfiable:
		return 0, errChanged // it sent this part of the object before
	}
	return 0, refusal(response)
}

// verify follows the segments and adds them up.
func (r *read) verify(ctx context.Context, count int64, arrived *arrivals) error {
	sum := best(r.sums)
	if sum == nil {
		return arrived.wait(ctx, count-1)
	}
	h := sum.Kind.new(r.size)
	buffer, _ := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for i := range count {
		if err := arrived.wait(ctx, i); err != nil {
			return err
		}
		from := i * r.client.Segment
		length := min(r.client.Segment, r.size-from)
		if count == 1 {
			length = r.size
		}
		if _, err := io.CopyBuffer(h, io.NewSectionReader(r.file, from, length), *buffer); err != nil {
			return fmt.Errorf("the destination cannot be read: %w", err)
		}
	}
	if got := h.Sum(nil); !bytes.Equal(got, sum.Value) {
		return &mismatch{sum.Kind, got, sum.Doubtful}
	}
	return nil
}

const copyBuffer = 256 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, copyBuffer); return &b }}

// copy writes the body of an answer to its place.
func (r *read) copy(body io.Reader, s span) (int64, error) {
	buffer, _ := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	at := s.from
	for {
		n, err := body.Read(*buffer)
		if s.to >= 0 && at+int64(n) > s.to {
			return at - s.from, &Problem{What: "the server sends more than it announced"}
		}
		if n > 0 {
			if _, failed := r.file.WriteAt((*buffer)[:n], at); failed != nil {
				return at - s.from, failed
			}
			at += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF) && s.to >= 0 && at < s.to:
			return at - s.from, broken(io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			return at - s.from, nil
		case err != nil:
			return at - s.from, broken(err)
		}
	}
}

// contentRange reads "bytes 0-9/100"; to is the byte after the last, total is -1 when it is not stated.
func contentRange(text string) (from, to, total int64, err error) {
	var last int64
	rest, ok := strings.CutPrefix(text, "bytes ")
	place, size, found := strings.Cut(rest, "/")
	if !ok || !found {
		return 0, 0, 0, errors.New("no range")
	}
	begin, end, _ := strings.Cut(place, "-")
	if from, err = strconv.ParseInt(begin, 10, 64); err != nil {
		return 0, 0, 0, err
	}
	if last, err = strconv.ParseInt(end, 10, 64); err != nil {
		return 0, 0, 0, err
	}
	if total = -1; size != "*" {
		if total, err = strconv.ParseInt(size, 10, 64); err != nil {
			return 0, 0, 0, err
		}
	}
	if from < 0 || last < from || last == math.MaxInt64 || total >= 0 && last >= total {
		return 0, 0, 0, errors.New("no range")
	}
	return from, last + 1, total, nil
}
