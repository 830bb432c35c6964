// SPDX-License-Identifier: Apache-2.0

package tensor

import "math"

// fp16 rounds to the nearest half-precision number, ties to even, as hardware does.
func fp16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	exp := int(bits>>23&0xff) - 127
	frac := bits & 0x7fffff
	switch {
	case exp == 128 && frac != 0:
		return sign | 0x7e00
	case exp > 15:
		return sign | 0x7c00
	case exp >= -14:
		// A carry out of the fraction goes into the exponent, which is what rounding up to the next power means.
		return sign | uint16(rounded(uint32(exp+15)<<23|frac, 13))
	case exp >= -25:
		return sign | uint16(rounded(frac|0x800000, uint(-exp-1)))
	default:
		return sign
	}
}

// rounded shifts right, to the nearest, ties to even.
func rounded(v uint32, shift uint) uint32 {
	half := uint32(1) << (shift - 1)
	rest := v & (half<<1 - 1)
	v >>= shift
	if rest > half || rest == half && v&1 == 1 {
		v++
	}
	return v
}

func fromFP16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h >> 10 & 0x1f)
	frac := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	default:
		f := float32(frac) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(f))
	}
}

// bf16 keeps the upper half of a float32, rounded to the nearest, ties to even.
func bf16(f float32) uint16 {
	bits := math.Float32bits(f)
	if f != f {
		return uint16(bits>>16) | 0x40
	}
	return uint16(rounded(bits, 16))
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
