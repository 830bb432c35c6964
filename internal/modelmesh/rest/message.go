// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"fmt"

	"github.com/modelplane/modelplane/internal/openinference"
	"github.com/modelplane/modelplane/internal/openinference/body"
	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/openinference/message"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// toMessage makes a gRPC message of a request. Values are typed, as runtimes are used to, unless some came in binary or
// have a type that only travels raw.
func toMessage(r *body.Request, model, version string) *pb.ModelInferRequest {
	out := &pb.ModelInferRequest{ModelName: model, ModelVersion: version, Id: r.ID, Parameters: toParameters(r.Parameters)}
	raw := r.Binary
	for _, in := range r.Inputs {
		raw = raw || !message.Typed(in.Type)
	}
	for _, in := range r.Inputs {
		one := &pb.ModelInferRequest_InferInputTensor{
			Name: in.Name, Datatype: string(in.Type), Shape: in.Shape, Parameters: toParameters(in.Parameters),
		}
		if raw {
			out.RawInputContents = append(out.RawInputContents, in.Raw())
		} else {
			one.Contents = message.Contents(in.Tensor)
		}
		out.Inputs = append(out.Inputs, one)
	}
	for _, o := range r.Outputs {
		out.Outputs = append(out.Outputs, &pb.ModelInferRequest_InferRequestedOutputTensor{Name: o.Name, Parameters: toParameters(o.Parameters)})
	}
	return out
}

func toParameters(p body.Parameters) map[string]*pb.InferParameter {
	if len(p) == 0 {
		return nil
	}
	out := map[string]*pb.InferParameter{}
	for name, value := range p {
		one := &pb.InferParameter{}
		switch v := value.(type) {
		case bool:
			one.ParameterChoice = &pb.InferParameter_BoolParam{BoolParam: v}
		case int64:
			one.ParameterChoice = &pb.InferParameter_Int64Param{Int64Param: v}
		case uint64:
			one.ParameterChoice = &pb.InferParameter_Uint64Param{Uint64Param: v}
		case float64:
			one.ParameterChoice = &pb.InferParameter_DoubleParam{DoubleParam: v}
		case string:
			one.ParameterChoice = &pb.InferParameter_StringParam{StringParam: v}
		}
		out[name] = one
	}
	return out
}

func fromParameters(p map[string]*pb.InferParameter) body.Parameters {
	if len(p) == 0 {
		return nil
	}
	out := body.Parameters{}
	for name, value := range p {
		switch v := value.GetParameterChoice().(type) {
		case *pb.InferParameter_BoolParam:
			out[name] = v.BoolParam
		case *pb.InferParameter_Int64Param:
			out[name] = v.Int64Param
		case *pb.InferParameter_Uint64Param:
			out[name] = v.Uint64Param
		case *pb.InferParameter_DoubleParam:
			out[name] = v.DoubleParam
		case *pb.InferParameter_StringParam:
			out[name] = v.StringParam
		}
	}
	return out
}

// fromMessage understands an answer. What does not hold what it says is the runtime's fault.
func fromMessage(r *pb.ModelInferResponse, model string) (*body.Response, error) {
	raw := r.GetRawOutputContents()
	if len(raw) > 0 && len(raw) != len(r.GetOutputs()) {
		return nil, broken("it has %d raw_output_contents for %d outputs", len(raw), len(r.GetOutputs()))
	}
	// A runtime of a mesh knows the model by an id that tells its revision, too; clients may want to see which one answered.
	out := &body.Response{ModelName: cmp.Or(r.GetModelName(), model), ModelVersion: r.GetModelVersion(), ID: r.GetId(), Parameters: fromParameters(r.GetParameters())}
	for i, o := range r.GetOutputs() {
		t := &tensor.Tensor{Name: o.GetName(), Type: tensor.Type(o.GetDatatype()), Shape: o.GetShape()}
		if !t.Type.Known() {
			return nil, broken("output %q has the unknown datatype %q", t.Name, t.Type)
		}
		var err error
		if len(raw) > 0 {
			err = t.SetRaw(raw[i])
		} else {
			err = message.Fill(t, o.GetContents())
		}
		if err != nil {
			return nil, broken("output %q: %v", t.Name, err)
		}
		if count, err := tensor.Count(t.Shape); err != nil || count != t.Len() {
			return nil, broken("output %q has %d values and shape %v", t.Name, t.Len(), t.Shape)
		}
		out.Outputs = append(out.Outputs, body.Input{Tensor: t, Parameters: fromParameters(o.GetParameters())})
	}
	return out, nil
}

func broken(format string, args ...any) error {
	return &openinference.Error{Kind: openinference.Internal, Message: "the answer of the model cannot be read: " + fmt.Sprintf(format, args...)}
}
