// SPDX-License-Identifier: Apache-2.0

package inference

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// Budget bounds the memory that requests take together, however many there are and however slowly they arrive.
type Budget struct {
	total int64
	each  int64
	used  atomic.Int64
}

// NewBudget allows total bytes at the same time and each bytes for one request.
func NewBudget(total, each int64) *Budget { return &Budget{total: max(total, each), each: each} }

// Each is how large one request may be.
func (b *Budget) Each() int64 { return b.each }

func (b *Budget) take(n int64) error {
	if b.used.Add(n) > b.total {
		b.used.Add(-n)
		return &Error{Busy, fmt.Sprintf("requests that are being handled take %d bytes already; try again later", b.total)}
	}
	return nil
}

// Hold counts a request that is in memory already until the returned function is called.
func (b *Budget) Hold(n int64) (release func(), err error) {
	if err := b.take(n); err != nil {
		return nil, err
	}
	return func() { b.used.Add(-n) }, nil
}

// Read reads a body of the announced length, or of any length when that is negative. It holds the bytes until release is
// called, and no more than have been announced or have arrived.
func (b *Budget) Read(body io.Reader, announced int64) (data []byte, release func(), err error) {
	held := int64(0)
	release = func() { b.used.Add(-held) }
	grow := func(n int64) error {
		if held+n > b.each {
			return &Error{TooLarge, fmt.Sprintf("the request is larger than %d bytes", b.each)}
		}
		if err := b.take(n); err != nil {
			return err
		}
		held += n
		return nil
	}
	data, err = readAll(body, announced, grow)
	if err != nil {
		release()
		return nil, nil, err
	}
	return data, release, nil
}

// step is how much room is made at first for a body of unknown length.
const step = 64 << 10

func readAll(body io.Reader, announced int64, grow func(int64) error) ([]byte, error) {
	size := announced
	if size < 0 {
		size = step
	}
	if err := grow(size); err != nil {
		return nil, err
	}
	data := make([]byte, 0, size)
	for {
		if len(data) == cap(data) && announced < 0 {
			// Old and new exist side by side for a moment, but only the new one is counted for longer.
			if err := grow(int64(cap(data))); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, 2*cap(data)), data...)
		}
		if len(data) == cap(data) {
			return data, nil
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

func whole(data []byte, announced int64) ([]byte, error) {
	if announced >= 0 && int64(len(data)) < announced {
		return nil, Invalidf("the request ends after %d of %d bytes", len(data), announced)
	}
	return data, nil
}
