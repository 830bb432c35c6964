// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"reflect"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// Run answers one set of inputs, which must be in the order of Inputs and fit them. The outputs come in the order of
// Outputs.
func (m *Model) Run(inputs []*tensor.Tensor) ([]*tensor.Tensor, error) {
	given := make([]ort.Value, 0, len(inputs))
	defer func() { destroy(given) }()
	for _, t := range inputs {
		v, err := newValue(t)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", t.Name, err)
		}
		given = append(given, v)
	}
	made, err := m.call(given, inputs)
	defer func() { destroy(made) }()
	if err != nil {
		return nil, fmt.Errorf("the model failed: %w", err)
	}
	outputs := make([]*tensor.Tensor, len(made))
	for i, v := range made {
		if outputs[i], err = m.read(i, v); err != nil {
			return nil, fmt.Errorf("output %q: %w", m.Outputs[i].Name, err)
		}
	}
	return outputs, nil
}

// call runs the model. When the binding stops at an output without dimensions, which it cannot make itself, the run is
// repeated with room for a single value there; this happens once for each such output in the life of a model.
func (m *Model) call(given []ort.Value, inputs []*tensor.Tensor) ([]ort.Value, error) {
	for tries := 0; ; tries++ {
		made, err := m.room(inputs)
		if err == nil {
			err = m.session.Run(given, made)
		}
		if !errors.Is(err, ort.ZeroShapeLengthError) || tries > len(m.outputs) || !m.markScalar(made) {
			return made, err
		}
		destroy(made)
	}
}

// markScalar notes which output stopped the binding: the first one without a value.
func (m *Model) markScalar(made []ort.Value) bool {
	for i, v := range made {
		if missing(v) {
			m.outputs[i].scalar.Store(m.Outputs[i].AnyShape)
			return m.Outputs[i].AnyShape
		}
	}
	return false
}

// room makes the values that ONNX Runtime cannot make itself; the others stay nil.
func (m *Model) room(inputs []*tensor.Tensor) ([]ort.Value, error) {
	made := make([]ort.Value, len(m.Outputs))
	for i, o := range m.outputs {
		spec := m.Outputs[i]
		var err error
		switch {
		case o.scalar.Load():
			made[i], err = newScalar(&tensor.Tensor{Type: spec.Type, Data: make([]byte, spec.Type.Size())})
		case spec.Type == tensor.FP16 || spec.Type == tensor.BF16:
			made[i], err = half(&spec, o.element, inputs[0].Rows())
		}
		if err != nil {
			return made, fmt.Errorf("output %q: %w", spec.Name, err)
		}
	}
	return made, nil
}

func half(spec *tensor.Spec, element ort.TensorElementDataType, rows int64) (ort.Value, error) {
	shape := ort.Shape(append([]int64(nil), spec.Shape...))
	if shape[0] < 0 {
		shape[0] = rows
	}
	v, err := ort.NewCustomDataTensor(shape, make([]byte, 2*shape.FlattenedSize()), element)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// missing also knows the typed nil pointers that the binding leaves when it cannot make a value.
func missing(v ort.Value) bool { return v == nil || reflect.ValueOf(v).IsNil() }

func destroy(values []ort.Value) {
	for _, v := range values {
		if !missing(v) {
			// Only values that were never made fail to be destroyed.
			_ = v.Destroy()
		}
	}
}

func (m *Model) read(i int, v ort.Value) (*tensor.Tensor, error) {
	out := &tensor.Tensor{Name: m.Outputs[i].Name, Type: m.Outputs[i].Type}
	if m.outputs[i].listed {
		return out, readMaps(out, v)
	}
	out.Shape = []int64(v.GetShape())
	return out, readValue(out, v)
}
