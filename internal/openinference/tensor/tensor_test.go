// SPDX-License-Identifier: Apache-2.0

package tensor

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRoundTrip reads values of every type and writes them again, as JSON and as binary data.
func TestRoundTrip(t *testing.T) {
	for _, test := range []struct {
		kind        Type
		in, out     string // out is in when empty
		shape       []int64
		bytesInData int
	}{
		{kind: Bool, in: "[true,false,true]", shape: []int64{3}, bytesInData: 3},
		{kind: Bool, in: "[1,0]", out: "[true,false]", shape: []int64{2}, bytesInData: 2},
		{kind: Uint8, in: "[0,255]", shape: []int64{2}, bytesInData: 2},
		{kind: Uint16, in: "[65535]", shape: []int64{1}, bytesInData: 2},
		{kind: Uint32, in: "[4294967295]", shape: []int64{1}, bytesInData: 4},
		{kind: Uint64, in: "[18446744073709551615]", shape: []int64{1}, bytesInData: 8},
		{kind: Int8, in: "[-128,127]", shape: []int64{2}, bytesInData: 2},
		{kind: Int16, in: "[-32768]", shape: []int64{1}, bytesInData: 2},
		{kind: Int32, in: "[-2147483648, 3.0, 2e3]", out: "[-2147483648,3,2000]", shape: []int64{3}, bytesInData: 12},
		{kind: Int64, in: "[-9223372036854775808]", shape: []int64{1}, bytesInData: 8},
		{kind: FP16, in: "[0.5,-2,65504,6e-8]", out: "[0.5,-2,65504,5.9604645e-08]", shape: []int64{4}, bytesInData: 8},
		{kind: FP16, in: "[1e9]", out: "[null]", shape: []int64{1}, bytesInData: 2},
		{kind: BF16, in: "[1.5,-3e38,0.1]", out: "[1.5,-3.0040553e+38,0.100097656]", shape: []int64{3}, bytesInData: 6},
		{kind: FP32, in: "[[1.5,2],[3,-4e-3]]", out: "[[1.5,2],[3,-0.004]]", shape: []int64{2, 2}, bytesInData: 16},
		{kind: FP64, in: "[[[0.1]],[[2]]]", shape: []int64{2, 1, 1}, bytesInData: 16},
		{kind: FP64, in: " 7 ", out: "7", shape: nil, bytesInData: 8},
		{kind: FP32, in: "[]", shape: []int64{0}},
		{kind: FP32, in: "[[],[]]", shape: []int64{2, 0}},
		{kind: Bytes, in: `["a","b\"c","grüße",""]`, shape: []int64{4}},
		{kind: Bytes, in: `[["x"],[{"b64":"aGk="}]]`, out: `[["x"],["hi"]]`, shape: []int64{2, 1}},
	} {
		t.Run(string(test.kind)+test.in, func(t *testing.T) {
			got, err := Parse(test.kind, []byte(test.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.shape, got.Shape); diff != "" || len(got.Data) != test.bytesInData {
				t.Errorf("%d bytes, want %d; shape (-want +got):\n%s", len(got.Data), test.bytesInData, diff)
			}
			want := test.out
			if want == "" {
				want = test.in
			}
			if text := string(got.AppendNested(nil)); text != want {
				t.Errorf("written as %s, want %s", text, want)
			}
			again := &Tensor{Type: test.kind, Shape: got.Shape}
			if err := again.SetRaw(slices.Clone(got.Raw())); err != nil {
				t.Fatal(err)
			}
			if text := string(again.AppendNested(nil)); text != want {
				t.Errorf("after binary: %s, want %s", text, want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct {
		kind     Type
		in, want string
	}{
		{FP32, "", "ends too early"},
		{FP32, "[1,2", "comma or a closing bracket"},
		{FP32, "[1 2]", "comma or a closing bracket"},
		{FP32, "[1],", "not expected after"},
		{FP32, "[[1,2],[3]]", "differ in length"},
		{FP32, "[1,[2]]", "differ in length"},
		{FP32, "[[1],2]", "differ in length"},
		{FP32, "[[[1]],[2]]", "differ in length"},
		{FP32, `["a"]`, "is not a value of type FP32"},
		{FP32, "[null]", `"null" is not a value`},
		{FP32, "[NaN]", `"NaN" is not a value`},
		{FP32, "[0x10]", "is not a value"},
		{FP32, "[1e39]", "is not a value"},
		{FP32, "[,]", "is not a value"},
		{Bool, "[2]", "is not a value of type BOOL"},
		{Uint8, "[256]", "is not a value of type UINT8"},
		{Uint8, "[-1]", "is not a value"},
		{Int8, "[128]", "is not a value"},
		{Int8, "[1e3]", "is not a value"},
		{Int64, "[1.5]", "is not a value"},
		{Int64, "[1e30]", "is not a value"},
		{Bytes, "[1]", "is not a string"},
		{Bytes, `["a]`, "is not a string"},
		{Bytes, `[{"x":"a"}]`, "neither a string nor"},
		{Bytes, `[{"b64":"%"}]`, "not base64"},
		{FP32, strings.Repeat("[", 100), "nested more than"},
	} {
		if _, err := Parse(test.kind, []byte(test.in)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s: %v, want %s", test.kind, test.in, err, test.want)
		}
	}
}

// TestHalf goes through all numbers of half precision, which must survive, and looks at how others are rounded.
func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		f := fromFP16(uint16(h))
		if back := fp16(f); back != uint16(h) && f == f {
			t.Fatalf("%#x is %v, which is %#x", h, f, back)
		}
		g := fromBF16(uint16(h))
		if back := bf16(g); back != uint16(h) && g == g {
			t.Fatalf("bf16 %#x is %v, which is %#x", h, g, back)
		}
	}
	for _, test := range []struct {
		in   float64
		want uint16
	}{
		{1 + 1.0/2048, 0x3c00}, {1 + 3.0/2048, 0x3c02}, {65519, 0x7bff}, {65520, 0x7c00}, {math.Inf(-1), 0xfc00},
		{math.Pow(2, -25), 0}, {math.Pow(2, -25) * 1.01, 1}, {math.Pow(2, -26), 0}, {2047.0 / 2048 * math.Pow(2, -14), 0x0400},
	} {
		if got := fp16(float32(test.in)); got != test.want {
			t.Errorf("%v becomes %#x, want %#x", test.in, got, test.want)
		}
	}
	if nan := fromFP16(fp16(float32(math.NaN()))); nan == nan {
		t.Errorf("not-a-number becomes %v", nan)
	}
}

func TestSetRawRefuses(t *testing.T) {
	for _, test := range []struct {
		kind Type
		raw  []byte
		want string
	}{
		{FP32, make([]byte, 5), "not a multiple of the 4"},
		{Bytes, []byte{1, 0}, "ends within a length"},
		{Bytes, []byte{9, 0, 0, 0, 'a'}, "9 bytes is announced, 1 bytes are left"},
		{Bytes, []byte{255, 255, 255, 255}, "4294967295 bytes is announced"},
	} {
		err := (&Tensor{Type: test.kind}).SetRaw(test.raw)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.kind, err, test.want)
		}
	}
}

func TestCheck(t *testing.T) {
	spec := Spec{Name: "x", Type: FP32, Shape: []int64{-1, 2}}
	four := make([]byte, 16)
	for _, test := range []struct {
		name string
		spec Spec
		in   Tensor
		want string // fine if empty
	}{
		{"fits", spec, Tensor{Type: FP32, Shape: []int64{2, 2}, Data: four}, ""},
		{"any shape", Spec{Type: FP32, AnyShape: true}, Tensor{Type: FP32, Shape: []int64{4}, Data: four}, ""},
		{"type", spec, Tensor{Type: Int32, Shape: []int64{2, 2}, Data: four}, "datatype is INT32, the model takes FP32"},
		{"fixed dimension", spec, Tensor{Type: FP32, Shape: []int64{1, 4}, Data: four}, "shape is [1 4], the model takes [-1 2]"},
		{"rank", spec, Tensor{Type: FP32, Shape: []int64{4}, Data: four}, "the model takes [-1 2]"},
		{"count", spec, Tensor{Type: FP32, Shape: []int64{3, 2}, Data: four}, "there are 4 values, shape [3 2] needs 6"},
		{"negative", spec, Tensor{Type: FP32, Shape: []int64{-2, -2}, Data: four}, "dimension 0 of the shape is -2"},
		{"overflow", spec, Tensor{Type: FP32, Shape: []int64{1 << 62, 1 << 62}, Data: four}, "too large"},
		{"overflow to a fitting number", spec, Tensor{Type: FP32, Shape: []int64{1 << 32, 1 << 32, 4}, Data: four}, "too large"},
		{"dimensions", spec, Tensor{Type: FP32, Shape: make([]int64, 20), Data: four}, "20 dimensions"},
	} {
		err := test.spec.Check(&test.in)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func TestJoinAndSlice(t *testing.T) {
	for _, kind := range []Type{Int8, Bytes} {
		texts := map[Type][]string{Int8: {"[[1,2]]", "[[3,4],[5,6]]"}, Bytes: {`[["a","b"]]`, `[["c","d"],["e","f"]]`}}[kind]
		var parts []*Tensor
		for _, text := range texts {
			p, err := Parse(kind, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, p)
		}
		all, err := Join(parts)
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range [][2]int64{{0, 1}, {1, 3}} {
			if got := string(all.Slice(at[0], at[1]).AppendNested(nil)); got != texts[i] {
				t.Errorf("%s: %s, want %s", kind, got, texts[i])
			}
		}
	}
	a := &Tensor{Type: Int8, Shape: []int64{1, 2}, Data: []byte{1, 2}}
	b := &Tensor{Type: Int8, Shape: []int64{1, 3}, Data: []byte{1, 2, 3}}
	if _, err := Join([]*Tensor{a, b}); err == nil {
		t.Error("rows of different width were joined")
	}
}

// FuzzParse looks for texts that are read differently than encoding/json does, and for panics.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"[1,2]", "[[1.5],[2e3]]", `["a",{"b64":"aGk="}]`, "[true]", "[]", "[[],[]]", "[1,[2]]", "[-0]"} {
		for i := range 3 {
			f.Add(i, []byte(seed))
		}
	}
	kinds := []Type{FP64, Int64, Bytes, Bool, FP16, Uint8}
	f.Fuzz(func(t *testing.T, k int, text []byte) {
		kind := kinds[((k%len(kinds))+len(kinds))%len(kinds)]
		got, err := Parse(kind, text)
		if err != nil {
			return
		}
		if count, err := Count(got.Shape); err != nil || count != got.Len() {
			t.Fatalf("%q: shape %v, %d values, %v", text, got.Shape, got.Len(), err)
		}
		written := got.AppendNested(nil)
		if !json.Valid(written) {
			t.Fatalf("%q is written as %q", text, written)
		}
		if kind != FP64 || !json.Valid(text) {
			return
		}
		var want, have any
		if json.Unmarshal(text, &want) == nil && json.Unmarshal(written, &have) == nil && !cmp.Equal(want, have) {
			t.Fatalf("%q is read as %s", text, written)
		}
	})
}
