// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
)

// headerLength says how much of a body is JSON; binary data follows.
const headerLength = "Inference-Header-Content-Length"

type inferRequest struct {
	ID         word             `json:"id"`
	Parameters parameters       `json:"parameters"`
	Inputs     few[inferInput]  `json:"inputs"`
	Outputs    few[inferOutput] `json:"outputs"`
}

type inferInput struct {
	Name       word       `json:"name"`
	Datatype   word       `json:"datatype"`
	Shape      few[int64] `json:"shape"`
	Parameters parameters `json:"parameters"`
	Data       part       `json:"data"`
}

type inferOutput struct {
	Name       word       `json:"name"`
	Parameters parameters `json:"parameters"`
}

// parameters are those that mean something here; the protocol lets clients send others.
type parameters struct {
	BinaryDataSize   *int64 `json:"binary_data_size"`
	BinaryData       *bool  `json:"binary_data"`
	BinaryDataOutput bool   `json:"binary_data_output"`
}

// infer answers POST /v2/models/NAME/infer.
func (s *server) infer(r *http.Request, share *inference.Share) (*answer, error) {
	body, err := s.body(r, share, r.PathValue("model"))
	if err != nil {
		return nil, err
	}
	m, done, err := s.find(r)
	if err != nil {
		return nil, err
	}
	defer done()
	request, inputs, err := decodeV2(body, r.Header.Get(headerLength), share.Grow)
	if err != nil {
		return nil, err
	}
	wanted := make([]string, len(request.Outputs))
	for i, o := range request.Outputs {
		wanted[i] = string(o.Name)
	}
	outputs, err := m.Infer(r.Context(), inputs, wanted)
	if err != nil {
		return nil, err
	}
	if err := share.Grow(answerSize(outputs)); err != nil {
		return nil, err
	}
	return encodeV2(m.Name, request, outputs), nil
}

// decodeV2 reads JSON and, when the header says how long that is, the binary data behind it.
func decodeV2(body []byte, header string, grow grower) (*inferRequest, []*tensor.Tensor, error) {
	binary := []byte(nil)
	if header != "" {
		n, err := strconv.Atoi(header)
		if err != nil || n < 0 || n > len(body) {
			return nil, nil, inference.Invalidf("header %s is %q; it must be a number of bytes up to the %d of the body", headerLength, header, len(body))
		}
		body, binary = body[:n], body[n:]
	}
	request := &inferRequest{}
	if err := json.Unmarshal(body, request); err != nil {
		if inference.KindOf(err) == inference.TooLarge {
			return nil, nil, err
		}
		return nil, nil, inference.Invalidf("the request is not JSON of the v2 protocol: %v", err)
	}
	inputs := make([]*tensor.Tensor, len(request.Inputs))
	for i := range request.Inputs {
		var err error
		inputs[i], binary, err = request.Inputs[i].tensor(binary, grow)
		switch kind := inference.KindOf(err); {
		case err == nil:
		case kind == inference.TooLarge || kind == inference.Busy:
			return nil, nil, err
		default:
			return nil, nil, inference.Invalidf("input %q: %v", request.Inputs[i].Name, err)
		}
	}
	if len(binary) > 0 {
		return nil, nil, inference.Invalidf("the body has %d bytes of binary data that belong to no input; set binary_data_size", len(binary))
	}
	return request, inputs, nil
}

// tensor takes the values from the JSON, or from the front of the binary data, and returns what is left of that.
func (in *inferInput) tensor(binary []byte, grow grower) (*tensor.Tensor, []byte, error) {
	kind := tensor.Type(in.Datatype)
	if !kind.Known() {
		return nil, nil, inference.Invalidf("datatype %q is unknown; FP32 is an example of one", in.Datatype)
	}
	if in.Shape == nil {
		return nil, nil, inference.Invalidf("shape is missing")
	}
	if size := in.Parameters.BinaryDataSize; size != nil {
		return in.fromBinary(binary, *size, grow)
	}
	if in.Data == nil {
		return nil, nil, inference.Invalidf("data is missing")
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
		return nil, nil, inference.Invalidf("data is nested like %v, shape is %v", t.Shape, in.Shape)
	}
	t.Name, t.Shape = string(in.Name), in.Shape
	return t, binary, nil
}

func (in *inferInput) fromBinary(binary []byte, size int64, grow grower) (*tensor.Tensor, []byte, error) {
	if in.Data != nil {
		return nil, nil, inference.Invalidf("there are both data and binary_data_size; send one of them")
	}
	if size < 0 || size > int64(len(binary)) {
		return nil, nil, inference.Invalidf("binary_data_size is %d, %d bytes of binary data are left in the body", size, len(binary))
	}
	t := &tensor.Tensor{Name: string(in.Name), Type: tensor.Type(in.Datatype), Shape: in.Shape}
	if err := grow(tensor.RawCost(t.Type, binary[:size])); err != nil {
		return nil, nil, err
	}
	if err := t.SetRaw(binary[:size:size]); err != nil {
		return nil, nil, err
	}
	return t, binary[size:], nil
}

// encodeV2 writes the outputs as JSON, or behind it in binary as far as the request wants that.
func encodeV2(model string, request *inferRequest, outputs []*tensor.Tensor) *answer {
	text := append(make([]byte, 0, answerSize(outputs)), `{"model_name":`...)
	text = tensor.AppendString(text, model)
	text = append(append(text, `,"model_version":`...), `"`+inference.Version+`"`...)
	if request.ID != "" {
		text = tensor.AppendString(append(text, `,"id":`...), string(request.ID))
	}
	text = append(text, `,"outputs":[`...)
	var raws [][]byte
	for i, t := range outputs {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendHead(text, t)
		if request.binary(t.Name) {
			raw := t.Raw()
			raws = append(raws, raw)
			text = strconv.AppendInt(append(text, `,"parameters":{"binary_data_size":`...), int64(len(raw)), 10)
			text = append(text, "}}"...)
		} else {
			text = append(t.AppendFlat(append(text, `,"data":`...)), '}')
		}
	}
	text = append(text, "]}"...)
	if raws == nil {
		return &answer{kind: "application/json", parts: [][]byte{text}}
	}
	return &answer{
		kind:   "application/octet-stream",
		header: map[string]string{headerLength: strconv.Itoa(len(text))},
		parts:  append([][]byte{text}, raws...),
	}
}

// binary says whether the client wants this output behind the JSON.
func (r *inferRequest) binary(output string) bool {
	for _, o := range r.Outputs {
		if string(o.Name) == output && o.Parameters.BinaryData != nil {
			return *o.Parameters.BinaryData
		}
	}
	return r.Parameters.BinaryDataOutput
}

// appendHead writes everything of an output but its values.
func appendHead(text []byte, t *tensor.Tensor) []byte {
	text = tensor.AppendString(append(text, `{"name":`...), t.Name)
	text = append(append(append(text, `,"datatype":"`...), t.Type...), `","shape":[`...)
	for i, d := range t.Shape {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, d, 10)
	}
	return append(text, ']')
}
