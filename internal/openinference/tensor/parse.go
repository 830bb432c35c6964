// SPDX-License-Identifier: Apache-2.0

package tensor

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unsafe"
)

// Parse reads a JSON array, nested to any depth, into one flat tensor of the given type. Its shape is that of the nesting,
// which must be regular. A single value gives a tensor without dimensions. It reads the text once and keeps no tree of it,
// since requests are mostly numbers.
func Parse(t Type, text []byte) (*Tensor, error) {
	p := parser{text: text, out: &Tensor{Type: t}}
	if t != Bytes {
		p.out.Data = make([]byte, 0, TextCost(t, text))
	}
	p.space()
	if err := p.value(0); err != nil {
		return nil, err
	}
	p.space()
	if p.at != len(p.text) {
		return nil, fmt.Errorf("%q is not expected after the data", p.excerpt())
	}
	p.out.Shape = p.dims
	return p.out, nil
}

type parser struct {
	text []byte
	at   int
	out  *Tensor
	// dims is the size of each level, -1 while the first list of it is open; leaf is the level of the values.
	dims   []int64
	leaf   int
	leaves bool
}

var errIrregular = errors.New("the lists in the data differ in length or depth")

func (p *parser) value(level int) error {
	if p.at == len(p.text) {
		return errors.New("the data ends too early")
	}
	if p.text[p.at] == '[' {
		return p.list(level)
	}
	if p.leaves && p.leaf != level || len(p.dims) > level {
		return errIrregular
	}
	p.leaf, p.leaves = level, true
	return p.element()
}

func (p *parser) list(level int) error {
	if level >= maxRank {
		return fmt.Errorf("lists are nested more than %d deep", maxRank)
	}
	if p.leaves && level >= p.leaf {
		return errIrregular
	}
	if len(p.dims) == level {
		p.dims = append(p.dims, -1)
	}
	count, err := p.items(level)
	if err != nil {
		return err
	}
	if p.dims[level] >= 0 && p.dims[level] != count {
		return errIrregular
	}
	p.dims[level] = count
	return nil
}

// items reads from the opening to the closing bracket.
func (p *parser) items(level int) (int64, error) {
	p.at++
	p.space()
	if p.take(']') {
		return 0, nil
	}
	for count := int64(1); ; count++ {
		if err := p.value(level + 1); err != nil {
			return 0, err
		}
		p.space()
		if p.take(']') {
			return count, nil
		}
		if !p.take(',') {
			return 0, fmt.Errorf("a comma or a closing bracket is missing before %q", p.excerpt())
		}
		p.space()
	}
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) take(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// excerpt is what comes next, short enough for a message.
func (p *parser) excerpt() string {
	return string(p.text[p.at:min(len(p.text), p.at+20)])
}

// token is the text up to the next delimiter.
func (p *parser) token() string {
	begin := p.at
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ',', ']', ' ', '\t', '\n', '\r', '[', '{', '}', '"':
			return view(p.text[begin:p.at])
		}
		p.at++
	}
	return view(p.text[begin:p.at])
}

