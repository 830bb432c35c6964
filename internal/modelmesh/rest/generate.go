// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/modelplane/modelplane/internal/openinference"
	"github.com/modelplane/modelplane/internal/openinference/body"
	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// generate answers POST /v2/models/NAME/generate and generate_stream: an object whose members are inputs of the model by
// their names, and parameters. Types and dimensions are the model's, so that a client of a language model writes a text
// and gets one.
func (p *Proxy) generate(w http.ResponseWriter, r *http.Request, streamed bool) {
	share := p.budget.Share()
	defer share.Release()
	text, err := read(r, share)
	if err != nil {
		fail(w, err)
		return
	}
	name, version := r.PathValue("model"), r.PathValue("version")
	ctx, cancel, err := call(r, name)
	if err != nil {
		fail(w, err)
		return
	}
	defer cancel()
	message, err := p.generation(ctx, text, name, version, share)
	if err != nil {
		fail(w, err)
		return
	}
	if streamed {
		p.stream(ctx, w, message, flat)
		return
	}
	answer, err := p.mesh.ModelInfer(ctx, message)
	if err == nil {
		err = share.Grow(3 * int64(proto.Size(answer)))
	}
	var out *body.Response
	if err == nil {
		out, err = fromMessage(answer, name)
	}
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = p.write(w, flat(out)) // the client may be gone
}

// generation makes a message of what a client wants to have generated.
func (p *Proxy) generation(ctx context.Context, text []byte, name, version string, share *openinference.Share) (*pb.ModelInferRequest, error) {
	given, err := body.DecodeMembers(text)
	if err != nil {
		return nil, err
	}
	model, err := p.mesh.ModelMetadata(ctx, &pb.ModelMetadataRequest{Name: name, Version: version})
	if err != nil {
		return nil, err
	}
	request := &body.Request{Parameters: given.Parameters}
	for _, in := range model.GetInputs() {
		data, ok := given.Members[in.GetName()]
		if !ok {
			continue
		}
		delete(given.Members, in.GetName())
		t, err := oneOf(in, data, share.Grow)
		if err != nil {
			return nil, err
		}
		request.Inputs = append(request.Inputs, body.Input{Tensor: t})
	}
	if len(request.Inputs) == 0 {
		return nil, openinference.Invalidf("the request has none of the model's inputs; it takes %s", inputNames(model))
	}
	if err := given.IntoParameters(); err != nil {
		return nil, err
	}
	request.Parameters = given.Parameters
	message := toMessage(request, name, version)
	return message, p.fits(message, share)
}

func inputNames(model *pb.ModelMetadataResponse) string {
	names := make([]string, len(model.GetInputs()))
	for i, in := range model.GetInputs() {
		names[i] = in.GetName()
	}
	text, err := json.Marshal(names)
	if err != nil {
		return ""
	}
	return string(text)
}

// oneOf makes a tensor of a value or a list of values, as long as the last dimension of the input; the others are 1.
func oneOf(in *pb.ModelMetadataResponse_TensorMetadata, data []byte, grow body.Grower) (*tensor.Tensor, error) {
	kind := tensor.Type(in.GetDatatype())
	if !kind.Known() {
		return nil, broken("input %q has the unknown datatype %q", in.GetName(), kind)
	}
	if err := grow(tensor.TextCost(kind, data)); err != nil {
		return nil, err
	}
	t, err := tensor.Parse(kind, data)
	if err != nil {
		return nil, openinference.Invalidf("input %q: %v", in.GetName(), err)
	}
	t.Name = in.GetName()
	if len(t.Shape) <= 1 {
		shape := slices.Repeat([]int64{1}, max(len(in.GetShape()), 1))
		shape[len(shape)-1] = int64(t.Len())
		t.Shape = shape
	}
	return t, nil
}

// flat writes outputs as members by their names: a single value as itself, others as a list.
func flat(r *body.Response) []byte {
	text := tensor.AppendString(append([]byte(nil), `{"model_name":`...), r.ModelName)
	text = tensor.AppendString(append(text, `,"model_version":`...), r.ModelVersion)
	for _, out := range r.Outputs {
		text = append(tensor.AppendString(append(text, ','), out.Name), ':')
		if out.Len() == 1 {
			single := *out.Tensor
			single.Shape = nil
			text = single.AppendNested(text)
		} else {
			text = out.AppendFlat(text)
		}
	}
	return append(text, '}')
}
