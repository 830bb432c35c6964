// SPDX-License-Identifier: Apache-2.0

package onnxfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// reader walks over a message of protocol buffers in a file. It jumps over what nobody asks for.
type reader struct {
	file io.ReadSeeker
	in   *bufio.Reader
	at   int64
	size int64
}

func newReader(file io.ReadSeeker, size int64) *reader {
	return &reader{file: file, in: bufio.NewReaderSize(file, 32<<10), size: size}
}

// The ways in which a field is written.
const (
	varint  = 0
	fixed64 = 1
	bytes   = 2
	fixed32 = 5
)

// field is one field of a message. Number is its value when it is written as a varint; length is how long it is when it is
// a text, a list or a message, which begins where the reader is.
type field struct {
	id     int
	way    int
	number uint64
	length int64
}

// fields calls for each field of a message of the given length that begins here. What the function leaves of a field is
// skipped.
func (r *reader) fields(length int64, do func(field) error) error {
	for end := r.at + length; r.at < end; {
		f, err := r.field(end)
		if err != nil {
			return err
		}
		after := r.at + f.length
		if err := do(f); err != nil {
			return err
		}
		if err := r.skip(after - r.at); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) field(end int64) (field, error) {
	tag, err := r.varint()
	if err != nil {
		return field{}, err
	}
	f := field{id: int(tag >> 3), way: int(tag & 7)}
	if f.id == 0 || tag>>3 > 1<<29 {
		return field{}, invalid("it is not written in protocol buffers")
	}
	switch f.way {
	case varint:
		f.number, err = r.varint()
	case fixed64:
		f.length = 8
	case fixed32:
		f.length = 4
	case bytes:
		var n uint64
		if n, err = r.varint(); err == nil && n > uint64(r.size) {
			err = r.short()
		}
		f.length = int64(n)
	default:
		err = invalid("it is not written in protocol buffers")
	}
	if err == nil && r.at+f.length > end {
		err = r.short()
	}
	return f, err
}

func (r *reader) short() error { return invalid("it ends before it is complete") }

func (r *reader) varint() (uint64, error) {
	v, err := binary.ReadUvarint(r)
	switch {
	case err == nil, errors.As(err, new(*fileError)):
		return v, err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, r.short()
	}
	return 0, invalid("it is not written in protocol buffers")
}

// fileError is an error of the file, not of what is in it.
type fileError struct{ error }

func (e *fileError) Unwrap() error { return e.error }

// ReadByte implements io.ByteReader.
func (r *reader) ReadByte() (byte, error) {
	b, err := r.in.ReadByte()
	if err == nil {
		r.at++
	} else if !errors.Is(err, io.EOF) {
		err = &fileError{err}
	}
	return b, err
}

// text reads a text that begins here.
func (r *reader) text(f field) (string, error) {
	if f.length > longestText {
		return "", invalid("a name in it is longer than %d bytes", longestText)
	}
	text := make([]byte, f.length)
	n, err := io.ReadFull(r.in, text)
	r.at += int64(n)
	if err != nil {
		return "", r.short()
	}
	return string(text), nil
}

func (r *reader) skip(n int64) error {
	if n < 0 { // a number went on where its list had ended
		return r.short()
	}
	if n <= int64(r.in.Buffered()) {
		_, err := r.in.Discard(int(n))
		r.at += n
		return err
	}
	if _, err := r.file.Seek(r.at+n, io.SeekStart); err != nil {
		return err
	}
	r.in.Reset(r.file)
	r.at += n
	return nil
}