// view avoids a copy of each number. The text outlives the use and nobody writes to it meanwhile.
func view(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

func (p *parser) element() error {
	if p.out.Type == Bytes {
		return p.text1()
	}
	begin := p.at
	token := p.token()
	if token == "" {
		return fmt.Errorf("%q is not a value of type %s", p.excerpt(), p.out.Type)
	}
	data, err := appendNumber(p.out.Data, p.out.Type, token)
	if err != nil {
		return fmt.Errorf("%q is not a value of type %s", string(p.text[begin:min(p.at, begin+40)]), p.out.Type)
	}
	p.out.Data = data
	return nil
}

// text1 reads one element of BYTES: a string, or {"b64": "…"} for what is not text.
func (p *parser) text1() error {
	decoder := json.NewDecoder(bytes.NewReader(p.text[p.at:]))
	switch p.text[p.at] {
	case '"':
		if end := plainString(p.text[p.at:]); end > 0 {
			p.out.Strings = append(p.out.Strings, string(p.text[p.at+1:p.at+end]))
			p.at += end + 1
			return nil
		}
		var s string
		if err := decoder.Decode(&s); err != nil {
			return fmt.Errorf("%q is not a string", p.excerpt())
		}
		p.out.Strings = append(p.out.Strings, s)
	case '{':
		var o map[string]string
		err := decoder.Decode(&o)
		coded, ok := o["b64"]
		if err != nil || !ok || len(o) != 1 {
			return fmt.Errorf(`%q is neither a string nor {"b64": "…"}`, p.excerpt())
		}
		raw, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			return fmt.Errorf("%q is not base64", p.excerpt())
		}
		p.out.Strings = append(p.out.Strings, string(raw))
	default:
		return fmt.Errorf("%q is not a string", p.excerpt())
	}
	p.at += int(decoder.InputOffset())
	return nil
}

// plainString returns where a string without escapes ends, or 0 when a real JSON decoder must look at it.
func plainString(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i
		case c == '\\' || c < 0x20 || c >= 0x80:
			return 0
		}
	}
	return 0
}

var errNumber = errors.New("not a number of this type")

func appendNumber(data []byte, t Type, token string) ([]byte, error) {
	switch t {
	case Bool:
		return appendBool(data, token)
	case FP64:
		f, err := float(token, 64)
		return binary.LittleEndian.AppendUint64(data, math.Float64bits(f)), err
	case FP32:
		f, err := float(token, 32)
		return binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(f))), err
	case FP16:
		f, err := float(token, 32)
		return binary.LittleEndian.AppendUint16(data, fp16(float32(f))), err
	case BF16:
		f, err := float(token, 32)
		return binary.LittleEndian.AppendUint16(data, bf16(float32(f))), err
	case Uint8, Uint16, Uint32, Uint64:
		u, err := unsigned(token, t.Size()*8)
		return appendInteger(data, t.Size(), u), err
	default:
		i, err := signed(token, t.Size()*8)
		return appendInteger(data, t.Size(), uint64(i)), err
	}
}

func appendBool(data []byte, token string) ([]byte, error) {
	switch token {
	case "true", "1":
		return append(data, 1), nil
	case "false", "0":
		return append(data, 0), nil
	}
	return data, errNumber
}

func appendInteger(data []byte, size int, v uint64) []byte {
	switch size {
	case 1:
		return append(data, byte(v))
	case 2:
		return binary.LittleEndian.AppendUint16(data, uint16(v))
	case 4:
		return binary.LittleEndian.AppendUint32(data, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(data, v)
}

// float takes JSON numbers only; strconv also knows hexadecimal, underscores, Inf and NaN.
func float(token string, bits int) (float64, error) {
	for i := range len(token) {
		switch c := token[i]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
		default:
			return 0, errNumber
		}
	}
	return strconv.ParseFloat(token, bits)
}

// signed also takes 3.0 and 3e2, which some clients write for whole numbers.
func signed(token string, bits int) (int64, error) {
	if i, err := strconv.ParseInt(token, 10, bits); err == nil {
		return i, nil
	}
	f, err := float(token, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, errNumber
	}
	i := int64(f)
	if shift := 64 - bits; i<<shift>>shift != i {
		return 0, errNumber
	}
	return i, nil
}

func unsigned(token string, bits int) (uint64, error) {
	if u, err := strconv.ParseUint(token, 10, bits); err == nil {
		return u, nil
	}
	f, err := float(token, 64)
	if err != nil || f != math.Trunc(f) || f < 0 || f > 1<<53 {
		return 0, errNumber
	}
	u := uint64(f)
	if shift := 64 - bits; u<<shift>>shift != u {
		return 0, errNumber
	}
	return u, nil
}
