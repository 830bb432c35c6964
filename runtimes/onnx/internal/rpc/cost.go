// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
)

// What things of a message take in memory at most, where that is more than on the wire: an empty input is two bytes there.
const (
	perMessage   = 512 // an input, an output, a parameter
	perParameter = 128 // each byte of a map, whose entries are two bytes long when they are empty
	perNumber    = 24  // a number of a list, as it is decoded and in the tensor
	perBytes     = 128 // an element of BYTES
	mostItems    = 1024
	longestName  = 4 << 10
)

// Numbers of fields in the protocol.
const (
	fieldModelName, fieldModelVersion, fieldID          = 1, 2, 3
	fieldParameters, fieldInputs, fieldOutputs          = 4, 5, 6
	fieldName, fieldDatatype, fieldShape, fieldContents = 1, 2, 3, 5
	fieldFP32, fieldFP64, fieldBytes                    = 6, 7, 8
)

// cost is how much memory a message takes when it is decoded. It walks over the bytes and makes nothing.
func cost(message []byte) (int64, error) {
	total, count := int64(0), 0
	err := fields(message, func(field protowire.Number, value []byte) error {
		total += int64(len(value)) + 32
		switch field {
		case fieldModelName, fieldModelVersion, fieldID:
			return short(value)
		case fieldParameters, fieldOutputs:
			total += perMessage + perParameter*int64(len(value))
			count++
		case fieldInputs:
			need, err := inputCost(value)
			if err != nil {
				return err
			}
			total += perMessage + need
			count++
		}
		if count > mostItems {
			return &inference.Error{Kind: inference.TooLarge, Message: fmt.Sprintf("the request has more than %d inputs, outputs and parameters", mostItems)}
		}
		return nil
	})
	return total, err
}

func inputCost(message []byte) (int64, error) {
	total := int64(0)
	err := fields(message, func(field protowire.Number, value []byte) error {
		switch field {
		case fieldName, fieldDatatype:
			return short(value)
		case fieldShape:
			total += perNumber * max(int64(len(value)), 1)
		case fieldParameters:
			total += perMessage + perParameter*int64(len(value))
		case fieldContents:
			total += perMessage + contentsCost(value)
		}
		return nil
	})
	return total, err
}

func contentsCost(message []byte) int64 {
	total := int64(0)
	_ = fields(message, func(field protowire.Number, value []byte) error { // nothing is refused here
		switch {
		case field == fieldBytes:
			total += perBytes + 2*int64(len(value))
		case value == nil:
			total += perNumber
		case field == fieldFP32, field == fieldFP64:
			total += 3 * int64(len(value))
		default:
			for _, b := range value {
				if b < 0x80 { // the last byte of a number
					total += perNumber
				}
			}
		}
		return nil
	})
	return total
}

// fields calls for each field of a message, with its bytes if it has a length. Where it cannot go on it stops: whoever
// decodes the message says what is wrong with it.
func fields(message []byte, do func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		var value []byte
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(message)
		} else {
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return nil
		}
		if err := do(field, value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

func short(value []byte) error {
	if len(value) > longestName {
		return &inference.Error{Kind: inference.TooLarge, Message: fmt.Sprintf("a name, id or datatype is longer than %d bytes", longestName)}
	}
	return nil
}
