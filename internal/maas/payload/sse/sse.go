// SPDX-License-Identifier: Apache-2.0

// Package sse cuts a stream of server-sent events into events as they come, wherever the pieces of the stream happen to end,
// and writes events. It keeps no more than one unfinished event, which has a limit.
package sse

import (
	"bytes"
	"errors"
)

// Event is one message of a stream. Data has no line break at its end.
type Event struct {
	Name string
	Data []byte
}

// ErrTooLong is told when one event is longer than the limit.
var ErrTooLong = errors.New("an event of the stream is too long")

// Splitter is fed with pieces.
type Splitter struct {
	// Limit is how many bytes an unfinished event may have.
	Limit int

	line    []byte // unfinished
	name    string
	data    []byte
	any     bool // the event has a data line
	afterCR bool // the last line ended in CR, and an LF that follows belongs to it
}

// Feed calls back for each event that is complete now. Its data is valid during the call only.
func (s *Splitter) Feed(piece []byte, each func(Event) error) error {
	for len(piece) > 0 {
		if s.afterCR {
			s.afterCR = false
			if piece[0] == '\n' {
				piece = piece[1:]
				continue
			}
		}
		end := bytes.IndexAny(piece, "\r\n")
		if end < 0 {
			s.line = append(s.line, piece...)
			return s.check()
		}
		line := piece[:end]
		if len(s.line) > 0 {
			s.line = append(s.line, line...)
			line = s.line
		}
		s.afterCR = piece[end] == '\r'
		piece = piece[end+1:]
		err := s.take(line, each)
		s.line = s.line[:0]
		if err == nil {
			err = s.check()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Splitter) check() error {
	if s.Limit > 0 && len(s.line)+len(s.data) > s.Limit {
		return ErrTooLong
	}
	return nil
}

// take reads one line; an empty one ends the event.
func (s *Splitter) take(line []byte, each func(Event) error) error {
	if len(line) == 0 {
		return s.Flush(each)
	}
	field, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(field) {
	case "event":
		s.name = string(value)
	case "data":
		if s.any {
			s.data = append(s.data, '\n')
		}
		s.any = true
		s.data = append(s.data, value...)
	}
	return nil
}

// Flush ends the event that is under way, as a stream may end without an empty line.
func (s *Splitter) Flush(each func(Event) error) error {
	event := Event{Name: s.name, Data: s.data}
	had := s.any
	s.name, s.any = "", false
	defer func() { s.data = s.data[:0] }()
	if !had {
		return nil
	}
	return each(event)
}

// End takes a last line without a line break for whole, and the event for ended.
func (s *Splitter) End(each func(Event) error) error {
	if len(s.line) > 0 {
		if err := s.take(s.line, each); err != nil {
			return err
		}
		s.line = s.line[:0]
	}
	return s.Flush(each)
}

// Append writes an event behind the text. Line breaks in the data become several data lines.
func Append(text []byte, e Event) []byte {
	if e.Name != "" {
		text = append(append(append(text, "event: "...), e.Name...), '\n')
	}
	for line := range bytes.SplitSeq(e.Data, []byte{'\n'}) {
		text = append(append(append(text, "data: "...), line...), '\n')
	}
	return append(text, '\n')
}
