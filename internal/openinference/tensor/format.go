// SPDX-License-Identifier: Apache-2.0

package tensor

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// AppendFlat writes all elements as one JSON list.
func (t *Tensor) AppendFlat(to []byte) []byte {
	to = append(to, '[')
	for i := range t.Len() {
		if i > 0 {
			to = append(to, ',')
		}
		to = t.appendElement(to, i)
	}
	return append(to, ']')
}

// AppendNested writes the elements as JSON lists nested like the shape; a single value without dimensions as itself.
func (t *Tensor) AppendNested(to []byte) []byte {
	next := 0
	return t.nested(to, t.Shape, &next)
}

func (t *Tensor) nested(to []byte, shape []int64, next *int) []byte {
	if len(shape) == 0 {
		to = t.appendElement(to, *next)
		*next++
		return to
	}
	to = append(to, '[')
	for i := range shape[0] {
		if i > 0 {
			to = append(to, ',')
		}
		to = t.nested(to, shape[1:], next)
	}
	return append(to, ']')
}

func (t *Tensor) appendElement(to []byte, i int) []byte {
	switch t.Type {
	case Bool:
		return strconv.AppendBool(to, t.Data[i] != 0)
	case Uint8:
		return strconv.AppendUint(to, uint64(t.Data[i]), 10)
	case Uint16:
		return strconv.AppendUint(to, uint64(binary.LittleEndian.Uint16(t.Data[2*i:])), 10)
	case Uint32:
		return strconv.AppendUint(to, uint64(binary.LittleEndian.Uint32(t.Data[4*i:])), 10)
	case Uint64:
		return strconv.AppendUint(to, binary.LittleEndian.Uint64(t.Data[8*i:]), 10)
	case Int8:
		return strconv.AppendInt(to, int64(int8(t.Data[i])), 10)
	case Int16:
		return strconv.AppendInt(to, int64(int16(binary.LittleEndian.Uint16(t.Data[2*i:]))), 10)
	case Int32:
		return strconv.AppendInt(to, int64(int32(binary.LittleEndian.Uint32(t.Data[4*i:]))), 10)
	case Int64:
		return strconv.AppendInt(to, int64(binary.LittleEndian.Uint64(t.Data[8*i:])), 10)
	case FP16:
		return appendFloat(to, float64(fromFP16(binary.LittleEndian.Uint16(t.Data[2*i:]))), 32)
	case BF16:
		return appendFloat(to, float64(fromBF16(binary.LittleEndian.Uint16(t.Data[2*i:]))), 32)
	case FP32:
		return appendFloat(to, float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))), 32)
	case FP64:
		return appendFloat(to, math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:])), 64)
	default:
		return AppendString(to, t.Strings[i])
	}
}

// appendFloat writes null for what JSON has no number for: infinities and not-a-number.
func appendFloat(to []byte, f float64, bits int) []byte {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return append(to, "null"...)
	}
	return strconv.AppendFloat(to, f, 'g', -1, bits)
}

// AppendString writes a JSON string.
func AppendString(to []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		// Strings always marshal: what is not UTF-8 is replaced.
		panic(err)
	}
	return append(to, quoted...)
}

// Raw is the binary form of the protocol: numbers as they are, each element of BYTES after its length in four bytes.
func (t *Tensor) Raw() []byte {
	if t.Type != Bytes {
		return t.Data
	}
	size := 0
	for _, s := range t.Strings {
		size += 4 + len(s)
	}
	raw := make([]byte, 0, size)
	for _, s := range t.Strings {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(len(s)))
		raw = append(raw, s...)
	}
	return raw
}

// SetRaw takes the binary form of the protocol. Numbers are not copied.
func (t *Tensor) SetRaw(raw []byte) error {
	if t.Type != Bytes {
		if len(raw)%t.Type.Size() != 0 {
			return fmt.Errorf("%d bytes of data are not a multiple of the %d that a %s takes", len(raw), t.Type.Size(), t.Type)
		}
		t.Data = raw
		return nil
	}
	t.Strings = nil
	for len(raw) > 0 {
		if len(raw) < 4 {
			return errors.New("the binary data ends within a length")
		}
		n := binary.LittleEndian.Uint32(raw)
		if raw = raw[4:]; uint64(n) > uint64(len(raw)) {
			return fmt.Errorf("an element of %d bytes is announced, %d bytes are left", n, len(raw))
		}
		t.Strings = append(t.Strings, string(raw[:n]))
		raw = raw[n:]
	}
	return nil
}
