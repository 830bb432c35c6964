// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"testing"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// FuzzDecode looks for requests that end the server, or give tensors that do not hold what they say.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"instances":[[1,2],[3,4]]}`, `{"instances":[{"x":[1,2],"s":"a"}]}`, `{"inputs":[{"b64":"aGk="}]}`, `{"instances":[]}`,
	} {
		f.Add([]byte(seed))
	}
	specs := []tensor.Spec{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 2}}, {Name: "s", Type: tensor.Bytes, Shape: []int64{-1}}}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, some := range [][]tensor.Spec{specs, specs[:1], specs[1:]} {
			if inputs, err := decodeV1(body, some, free); err == nil {
				walk(t, inputs)
			}
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
