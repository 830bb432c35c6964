// SPDX-License-Identifier: Apache-2.0

package openinference

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// Budget bounds the memory that requests and their answers take together, however many there are and however slowly they
// arrive or are read. Whoever is about to make something in proportion to what a client sent asks first.
type Budget struct {
	total int64
	each  int64
	used  atomic.Int64
}

// NewBudget allows total bytes at the same time and each bytes for one request as it is sent. One of that size always has
// room while it arrives.
func NewBudget(total, each int64) *Budget { return &Budget{total: max(total, 2*each), each: each} }

// Each is how large one request may be.
func (b *Budget) Each() int64 { return b.each }

// Share is what one request takes of the budget, from its first byte to the last of its answer. One goroutine uses it.
type Share struct {
	budget *Budget
	held   int64
}

// Share begins with nothing. It must be released.
func (b *Budget) Share() *Share { return &Share{budget: b} }

// Grow asks for bytes more.
func (s *Share) Grow(n int64) error {
	total := s.budget.total
	if n < 0 || n > total-s.held {
		return &Error{TooLarge, fmt.Sprintf("the request takes more than %d bytes of memory, which is what all requests may take together; send less at a time", total)}
	}
	if s.budget.used.Add(n) > total {
		s.budget.used.Add(-n)
		return &Error{Busy, fmt.Sprintf("requests that are being handled take %d bytes already; try again later", total)}
	}
	s.held += n
	return nil
}

// shrink gives back what is not needed any more.
func (s *Share) shrink(n int64) {
	s.held -= n
	s.budget.used.Add(-n)
}

// Release gives everything back.
func (s *Share) Release() { s.shrink(s.held) }

// step is how much room is made at first for a body, whatever its length is said to be.
const step = 64 << 10

// Read reads a body of the announced length, or of any length when that is negative. It takes memory as bytes arrive, so
// that an announcement alone keeps nobody else out.
func (s *Share) Read(body io.Reader, announced int64) ([]byte, error) {
	if announced > s.budget.each {
		return nil, s.tooLong()
	}
	room := int64(step)
	if announced >= 0 {
		room = min(announced, step)
	}
	if err := s.Grow(room); err != nil {
		return nil, err
	}
	data := make([]byte, 0, room)
	for {
		if len(data) == cap(data) {
			if int64(len(data)) == announced {
				return data, nil
			}
			var err error
			if data, err = s.double(data, announced); err != nil {
				return nil, err
			}
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return whole(data, announced)
		}
		if err != nil {
			return nil, Invalidf("the request could not be read: %v", err)
		}
	}
}

func (s *Share) tooLong() error {
	return &Error{TooLarge, fmt.Sprintf("the request is larger than %d bytes", s.budget.each)}
}

// double moves data to a larger place, and further at once when little is missing. Both exist for a moment.
func (s *Share) double(data []byte, announced int64) ([]byte, error) {
	before := int64(cap(data))
	room := min(4*before, s.budget.each)
	if announced >= 0 {
		room = min(room, announced)
	}
	if room <= before {
		return nil, s.tooLong()
	}
	if err := s.Grow(room); err != nil {
		return nil, err
	}
	data = append(make([]byte, 0, room), data...)
	s.shrink(before)
	return data, nil
}

func whole(data []byte, announced int64) ([]byte, error) {
	if announced >= 0 && int64(len(data)) < announced {
		return nil, Invalidf("the request ends after %d of %d bytes", len(data), announced)
	}
	return data, nil
}
