// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

var types = map[ort.TensorElementDataType]tensor.Type{
	ort.TensorElementDataTypeBool:     tensor.Bool,
	ort.TensorElementDataTypeUint8:    tensor.Uint8,
	ort.TensorElementDataTypeUint16:   tensor.Uint16,
	ort.TensorElementDataTypeUint32:   tensor.Uint32,
	ort.TensorElementDataTypeUint64:   tensor.Uint64,
	ort.TensorElementDataTypeInt8:     tensor.Int8,
	ort.TensorElementDataTypeInt16:    tensor.Int16,
	ort.TensorElementDataTypeInt32:    tensor.Int32,
	ort.TensorElementDataTypeInt64:    tensor.Int64,
	ort.TensorElementDataTypeFloat16:  tensor.FP16,
	ort.TensorElementDataTypeBFloat16: tensor.BF16,
	ort.TensorElementDataTypeFloat:    tensor.FP32,
	ort.TensorElementDataTypeDouble:   tensor.FP64,
	ort.TensorElementDataTypeString:   tensor.Bytes,
}

var elements = func() map[tensor.Type]ort.TensorElementDataType {
	back := map[tensor.Type]ort.TensorElementDataType{}
	for element, t := range types {
		back[t] = element
	}
	return back
}()

// newValue shares the tensor's data with ONNX Runtime, which reads it until the value is destroyed.
func newValue(t *tensor.Tensor) (ort.Value, error) {
	shape := ort.Shape(t.Shape)
	switch {
	case t.Type == tensor.Bytes:
		return newStrings(t)
	case len(shape) == 0:
		return newScalar(t)
	case len(t.Data) == 0:
		return newEmpty(t)
	}
	v, err := ort.NewCustomDataTensor(shape, aligned(t.Data), elements[t.Type])
	if err != nil {
		return nil, err
	}
	return v, nil
}

// aligned copies data that does not begin where the processor wants numbers to begin, such as the tail of a body.
func aligned(data []byte) []byte {
	if uintptr(unsafe.Pointer(&data[0]))%8 == 0 {
		return data
	}
	return slices.Clone(data)
}

func newStrings(t *tensor.Tensor) (ort.Value, error) {
	if len(t.Shape) == 0 {
		return nil, fmt.Errorf("a %s without dimensions is not supported; send shape [1]", t.Type)
	}
	v, err := ort.NewStringTensor(ort.Shape(t.Shape))
	if err != nil {
		return nil, err
	}
	if err := v.SetContents(t.Strings); err != nil {
		_ = v.Destroy()
		return nil, err
	}
	return v, nil
}

// numbers are the types that the binding has Go types for.
type numbers interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64
}

// newScalar makes a value without dimensions.
func newScalar(t *tensor.Tensor) (ort.Value, error) {
	switch t.Type {
	case tensor.Bool:
		return scalar[bool](t.Data)
	case tensor.Int8:
		return scalar[int8](t.Data)
	case tensor.Int16:
		return scalar[int16](t.Data)
	case tensor.Int32:
		return scalar[int32](t.Data)
	case tensor.Int64:
		return scalar[int64](t.Data)
	case tensor.Uint8:
		return scalar[uint8](t.Data)
	case tensor.Uint16:
		return scalar[uint16](t.Data)
	case tensor.Uint32:
		return scalar[uint32](t.Data)
	case tensor.Uint64:
		return scalar[uint64](t.Data)
	case tensor.FP32:
		return scalar[float32](t.Data)
	case tensor.FP64:
		return scalar[float64](t.Data)
	}
	return nil, fmt.Errorf("a %s without dimensions is not supported; use shape [1]", t.Type)
}

func scalar[T numbers](data []byte) (ort.Value, error) {
	var one T
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&one)), unsafe.Sizeof(one)), data)
	v, err := ort.NewScalar(one)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// newEmpty makes a value with no elements, for which there is no data to share.
func newEmpty(t *tensor.Tensor) (ort.Value, error) {
	switch t.Type {
	case tensor.Bool:
		return empty[bool](t.Shape)
	case tensor.Int8:
		return empty[int8](t.Shape)
	case tensor.Int16:
		return empty[int16](t.Shape)
	case tensor.Int32:
		return empty[int32](t.Shape)
	case tensor.Int64:
		return empty[int64](t.Shape)
	case tensor.Uint8:
		return empty[uint8](t.Shape)
	case tensor.Uint16:
		return empty[uint16](t.Shape)
	case tensor.Uint32:
		return empty[uint32](t.Shape)
	case tensor.Uint64:
		return empty[uint64](t.Shape)
	case tensor.FP32:
		return empty[float32](t.Shape)
	case tensor.FP64:
		return empty[float64](t.Shape)
	}
	return nil, fmt.Errorf("a %s without elements is not supported", t.Type)
}

