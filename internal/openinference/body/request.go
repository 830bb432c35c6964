// SPDX-License-Identifier: Apache-2.0

// Package body reads and writes the bodies of the protocol over HTTP: JSON, with the values of tensors in it or as binary
// data behind it. It bounds what a hostile body can make of little text. Who asks and who answers is not its business.
package body

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/modelplane/modelplane/internal/openinference"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// HeaderLength is the header that says how much of a body is JSON; binary data follows.
const HeaderLength = "Inference-Header-Content-Length"

// Parameters by which client and server agree on how values travel. They are between these two and go no further.
const (
	binaryDataSize   = "binary_data_size"
	binaryData       = "binary_data"
	binaryDataOutput = "binary_data_output"
)

// Request asks for inference.
type Request struct {
	ID         string
	Parameters Parameters
	Inputs     []Input
	// Outputs that are wanted; none: all.
	Outputs []Output
	// Binary says that values of an input came as binary data.
	Binary bool

	binaryOutputs map[string]bool
	allBinary     bool
}

// Input is a tensor and what is said of it.
type Input struct {
	*tensor.Tensor
	Parameters Parameters
}

// Output is the name of a tensor that is wanted.
type Output struct {
	Name       string
	Parameters Parameters
}

// BinaryOutput says whether the client wants this output behind the JSON.
func (r *Request) BinaryOutput(name string) bool {
	if wanted, said := r.binaryOutputs[name]; said {
		return wanted
	}
	return r.allBinary
}

// inferRequest is the JSON.
type inferRequest struct {
	ID         word             `json:"id"`
	Parameters Parameters       `json:"parameters"`
	Inputs     few[inferInput]  `json:"inputs"`
	Outputs    few[inferOutput] `json:"outputs"`
}

type inferInput struct {
	Name       word       `json:"name"`
	Datatype   word       `json:"datatype"`
	Shape      few[int64] `json:"shape"`
	Parameters Parameters `json:"parameters"`
	Data       part       `json:"data"`
}

type inferOutput struct {
	Name       word       `json:"name"`
	Parameters Parameters `json:"parameters"`
}

// Decode reads JSON and, when the header says how long that is, the binary data behind it. Every tensor has as many
// values as its shape says.
func Decode(text []byte, header string, grow Grower) (*Request, error) {
	binary := []byte(nil)
	if header != "" {
		n, err := strconv.Atoi(header)
		if err != nil || n < 0 || n > len(text) {
			return nil, openinference.Invalidf("header %s is %q; it must be a number of bytes up to the %d of the body", HeaderLength, header, len(text))
		}
		text, binary = text[:n], text[n:]
	}
	read := &inferRequest{}
	if err := json.Unmarshal(text, read); err != nil {
		if known(err) {
			return nil, err
		}
		return nil, openinference.Invalidf("the request is not JSON of the v2 protocol: %v", err)
	}
	if len(read.Inputs) == 0 {
		return nil, openinference.Invalidf("the request has no inputs")
	}
	out := &Request{ID: string(read.ID), Binary: len(binary) > 0, binaryOutputs: map[string]bool{}}
	out.allBinary, _ = read.Parameters.flag(binaryDataOutput)
	out.Parameters = read.Parameters.without(binaryDataOutput)
	for i := range read.Inputs {
		in := &read.Inputs[i]
		var t *tensor.Tensor
		var err error
		if t, binary, err = in.tensor(binary, grow); err != nil {
			if known(err) && openinference.KindOf(err) != openinference.Invalid {
				return nil, err
			}
			return nil, openinference.Invalidf("input %q: %v", in.Name, err)
		}
		out.Inputs = append(out.Inputs, Input{t, in.Parameters.without(binaryDataSize)})
	}
	if len(binary) > 0 {
		return nil, openinference.Invalidf("the body has %d bytes of binary data that belong to no input; set binary_data_size", len(binary))
	}
	for _, o := range read.Outputs {
		if wanted, said := o.Parameters.flag(binaryData); said {
			out.binaryOutputs[string(o.Name)] = wanted
		}
		out.Outputs = append(out.Outputs, Output{string(o.Name), o.Parameters.without(binaryData)})
	}
	return out, nil
}

// known tells whether an error is in words for the client already.
func known(err error) bool { return openinference.KindOf(err) != openinference.Internal }

// tensor takes the values from the JSON, or from the front of the binary data, and returns what is left of that.
func (in *inferInput) tensor(binary []byte, grow Grower) (*tensor.Tensor, []byte, error) {
	kind := tensor.Type(in.Datatype)
	if !kind.Known() {
		return nil, nil, openinference.Invalidf("datatype %q is unknown; FP32 is an example of one", in.Datatype)
	}
	if in.Shape == nil {
		return nil, nil, openinference.Invalidf("shape is missing")
	}
	count, err := tensor.Count(in.Shape)
	if err != nil {
		return nil, nil, err
	}
	t, rest, err := in.values(kind, binary, grow)
	if err != nil {
		return nil, nil, err
	}
	t.Name, t.Shape = string(in.Name), in.Shape
	if n := t.Len(); n != count {
		return nil, nil, openinference.Invalidf("there are %d values, shape %v needs %d", n, in.Shape, count)
	}
	return t, rest, nil
}

func (in *inferInput) values(kind tensor.Type, binary []byte, grow Grower) (*tensor.Tensor, []byte, error) {
	if size, there := in.Parameters.size(binaryDataSize); there {
		return in.fromBinary(kind, binary, size, grow)
	}
	if in.Data == nil {
		return nil, nil, openinference.Invalidf("data is missing")
	}
	if err := grow(tensor.TextCost(kind, in.Data)); err != nil {
		return nil, nil, err
	}
	t, err := tensor.Parse(kind, in.Data)
	if err != nil {
		return nil, nil, err
	}
	// The lists may be flat or nested like the shape.
	if len(t.Shape) > 1 && !slices.Equal(t.Shape, in.Shape) {
		return nil, nil, openinference.Invalidf("data is nested like %v, shape is %v", t.Shape, in.Shape)
	}
	if kind == tensor.Bytes && in.Parameters.base64() {
		err = plain(t.Strings)
	}
	return t, binary, err
}

// plain turns base64 into what it stands for.
func plain(texts []string) error {
	for i, text := range texts {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return openinference.Invalidf("element %d is not base64, as content_type says", i)
		}
		texts[i] = string(raw)
	}
	return nil
}

func (in *inferInput) fromBinary(kind tensor.Type, binary []byte, size int64, grow Grower) (*tensor.Tensor, []byte, error) {
	if in.Data != nil {
		return nil, nil, openinference.Invalidf("there are both data and binary_data_size; send one of them")
	}
	if size < 0 || size > int64(len(binary)) {
		return nil, nil, openinference.Invalidf("binary_data_size is %v, %d bytes of binary data are left in the body", in.Parameters[binaryDataSize], len(binary))
	}
	t := &tensor.Tensor{Type: kind}
	if err := grow(tensor.RawCost(kind, binary[:size])); err != nil {
		return nil, nil, err
	}
	if err := t.SetRaw(binary[:size:size]); err != nil {
		return nil, nil, err
	}
	return t, binary[size:], nil
}
