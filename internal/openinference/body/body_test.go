// SPDX-License-Identifier: Apache-2.0

package body

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/modelplane/modelplane/internal/openinference"
)

// free is a budget without end.
func free(int64) error { return nil }

func TestDecodeBinary(t *testing.T) {
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
		{"size that is no number", input(`,"parameters":{"binary_data_size":"2"}`), "ab", "", "binary_data_size is 2"},
		{"data left", input(`,"parameters":{"binary_data_size":2}`), "abc", "", "1 bytes of binary data that belong to no input"},
		{"too little", input(`,"parameters":{"binary_data_size":1}`), "a", "", "there are 1 values, shape [2] needs 2"},
		{"both", input(`,"data":[1,2],"parameters":{"binary_data_size":2}`), "ab", "", "both data and binary_data_size"},
	} {
		header := test.header
		if header == "" {
			header = strconv.Itoa(len(test.head))
		}
		request, err := Decode([]byte(test.head+test.data), header, free)
		if test.want == "" {
			if err != nil || string(request.Inputs[0].Data) != test.data || !request.Binary || len(request.Inputs[0].Parameters) > 0 {
				t.Errorf("%s: %v, %v", test.name, request, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || openinference.KindOf(err) != openinference.Invalid {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

// TestBudgetIsAsked: nothing is made in proportion to a request before somebody agreed.
func TestBudgetIsAsked(t *testing.T) {
	busy := func(int64) error { return &openinference.Error{Kind: openinference.Busy, Message: "full"} }
	for _, text := range []string{
		`{"inputs":[{"name":"x","datatype":"INT8","shape":[2],"data":[1,2]}]}`,
		`{"inputs":[{"name":"x","datatype":"INT8","shape":[0],"parameters":{"binary_data_size":0}}]}`,
	} {
		if _, err := Decode([]byte(text), "", busy); openinference.KindOf(err) != openinference.Busy {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestParametersAreFew: little text makes much of parameters, in whatever set they are.
func TestParametersAreFew(t *testing.T) {
	input := `{"name":"x","datatype":"INT8","shape":[1],"data":[1],"parameters":{"a":1` + strings.Repeat(`,"a":1`, 99) + `}}`
	text := `{"inputs":[` + input + strings.Repeat(","+input, 10) + `]}`
	if _, err := Decode([]byte(text), "", free); openinference.KindOf(err) != openinference.TooLarge || !strings.Contains(err.Error(), "1024 parameters") {
		t.Errorf("%v", err)
	}
	for text, want := range map[string]string{
		`{"parameters":1}`: "parameters must be an object",
		`{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1],"parameters":{"a":{}}}]}`:          `input "x": parameter "a" is a list or an object`,
		`{"inputs":[{"datatype":"INT8","shape":[1],"data":[1]}],"outputs":[{"name":"y","parameters":[1]}]}`: `output "y": parameters must be an object`,
	} {
		if _, err := Decode([]byte(text), "", free); openinference.KindOf(err) != openinference.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestMembers(t *testing.T) {
	m, err := DecodeMembers([]byte(`{"a": "x", "parameters": {"b": 1, "c": [1]}}`))
	if err != nil || len(m.Members) != 3 || string(m.Members["a"]) != `"x"` {
		t.Fatalf("%v, %v", m, err)
	}
	delete(m.Members, "c")
	if err := m.IntoParameters(); err != nil || m.Parameters["a"] != "x" || m.Parameters["b"] != int64(1) {
		t.Errorf("%v, %v", m.Parameters, err)
	}
}

// FuzzDecode looks for requests that end the server, or give tensors that do not hold what they say.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}],"outputs":[{"name":"x","parameters":{"binary_data":true}}]}`,
		`{"id":"a","parameters":{"a":1,"b":1.5,"c":"d","e":true,"f":null,"g":18446744073709551615},"inputs":[{"name":"x","datatype":"FP16","shape":[1,1],"data":[[1]]}]}`,
		`{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":5}}]}` + "\x01\x00\x00\x00a",
		`{"inputs":[{"name":"x","datatype":"BYTES","shape":[2],"parameters":{"content_type":"base64"},"data":["/wA=","YQ=="]}]}`,
		`{"inputs":[{"name":"x","datatype":"INT8","shape":[9223372036854775807,2],"data":[]}]}`,
		`{"text_input":"a","parameters":{"n":1}}`,
	} {
		f.Add([]byte(seed), "")
		f.Add([]byte(seed), "89")
	}
	f.Fuzz(func(t *testing.T, text []byte, header string) {
		if m, err := DecodeMembers(text); err == nil {
			_ = m.IntoParameters() // it must not end the process
		}
		request, err := Decode(text, header, free)
		if err != nil {
			return
		}
		answer := &Response{ModelName: "m", ID: request.ID, Parameters: request.Parameters, Outputs: request.Inputs}
		head, raws := answer.Encode(request.BinaryOutput)
		if !json.Valid(head) {
			t.Fatalf("the answer is no JSON: %q", head)
		}
		wanted := 0
		for _, in := range request.Inputs {
			if request.BinaryOutput(in.Name) {
				wanted++
			}
		}
		if len(raws) != wanted {
			t.Fatalf("%d of %d outputs are binary", len(raws), wanted)
		}
	})
}