func empty[T numbers](shape []int64) (ort.Value, error) {
	v, err := ort.NewEmptyTensor[T](ort.Shape(shape))
	if err != nil {
		return nil, err
	}
	return v, nil
}

// readValue takes over the data of an output. Values of outputs are in Go's memory already, so nothing is copied.
func readValue(out *tensor.Tensor, v ort.Value) (err error) {
	switch v := v.(type) {
	case *ort.StringTensor:
		out.Strings, err = v.GetContents()
	case *ort.CustomDataTensor:
		out.Data = v.GetData()
	case interface{ GetData() []bool }:
		out.Data = raw(v.GetData())
	case interface{ GetData() []int8 }:
		out.Data = raw(v.GetData())
	case interface{ GetData() []int16 }:
		out.Data = raw(v.GetData())
	case interface{ GetData() []int32 }:
		out.Data = raw(v.GetData())
	case interface{ GetData() []int64 }:
		out.Data = raw(v.GetData())
	case interface{ GetData() []uint16 }:
		out.Data = raw(v.GetData())
	case interface{ GetData() []uint32 }:
		out.Data = raw(v.GetData())
	case interface{ GetData() []uint64 }:
		out.Data = raw(v.GetData())
	case interface{ GetData() []uint8 }:
		out.Data = v.GetData()
	case interface{ GetData() []float32 }:
		out.Data = raw(v.GetData())
	case interface{ GetData() []float64 }:
		out.Data = raw(v.GetData())
	default:
		return readScalar(out, v)
	}
	return err
}

// readScalar copies a value without dimensions.
func readScalar(out *tensor.Tensor, v ort.Value) error {
	switch v := v.(type) {
	case *ort.Scalar[bool]:
		out.Data = raw([]bool{v.GetData()})
	case *ort.Scalar[int8]:
		out.Data = raw([]int8{v.GetData()})
	case *ort.Scalar[int16]:
		out.Data = raw([]int16{v.GetData()})
	case *ort.Scalar[int32]:
		out.Data = raw([]int32{v.GetData()})
	case *ort.Scalar[int64]:
		out.Data = raw([]int64{v.GetData()})
	case *ort.Scalar[uint8]:
		out.Data = raw([]uint8{v.GetData()})
	case *ort.Scalar[uint16]:
		out.Data = raw([]uint16{v.GetData()})
	case *ort.Scalar[uint32]:
		out.Data = raw([]uint32{v.GetData()})
	case *ort.Scalar[uint64]:
		out.Data = raw([]uint64{v.GetData()})
	case *ort.Scalar[float32]:
		out.Data = raw([]float32{v.GetData()})
	case *ort.Scalar[float64]:
		out.Data = raw([]float64{v.GetData()})
	default:
		return fmt.Errorf("a value of type %T is not supported", v)
	}
	return nil
}

// raw looks at numbers as bytes. The processors that ONNX Runtime is built for are little endian, as the protocol is.
func raw[T numbers](data []T) []byte {
	if len(data) == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), len(data)*int(unsafe.Sizeof(data[0])))
}

// readMaps turns a list of class to probability into rows with one column for each class, in the order of the classes.
func readMaps(out *tensor.Tensor, v ort.Value) error {
	rows := []ort.Value{v}
	if list, ok := v.(*ort.Sequence); ok {
		var err error
		if rows, err = list.GetValues(); err != nil {
			return err
		}
	}
	out.Shape = []int64{int64(len(rows)), 0}
	for _, row := range rows {
		m, ok := row.(*ort.Map)
		if !ok {
			return fmt.Errorf("it is a list of %s; only lists of probabilities by class can be answered", row.GetONNXType())
		}
		_, values, err := m.GetKeysAndValues()
		if err != nil {
			return err
		}
		numbers, ok := values.(*ort.Tensor[float32])
		if !ok {
			return fmt.Errorf("it lists %T; only FP32 can be answered", values)
		}
		if width := int64(len(numbers.GetData())); out.Shape[1] != width && out.Data != nil {
			return fmt.Errorf("its rows differ in length: %d and %d", out.Shape[1], width)
		}
		out.Shape[1] = int64(len(numbers.GetData()))
		out.Data = append(out.Data, raw(numbers.GetData())...)
	}
	return nil
}
