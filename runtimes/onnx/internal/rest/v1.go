// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	v2 "github.com/modelplane/modelplane/internal/openinference/body"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
)

// predict answers POST /v1/models/NAME:predict.
func (s *server) predict(r *http.Request, share *inference.Share) (*answer, error) {
	name, verb, ok := cutLast(r.PathValue("action"), ":")
	if !ok || verb != "predict" {
		return nil, &inference.Error{Kind: inference.NotFound, Message: "the path must be /v1/models/" + name + ":predict"}
	}
	body, err := s.body(r, share, name)
	if err != nil {
		return nil, err
	}
	m, done, err := s.service.Use(name, "")
	if err != nil {
		return nil, err
	}
	defer done()
	inputs, err := decodeV1(body, m.Inputs, share.Grow)
	if err != nil {
		return nil, err
	}
	outputs, err := m.Infer(r.Context(), inputs, nil)
	if err != nil {
		return nil, err
	}
	if err := share.Grow(answerSize(outputs)); err != nil {
		return nil, err
	}
	return &answer{kind: "application/json", parts: [][]byte{encodeV1(outputs)}}, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// decodeV1 reads instances, one for each row: plain values when the model has one input, objects by the names of the
// inputs otherwise. The types are those of the model.
func decodeV1(body []byte, specs []tensor.Spec, grow grower) ([]*tensor.Tensor, error) {
	var request struct {
		Instances part `json:"instances"`
		Inputs    part `json:"inputs"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, inference.Invalidf("the request is not JSON of the v1 protocol: %v", err)
	}
	rows, key := request.Instances, "instances"
	if rows == nil {
		rows, key = request.Inputs, "inputs"
	}
	if rows == nil {
		return nil, inference.Invalidf(`"instances" is missing: a list with one entry for each row`)
	}
	if named(rows) {
		return byName(rows, key, specs, grow)
	}
	if len(specs) != 1 {
		return nil, inference.Invalidf("the model has %d inputs; each entry of %q must be an object by their names", len(specs), key)
	}
	t, err := parseRows(&specs[0], rows, grow)
	if err != nil {
		return nil, err
	}
	return []*tensor.Tensor{t}, nil
}

// named says whether the first instance is an object of inputs. {"b64": …} is a value.
func named(rows []byte) bool {
	rest := bytes.TrimLeft(bytes.TrimPrefix(bytes.TrimSpace(rows), []byte("[")), " \t\r\n")
	if len(rest) == 0 || rest[0] != '{' {
		return false
	}
	key, _, _ := bytes.Cut(rest[1:], []byte(":"))
	return string(bytes.TrimSpace(key)) != `"b64"`
}

func parseRows(spec *tensor.Spec, rows []byte, grow grower) (*tensor.Tensor, error) {
	if err := grow(tensor.TextCost(spec.Type, rows)); err != nil {
		return nil, err
	}
	t, err := tensor.Parse(spec.Type, rows)
	if err != nil {
		return nil, inference.Invalidf("input %q: %v", spec.Name, err)
	}
	if len(t.Shape) == 0 {
		return nil, inference.Invalidf("input %q: a list with one entry for each row is needed", spec.Name)
	}
	t.Name = spec.Name
	return t, nil
}

// byName puts the values of each input, which are spread over the rows, into one list again. It looks at one row after the
// other, because a row in Go's maps takes a hundred times what it takes in JSON.
func byName(rows []byte, key string, specs []tensor.Spec, grow grower) ([]*tensor.Tensor, error) {
	if err := grow(3 * int64(len(rows))); err != nil { // the lists, and what they outgrow
		return nil, err
	}
	lists := make([][]byte, len(specs))
	count := 0
	err := v2.Items(rows, func(row []byte) error {
		if err := addRow(lists, row, count, key, specs); err != nil {
			return err
		}
		count++
		return nil
	})
	if err != nil {
		return nil, err
	}
	inputs := make([]*tensor.Tensor, len(specs))
	for i := range specs {
		if inputs[i], err = parseRows(&specs[i], append(lists[i], ']'), grow); err != nil {
			return nil, err
		}
	}
	return inputs, nil
}

// addRow adds the values of one row to the lists.
func addRow(lists [][]byte, row []byte, at int, key string, specs []tensor.Spec) error {
	members := 0
	if err := v2.Items(row, func([]byte) error { members++; return nil }); err != nil {
		return err
	}
	if members > len(specs) && row[0] == '{' {
		return inference.Invalidf("entry %d of %q has %d members, the model has %d inputs", at, key, members, len(specs))
	}
	var values map[string]part
	if err := json.Unmarshal(row, &values); err != nil {
		return inference.Invalidf("the entries of %q must all be objects by the names of the inputs: %v", key, err)
	}
	for i := range specs {
		value, ok := values[specs[i].Name]
		if !ok {
			return inference.Invalidf("input %q is missing in entry %d of %q", specs[i].Name, at, key)
		}
		separator := byte(',')
		if at == 0 {
			separator = '['
		}
		lists[i] = append(append(lists[i], separator), value...)
	}
	return nil
}

// encodeV1 writes one prediction for each row: its value when the model has one output, an object by the names of the
// outputs otherwise. Outputs that do not go by rows are written as they are.
func encodeV1(outputs []*tensor.Tensor) []byte {
	text := append(make([]byte, 0, answerSize(outputs)), `{"predictions":`...)
	switch rows := outputs[0].Rows(); {
	case len(outputs) == 1:
		text = outputs[0].AppendNested(text)
	case !sameRows(outputs):
		text = appendObject(text, outputs)
	default:
		text = append(text, '[')
		for row := range rows {
			if row > 0 {
				text = append(text, ',')
			}
			one := make([]*tensor.Tensor, len(outputs))
			for i, t := range outputs {
				one[i] = t.Slice(row, row+1)
				one[i].Shape = one[i].Shape[1:]
			}
			text = appendObject(text, one)
		}
		text = append(text, ']')
	}
	return append(text, '}')
}

func sameRows(outputs []*tensor.Tensor) bool {
	for _, t := range outputs {
		if len(t.Shape) == 0 || t.Rows() != outputs[0].Rows() {
			return false
		}
	}
	return true
}

func appendObject(text []byte, outputs []*tensor.Tensor) []byte {
	text = append(text, '{')
	for i, t := range outputs {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(tensor.AppendString(text, t.Name), ':')
		text = t.AppendNested(text)
	}
	return append(text, '}')
}
