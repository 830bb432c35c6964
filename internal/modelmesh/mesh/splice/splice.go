// SPDX-License-Identifier: Apache-2.0

// Package splice reads a model's id out of an encoded protobuf message, and puts another one in, knowing nothing of the
// message but the numbers of the fields that lead to the id. The rest is stepped over, never decoded and never changed:
// a tensor of many megabytes costs the reading of its length. It must not learn about any protocol.
package splice

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// deepest bounds a path; no known protocol has its id deeper than two fields.
const deepest = 16

var errMalformed = errors.New("the message is no valid protobuf: a field ends after the message does, or has an unknown kind")

// Check tells whether a path can lead to an id, so that a configuration is refused when it is read, not at the first call.
func Check(path []int32) error {
	if len(path) == 0 {
		return errors.New("the path to the id is empty; give the numbers of the fields that lead to it, as in [1] or [1, 1]")
	}
	if len(path) > deepest {
		return fmt.Errorf("the path to the id has %d fields; at most %d are followed", len(path), deepest)
	}
	for _, number := range path {
		if !protowire.Number(number).IsValid() {
			return fmt.Errorf("the path to the id names the field number %d, which no protobuf message can have", number)
		}
	}
	return nil
}

// Extract reads the string at the end of the path; "" when the message has none. Where a field is repeated, it answers what
// every protobuf decoder would: the last string wins, and messages of the same field are one.
func Extract(message []byte, path []int32) (string, error) {
	if err := Check(path); err != nil {
		return "", err
	}
	id, _, err := find(message, path)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(id) {
		return "", errors.New("the id in the message is no valid UTF-8; send the id of a model")
	}
	return string(id), nil
}

func find(message []byte, path []int32) (id []byte, found bool, err error) {
	err = each(message, path[0], func(_, from, to int) error {
		value := message[from:to]
		if len(path) == 1 {
			id, found = value, true
			return nil
		}
		inner, there, err := find(value, path[1:])
		if there {
			id, found = inner, true
		}
		return err
	})
	return id, found, err
}

// each calls visit for every field of that number that holds bytes (a string or a message), with the offsets of its tag,
// of its content and of its end. A field of that number but another wire type is unknown to a decoder, and skipped.
func each(message []byte, number int32, visit func(tag, from, to int) error) error {
	for at := 0; at < len(message); {
		n, kind, size := protowire.ConsumeTag(message[at:])
		if size < 0 {
			return errMalformed
		}
		content := at + size
		length := protowire.ConsumeFieldValue(n, kind, message[content:])
		if length < 0 {
			return errMalformed
		}
		end := content + length
		if n == protowire.Number(number) && kind == protowire.BytesType {
			_, prefix := protowire.ConsumeVarint(message[content:])
			if err := visit(at, content+prefix, end); err != nil {
				return err
			}
		}
		at = end
	}
	return nil
}

// Inject returns a copy of the message in which the string at the end of the path is id. Every other byte stays as and where
// it was. A field that is missing on the way is put first in its message; where one is repeated the last is used, because
// that is the one that decoders let win.
func Inject(message []byte, path []int32, id string) ([]byte, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	if !utf8.ValidString(id) {
		return nil, errors.New("an id that is no valid UTF-8 cannot be put into a message")
	}
	way, err := locate(message, path)
	if err != nil {
		return nil, err
	}
	return assemble(message, path, way, id), nil
}

// cut is a piece of the message that is written anew: from the tag of a field to its end. The content of a field that is
// there begins at from; of one that is missing, cut is the empty place where it belongs.
type cut struct {
	tag, from, end int
}

// locate finds the last field of each step; steps below a missing one are missing at the same place.
func locate(message []byte, path []int32) ([]cut, error) {
	way := make([]cut, 0, len(path))
	begin, end := 0, len(message)
	for _, number := range path {
		here := cut{tag: begin, from: begin, end: begin}
		err := each(message[begin:end], number, func(tag, from, to int) error {
			here = cut{tag: begin + tag, from: begin + from, end: begin + to}
			return nil
		})
		if err != nil {
			return nil, err
		}
		way = append(way, here)
		begin, end = here.from, here.end
	}
	return way, nil
}

// assemble writes the result in one go. Lengths are known from the inside out: the new content of a field is its old one
// without the next cut, and with the next field as it will be.
func assemble(message []byte, path []int32, way []cut, id string) []byte {
	sizes := make([]int, len(way)) // of the new content of each field
	last := len(way) - 1
	sizes[last] = len(id)
	for i := last - 1; i >= 0; i-- {
		inner := way[i+1]
		old := way[i].end - way[i].from
		sizes[i] = old - (inner.end - inner.tag) + fieldSize(path[i+1], sizes[i+1])
	}
	total := len(message) - (way[0].end - way[0].tag) + fieldSize(path[0], sizes[0])

	out := make([]byte, 0, total)
	copied := 0
	for i, here := range way {
		out = append(out, message[copied:here.tag]...)
		out = protowire.AppendTag(out, protowire.Number(path[i]), protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(sizes[i]))
		copied = here.from
	}
	out = append(out, id...)
	return append(out, message[way[last].end:]...)
}

func fieldSize(number int32, content int) int {
	return protowire.SizeTag(protowire.Number(number)) + protowire.SizeBytes(content)
}
