// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"strconv"

	v2 "github.com/modelplane/modelplane/internal/openinference/body"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
)

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
	request, err := v2.Decode(body, r.Header.Get(v2.HeaderLength), share.Grow)
	if err != nil {
		return nil, err
	}
	inputs, wanted := make([]*tensor.Tensor, len(request.Inputs)), make([]string, len(request.Outputs))
	for i, in := range request.Inputs {
		inputs[i] = in.Tensor
	}
	for i, o := range request.Outputs {
		wanted[i] = o.Name
	}
	outputs, err := m.Infer(r.Context(), inputs, wanted)
	if err != nil {
		return nil, err
	}
	response := &v2.Response{ModelName: m.Name, ModelVersion: inference.Version, ID: request.ID}
	for _, t := range outputs {
		response.Outputs = append(response.Outputs, v2.Input{Tensor: t})
	}
	if err := share.Grow(response.Size()); err != nil {
		return nil, err
	}
	return encodeV2(response, request), nil
}

// encodeV2 writes the outputs as JSON, or behind it in binary as far as the request wants that.
func encodeV2(response *v2.Response, request *v2.Request) *answer {
	text, raws := response.Encode(request.BinaryOutput)
	if raws == nil {
		return &answer{kind: "application/json", parts: [][]byte{text}}
	}
	return &answer{
		kind:   "application/octet-stream",
		header: map[string]string{v2.HeaderLength: strconv.Itoa(len(text))},
		parts:  append([][]byte{text}, raws...),
	}
}
