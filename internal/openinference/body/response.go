// SPDX-License-Identifier: Apache-2.0

package body

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// Response answers a request.
type Response struct {
	ModelName, ModelVersion, ID string
	Parameters                  Parameters
	Outputs                     []Input
}

// Size is how much the body takes at most, besides a little.
func (r *Response) Size() int64 {
	size := int64(4 << 10)
	for _, out := range r.Outputs {
		size += out.TextSize() + int64(len(out.Data)) + int64(64*len(out.Parameters))
	}
	return size
}

// Encode writes the outputs as JSON, or behind it in binary as far as the request wants that.
func (r *Response) Encode(binary func(output string) bool) (text []byte, raws [][]byte) {
	text = tensor.AppendString(append(make([]byte, 0, r.Size()), `{"model_name":`...), r.ModelName)
	if r.ModelVersion != "" {
		text = tensor.AppendString(append(text, `,"model_version":`...), r.ModelVersion)
	}
	if r.ID != "" {
		text = tensor.AppendString(append(text, `,"id":`...), r.ID)
	}
	if len(r.Parameters) > 0 {
		text = r.Parameters.append(append(text, `,"parameters":`...))
	}
	text = append(text, `,"outputs":[`...)
	for i, out := range r.Outputs {
		if i > 0 {
			text = append(text, ',')
		}
		if binary(out.Name) {
			raw := out.Raw()
			raws = append(raws, raw)
			text = append(appendHead(text, out.Tensor, with(out.Parameters, binaryDataSize, int64(len(raw)))), '}')
			continue
		}
		text = out.appendData(text)
	}
	return append(text, "]}"...), raws
}

// appendData writes an output with its values. Those that are no text are in base64, and a parameter says so.
func (out *Input) appendData(text []byte) []byte {
	t, parameters := out.Tensor, out.Parameters
	if t.Type == tensor.Bytes && (parameters.base64() || slices.ContainsFunc(t.Strings, func(s string) bool { return !utf8.ValidString(s) })) {
		coded := *t
		coded.Strings = make([]string, len(t.Strings))
		for i, s := range t.Strings {
			coded.Strings[i] = base64.StdEncoding.EncodeToString([]byte(s))
		}
		t = &coded
		parameters = with(parameters, "content_type", "base64")
	}
	return append(t.AppendFlat(append(appendHead(text, t, parameters), `,"data":`...)), '}')
}

func with(p Parameters, name string, value any) Parameters {
	out := maps.Clone(p)
	if out == nil {
		out = Parameters{}
	}
	out[name] = value
	return out
}

// appendHead writes everything of an output but its values.
func appendHead(text []byte, t *tensor.Tensor, p Parameters) []byte {
	text = tensor.AppendString(append(text, `{"name":`...), t.Name)
	text = append(append(append(text, `,"datatype":"`...), t.Type...), `","shape":[`...)
	for i, d := range t.Shape {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, d, 10)
	}
	text = append(text, ']')
	if len(p) > 0 {
		text = p.append(append(text, `,"parameters":`...))
	}
	return text
}
