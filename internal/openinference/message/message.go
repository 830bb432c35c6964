// SPDX-License-Identifier: Apache-2.0

// Package message turns tensors into the typed contents of the protocol's gRPC messages and back. It knows no transport.
package message

import (
	"encoding/binary"
	"fmt"
	"math"

	pb "github.com/modelplane/modelplane/internal/openinference/inferencepb"
	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// Typed says whether there are typed contents for a type. Others travel raw, and then all tensors of a message do: the
// protocol has both or neither.
func Typed(t tensor.Type) bool { return t != tensor.FP16 && t != tensor.BF16 }

// Fill copies typed contents. Narrow integers travel in wider fields and must fit.
func Fill(t *tensor.Tensor, c *pb.InferTensorContents) error {
	count := max(len(c.GetBoolContents()), len(c.GetIntContents()), len(c.GetUintContents()), len(c.GetInt64Contents()),
		len(c.GetUint64Contents()), len(c.GetFp32Contents()), len(c.GetFp64Contents()))
	t.Data = make([]byte, 0, count*t.Type.Size())
	switch t.Type {
	case tensor.Bool:
		for _, b := range c.GetBoolContents() {
			t.Data = append(t.Data, oneIf(b))
		}
	case tensor.Int8, tensor.Int16, tensor.Int32:
		for _, v := range c.GetIntContents() {
			if shift := 32 - 8*t.Type.Size(); v<<shift>>shift != v {
				return fmt.Errorf("%d is not a value of type %s", v, t.Type)
			}
			t.Data = narrow(t.Data, t.Type.Size(), uint32(v))
		}
	case tensor.Uint8, tensor.Uint16, tensor.Uint32:
		for _, v := range c.GetUintContents() {
			if shift := 32 - 8*t.Type.Size(); v<<shift>>shift != v {
				return fmt.Errorf("%d is not a value of type %s", v, t.Type)
			}
			t.Data = narrow(t.Data, t.Type.Size(), v)
		}
	case tensor.Int64:
		for _, v := range c.GetInt64Contents() {
			t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(v))
		}
	case tensor.Uint64:
		for _, v := range c.GetUint64Contents() {
			t.Data = binary.LittleEndian.AppendUint64(t.Data, v)
		}
	case tensor.FP32:
		for _, v := range c.GetFp32Contents() {
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
		}
	case tensor.FP64:
		for _, v := range c.GetFp64Contents() {
			t.Data = binary.LittleEndian.AppendUint64(t.Data, math.Float64bits(v))
		}
	case tensor.Bytes:
		for _, v := range c.GetBytesContents() {
			t.Strings = append(t.Strings, string(v))
		}
	default:
		return fmt.Errorf("there are no typed contents for %s; send raw_input_contents", t.Type)
	}
	return nil
}

func oneIf(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func narrow(data []byte, size int, v uint32) []byte {
	switch size {
	case 1:
		return append(data, byte(v))
	case 2:
		return binary.LittleEndian.AppendUint16(data, uint16(v))
	}
	return binary.LittleEndian.AppendUint32(data, v)
}

// Contents are the typed contents of a tensor whose type has them.
func Contents(t *tensor.Tensor) *pb.InferTensorContents {
	c := &pb.InferTensorContents{}
	le := binary.LittleEndian
	for i := range t.Len() {
		switch t.Type {
		case tensor.Bool:
			c.BoolContents = append(c.BoolContents, t.Data[i] != 0)
		case tensor.Int8:
			c.IntContents = append(c.IntContents, int32(int8(t.Data[i])))
		case tensor.Int16:
			c.IntContents = append(c.IntContents, int32(int16(le.Uint16(t.Data[2*i:]))))
		case tensor.Int32:
			c.IntContents = append(c.IntContents, int32(le.Uint32(t.Data[4*i:])))
		case tensor.Uint8:
			c.UintContents = append(c.UintContents, uint32(t.Data[i]))
		case tensor.Uint16:
			c.UintContents = append(c.UintContents, uint32(le.Uint16(t.Data[2*i:])))
		case tensor.Uint32:
			c.UintContents = append(c.UintContents, le.Uint32(t.Data[4*i:]))
		case tensor.Int64:
			c.Int64Contents = append(c.Int64Contents, int64(le.Uint64(t.Data[8*i:])))
		case tensor.Uint64:
			c.Uint64Contents = append(c.Uint64Contents, le.Uint64(t.Data[8*i:]))
		case tensor.FP32:
			c.Fp32Contents = append(c.Fp32Contents, math.Float32frombits(le.Uint32(t.Data[4*i:])))
		case tensor.FP64:
			c.Fp64Contents = append(c.Fp64Contents, math.Float64frombits(le.Uint64(t.Data[8*i:])))
		case tensor.Bytes:
			c.BytesContents = append(c.BytesContents, []byte(t.Strings[i]))
		}
	}
	return c
}
