// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
)

func TestDecodeV2Binary(t *testing.T) {
	input := func(extra string) string {
		return `{"inputs":[{"name":"x","datatype":"INT8","shape":[2]` + extra + `}]}`
	}
	for _, test := range []struct {
		name, head, data, header string
		want                     string // fine if empty
	}{
		{"fine", input(`,"parameters":{"binary_data_size":2}`), "ab", "", ""},
		{"header of another length", input(""), "", "1000", "header Inference-Header-Content-Length"},
		{"header that is no number", input(""), "", "x", "it must be a number"},
		{"negative header", input(""), "", "-1", "it must be a number"},
		{"size beyond the body", input(`,"parameters":{"binary_data_size":3}`), "ab", "", `input "x": binary_data_size is 3, 2 bytes`},
		{"negative size", input(`,"parameters":{"binary_data_size":-1}`), "ab", "", "binary_data_size is -1"},
		{"data left", input(`,"parameters":{"binary_data_size":1}`), "ab", "", "1 bytes of binary data that belong to no input"},
		{"both", input(`,"data":[1,2],"parameters":{"binary_data_size":2}`), "ab", "", "both data and binary_data_size"},
	} {
		header := test.header
		if header == "" {
			header = strconv.Itoa(len(test.head))
		}
		_, inputs, err := decodeV2([]byte(test.head+test.data), header, free)
		if test.want == "" {
			if err != nil || string(inputs[0].Data) != test.data {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || inference.KindOf(err) != inference.Invalid {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

// FuzzDecode looks for requests that end the server, or give tensors that do not hold what they say.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"instances":[[1,2],[3,4]]}`, `{"instances":[{"x":[1,2],"s":"a"}]}`, `{"inputs":[{"b64":"aGk="}]}`, `{"instances":[]}`,
		`{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`,
		`{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":5}}]}` + "\x01\x00\x00\x00a",
		`{"inputs":[{"name":"x","datatype":"INT8","shape":[9223372036854775807,2],"data":[]}]}`,
	} {
		f.Add([]byte(seed), "")
		f.Add([]byte(seed), "89")
	}
	specs := []tensor.Spec{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 2}}, {Name: "s", Type: tensor.Bytes, Shape: []int64{-1}}}
	f.Fuzz(func(t *testing.T, body []byte, header string) {
		for _, some := range [][]tensor.Spec{specs, specs[:1], specs[1:]} {
			if inputs, err := decodeV1(body, some, free); err == nil {
				walk(t, inputs)
			}
		}
		request, inputs, err := decodeV2(body, header, free)
		if err == nil {
			walk(t, inputs)
			encodeV2("m", request, nil)
		}
	})
}

// walk touches every element of the tensors that pass the check every request has to pass.
func walk(t *testing.T, inputs []*tensor.Tensor) {
	for _, in := range inputs {
		spec := tensor.Spec{Type: in.Type, AnyShape: true}
		if spec.Check(in) != nil {
			continue
		}
		if len(in.AppendNested(nil)) == 0 || len(in.AppendFlat(nil)) == 0 {
			t.Fatal("nothing was written")
		}
	}
}

// free is a budget without end.
func free(int64) error { return nil }
