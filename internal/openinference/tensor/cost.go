// SPDX-License-Identifier: Apache-2.0

package tensor

import (
	"bytes"
	"encoding/binary"
)

// A string in a slice takes its header, another one while the slice grows, and its rounded place.
const perString = 56

// TextCost is how much memory Parse takes at most for a text.
func TextCost(t Type, text []byte) int64 {
	if t == Bytes {
		return int64(bytes.Count(text, []byte{','})+1)*perString + 2*int64(len(text))
	}
	return elements(text) * int64(t.Size())
}

// elements is how many values a text has at most.
func elements(text []byte) int64 {
	return int64(min(len(text)/2+1, bytes.Count(text, []byte{','})+1))
}

// RawCost is how much memory SetRaw takes at most.
func RawCost(t Type, raw []byte) int64 {
	if t != Bytes {
		return 0
	}
	count := int64(0)
	for rest := raw; len(rest) >= 4; count++ {
		n := binary.LittleEndian.Uint32(rest)
		if rest = rest[4:]; uint64(n) > uint64(len(rest)) {
			break
		}
		rest = rest[n:]
	}
	return count*perString + int64(len(raw))
}

// widths is how long a value is in JSON at most, with the comma after it.
var widths = map[Type]int{Bool: 6, Uint8: 4, Int8: 5, Uint16: 6, Int16: 7, Uint32: 11, Int32: 12, Uint64: 21, Int64: 21, FP16: 16, BF16: 16, FP32: 16, FP64: 25}

// TextSize is how long the values are in JSON: at most for numbers, about for strings.
func (t *Tensor) TextSize() int64 {
	size := int64(2)
	if t.Type == Bytes {
		for _, s := range t.Strings {
			size += int64(3*len(s) + 16)
		}
		return size
	}
	brackets := 0
	if n := len(t.Shape); n > 1 && t.Shape[n-1] < 8 {
		brackets = 3 * (n - 1)
	}
	return size + int64(t.Len())*int64(widths[t.Type]+brackets)
}
