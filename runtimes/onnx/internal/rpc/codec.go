// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"fmt"

	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/openinference/message"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
)

// decode takes the values of all inputs either from the raw contents or from the typed ones.
func decode(r *pb.ModelInferRequest) ([]*tensor.Tensor, error) {
	raw := r.RawInputContents
	if len(raw) > 0 && len(raw) != len(r.Inputs) {
		return nil, inference.Invalidf("there are %d raw_input_contents for %d inputs; send one for each", len(raw), len(r.Inputs))
	}
	inputs := make([]*tensor.Tensor, len(r.Inputs))
	for i, in := range r.Inputs {
		t := &tensor.Tensor{Name: in.GetName(), Type: tensor.Type(in.GetDatatype()), Shape: in.GetShape()}
		var err error
		switch {
		case !t.Type.Known():
			err = fmt.Errorf("datatype %q is unknown; FP32 is an example of one", t.Type)
		case len(raw) > 0 && in.GetContents() != nil:
			err = fmt.Errorf("there are both contents and raw_input_contents; send one of them")
		case len(raw) > 0:
			err = t.SetRaw(raw[i])
		default:
			err = message.Fill(t, in.GetContents())
		}
		if err != nil {
			return nil, inference.Invalidf("input %q: %v", t.Name, err)
		}
		inputs[i] = t
	}
	return inputs, nil
}

// encode answers raw when the request was raw, or when a type has no typed contents: the protocol has both or neither.
func encode(model string, r *pb.ModelInferRequest, outputs []*tensor.Tensor) *pb.ModelInferResponse {
	answer := &pb.ModelInferResponse{ModelName: model, ModelVersion: inference.Version, Id: r.Id}
	raw := len(r.RawInputContents) > 0
	for _, t := range outputs {
		raw = raw || !message.Typed(t.Type)
	}
	for _, t := range outputs {
		out := &pb.ModelInferResponse_InferOutputTensor{Name: t.Name, Datatype: string(t.Type), Shape: t.Shape}
		if raw {
			answer.RawOutputContents = append(answer.RawOutputContents, t.Raw())
		} else {
			out.Contents = message.Contents(t)
		}
		answer.Outputs = append(answer.Outputs, out)
	}
	return answer
}
