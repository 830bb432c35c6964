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
	Parameters Part             `json:"parameters"`
	Inputs     few[inferInput]  `json:"inputs"`
	Outputs    few[inferOutput] `json:"outputs"`
}

type inferInput struct {
	Name       word       `json:"name"`
	Datatype   word       `json:"datatype"`
	Shape      few[int64] `json:"shape"`
	Parameters Part       `json:"parameters"`
	Data       Part       `json:"data"`
}

type inferOutput struct {
	Name       word `json:"name"`
	Parameters Part `json:"parameters"`
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
	d := &decoder{grow: grow, binary: binary, left: mostItems}
	return d.request(read)
}

// decoder is one request on its way from JSON.
type decoder struct {
	grow   Grower
	binary []byte // what nobody has taken yet
	left   int    // parameters that there may still be
}

func (d *decoder) request(read *inferRequest) (*Request, error) {
	out := &Request{ID: string(read.ID), Binary: len(d.binary) > 0, binaryOutputs: map[string]bool{}}
	parameters, err := d.parameters(read.Parameters)
	if err != nil {
		return nil, err
	}
	out.allBinary, _ = parameters.flag(binaryDataOutput)
	out.Parameters = parameters.without(binaryDataOutput)
	for i := range read.Inputs {
		in := &read.Inputs[i]
		one, err := d.input(in)
		if err != nil {
			return nil, within("input", in.Name, err)
		}
		out.Inputs = append(out.Inputs, one)
	}
	if len(d.binary) > 0 {
		return nil, openinference.Invalidf("the body has %d bytes of binary data that belong to no input; set binary_data_size", len(d.binary))
	}
	for _, o := range read.Outputs {
		parameters, err := d.parameters(o.Parameters)
		if err != nil {
			return nil, within("output", o.Name, err)
		}
		if wanted, said := parameters.flag(binaryData); said {
			out.binaryOutputs[string(o.Name)] = wanted
		}
		out.Outputs = append(out.Outputs, Output{string(o.Name), parameters.without(binaryData)})
	}
	return out, nil
}

// within says of which tensor somebody complains; what is not the client's to mend stays as it is.
func within(what string, name word, err error) error {
	if known(err) && openinference.KindOf(err) != openinference.Invalid {
		return err
	}
	return openinference.Invalidf("%s %q: %v", what, string(name), err)
}

// known tells whether an error is in words for the client already.
func known(err error) bool { return openinference.KindOf(err) != openinference.Internal }

// perParameter is what a parameter takes in memory besides its text.
const perParameter = 160

// parameters are few in all sets of a request together: an empty one takes five bytes in JSON.
func (d *decoder) parameters(text Part) (Parameters, error) {
	if text == nil {
		return nil, nil
	}
	count := 0
	err := Items(text, func([]byte) error {
		if count++; count > d.left {
			return tooLarge("the request has more than %d parameters", mostItems)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.left -= count
	if err := d.grow(int64(count*perParameter + 2*len(text))); err != nil {
		return nil, err
	}
	var out Parameters
	if err := json.Unmarshal(text, &out); err != nil && known(err) {
		return nil, err
	} else if err != nil {
		return nil, openinference.Invalidf("parameters must be an object")
	}
	return out, nil
}

// input takes the values from the JSON, or from the front of the binary data.
func (d *decoder) input(in *inferInput) (Input, error) {
	kind := tensor.Type(in.Datatype)
	if !kind.Known() {
		return Input{}, openinference.Invalidf("datatype %q is unknown; FP32 is an example of one", string(in.Datatype))
	}
	if in.Shape == nil {
		return Input{}, openinference.Invalidf("shape is missing")
	}
	count, err := tensor.Count(in.Shape)
	if err != nil {
		return Input{}, err
	}
	parameters, err := d.parameters(in.Parameters)
	if err != nil {
		return Input{}, err
	}
	t, err := d.values(kind, in, parameters)
	if err != nil {
		return Input{}, err
	}
	t.Name, t.Shape = string(in.Name), in.Shape
	if n := t.Len(); n != count {
		return Input{}, openinference.Invalidf("there are %d values, shape %v needs %d", n, in.Shape, count)
	}
	return Input{t, parameters.without(binaryDataSize)}, nil
}

func (d *decoder) values(kind tensor.Type, in *inferInput, parameters Parameters) (*tensor.Tensor, error) {
	if size, there := parameters.size(binaryDataSize); there {
		if in.Data != nil {
			return nil, openinference.Invalidf("there are both data and binary_data_size; send one of them")
		}
		if size < 0 || size > int64(len(d.binary)) {
			return nil, openinference.Invalidf("binary_data_size is %v, %d bytes of binary data are left in the body", parameters[binaryDataSize], len(d.binary))
		}
		return d.fromBinary(kind, size)
	}
	if in.Data == nil {
		return nil, openinference.Invalidf("data is missing")
	}
	if err := d.grow(tensor.TextCost(kind, in.Data)); err != nil {
		return nil, err
	}
	t, err := tensor.Parse(kind, in.Data)
	if err != nil {
		return nil, err
	}
	// The lists may be flat or nested like the shape.
	if len(t.Shape) > 1 && !slices.Equal(t.Shape, in.Shape) {
		return nil, openinference.Invalidf("data is nested like %v, shape is %v", t.Shape, in.Shape)
	}
	if kind == tensor.Bytes && parameters.base64() {
		err = plain(t.Strings)
	}
	return t, err
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

func (d *decoder) fromBinary(kind tensor.Type, size int64) (*tensor.Tensor, error) {
	raw := d.binary[:size:size]
	t := &tensor.Tensor{Type: kind}
	if err := d.grow(tensor.RawCost(kind, raw)); err != nil {
		return nil, err
	}
	if err := t.SetRaw(raw); err != nil {
		return nil, err
	}
	d.binary = d.binary[size:]
	return t, nil
}
