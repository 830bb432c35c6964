// SPDX-License-Identifier: Apache-2.0

// Package tensor holds the values that requests, batches and models exchange, and how they are written as JSON and as
// binary data of the open inference protocol. It knows neither transport nor ONNX Runtime.
package tensor

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Type is a data type by its name in the open inference protocol.
type Type string

// The types of the protocol.
const (
	Bool   Type = "BOOL"
	Uint8  Type = "UINT8"
	Uint16 Type = "UINT16"
	Uint32 Type = "UINT32"
	Uint64 Type = "UINT64"
	Int8   Type = "INT8"
	Int16  Type = "INT16"
	Int32  Type = "INT32"
	Int64  Type = "INT64"
	FP16   Type = "FP16"
	BF16   Type = "BF16"
	FP32   Type = "FP32"
	FP64   Type = "FP64"
	Bytes  Type = "BYTES"
)

var sizes = map[Type]int{
	Bool: 1, Uint8: 1, Int8: 1, Uint16: 2, Int16: 2, FP16: 2, BF16: 2,
	Uint32: 4, Int32: 4, FP32: 4, Uint64: 8, Int64: 8, FP64: 8, Bytes: 0,
}

// Known says whether the protocol has such a type.
func (t Type) Known() bool {
	_, ok := sizes[t]
	return ok
}

// Size is how many bytes an element takes; 0 for BYTES, whose elements differ in length.
func (t Type) Size() int { return sizes[t] }

// Tensor is one named input or output. Numbers are little endian in Data, one after the other in row-major order;
// elements of BYTES are in Strings.
type Tensor struct {
	Name    string
	Type    Type
	Shape   []int64
	Data    []byte
	Strings []string
}

// Spec is what a model says of an input or output. A dimension of -1 may have any size. With AnyShape nothing is known of
// the shape.
type Spec struct {
	Name     string
	Type     Type
	Shape    []int64
	AnyShape bool
}

// maxRank is more than any operator of ONNX handles; it bounds the work for a hostile shape.
const maxRank = 16

// Count multiplies the dimensions, refusing what is negative or too large to be the shape of real data.
func Count(shape []int64) (int, error) {
	if len(shape) > maxRank {
		return 0, fmt.Errorf("shape has %d dimensions, at most %d are possible", len(shape), maxRank)
	}
	count := int64(1)
	for i, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("dimension %d of the shape is %d; it must not be negative", i, d)
		}
		if d > 0 && count > math.MaxInt32*64/d {
			return 0, fmt.Errorf("shape %v is too large", shape)
		}
		count *= d
	}
	return int(count), nil
}

// Len is the number of elements that are there.
func (t *Tensor) Len() int {
	if t.Type == Bytes {
		return len(t.Strings)
	}
	return len(t.Data) / t.Type.Size()
}

// Rows is the size of the first dimension, by which requests are put together; 0 without one.
func (t *Tensor) Rows() int64 {
	if len(t.Shape) == 0 {
		return 0
	}
	return t.Shape[0]
}

// Check compares a tensor with what the model takes, so that the client hears which tensor is wrong and how instead of
// an error from deep inside the model.
func (s *Spec) Check(t *Tensor) error {
	if t.Type != s.Type {
		return fmt.Errorf("datatype is %s, the model takes %s", t.Type, s.Type)
	}
	count, err := Count(t.Shape)
	if err != nil {
		return err
	}
	if n := t.Len(); n != count {
		return fmt.Errorf("there are %d values, shape %v needs %d", n, t.Shape, count)
	}
	if !s.fits(t.Shape) {
		return fmt.Errorf("shape is %v, the model takes %v (-1: any)", t.Shape, s.Shape)
	}
	return nil
}

func (s *Spec) fits(shape []int64) bool {
	if s.AnyShape {
		return true
	}
	return len(shape) == len(s.Shape) && !slices.ContainsFunc(indices(shape), func(i int) bool {
		return s.Shape[i] >= 0 && s.Shape[i] != shape[i]
	})
}

func indices(shape []int64) []int {
	all := make([]int, len(shape))
	for i := range all {
		all[i] = i
	}
	return all
}

// Join puts tensors of the same name, type and inner dimensions one below the other.
func Join(parts []*Tensor) (*Tensor, error) {
	first := parts[0]
	if len(first.Shape) == 0 {
		return nil, errors.New("a value without dimensions cannot be joined")
	}
	out := &Tensor{Name: first.Name, Type: first.Type, Shape: slices.Clone(first.Shape)}
	out.Shape[0] = 0
	size := 0
	for _, p := range parts {
		if p.Type != first.Type || !slices.Equal(p.Shape[1:], first.Shape[1:]) {
			return nil, fmt.Errorf("%s of %v and %s of %v cannot be joined", first.Type, first.Shape, p.Type, p.Shape)
		}
		out.Shape[0] += p.Shape[0]
		size += len(p.Data)
	}
	if first.Type != Bytes {
		out.Data = make([]byte, 0, size)
	}
	for _, p := range parts {
		out.Data = append(out.Data, p.Data...)
		out.Strings = append(out.Strings, p.Strings...)
	}
	return out, nil
}

// Slice returns the rows from begin to end. It shares the data.
func (t *Tensor) Slice(begin, end int64) *Tensor {
	out := &Tensor{Name: t.Name, Type: t.Type, Shape: slices.Clone(t.Shape)}
	out.Shape[0] = end - begin
	if t.Type == Bytes {
		width := int64(len(t.Strings)) / max(t.Shape[0], 1)
		out.Strings = t.Strings[begin*width : end*width : end*width]
		return out
	}
	width := int64(len(t.Data)) / max(t.Shape[0], 1)
	out.Data = t.Data[begin*width : end*width : end*width]
	return out
}
