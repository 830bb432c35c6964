// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"cmp"
	"slices"
	"strings"
)

// Match tells whether an entity matches, given the values that it has for a property. A property that it does not have
// has none. Nothing is asked for what an earlier term has decided.
func Match(e Expr, values func(Property) []Value) bool {
	switch e := e.(type) {
	case nil:
		return true
	case And:
		return !slices.ContainsFunc(e.Terms, func(term Expr) bool { return !Match(term, values) })
	case Or:
		return slices.ContainsFunc(e.Terms, func(term Expr) bool { return Match(term, values) })
	case Compare:
		return slices.ContainsFunc(values(e.Property), e.holds)
	}
	return false
}

// holds compares with one value of the property. Values of another type are as good as none; whole numbers and those with
// a fraction are both numbers, unless the client named one of the two.
func (c Compare) holds(has Value) bool {
	if c.Property.Type != "" && c.Property.Type != has.Type {
		return false
	}
	return slices.ContainsFunc(c.Values, func(literal Value) bool {
		order, alike := compare(has, literal)
		if !alike {
			return false
		}
		switch c.Op {
		case Equal, In:
			return order == 0
		case NotEqual:
			return order != 0
		case Less:
			return order < 0
		case LessEqual:
			return order <= 0
		case Greater:
			return order > 0
		case GreaterEqual:
			return order >= 0
		case Like:
			return Pattern(literal.String).Matches(has.String)
		case ILike:
			return Pattern(strings.ToLower(literal.String)).Matches(strings.ToLower(has.String))
		}
		return false
	})
}

func compare(has, literal Value) (order int, alike bool) {
	switch {
	case has.Type == Int && literal.Type == Int:
		return cmp.Compare(has.Int, literal.Int), true
	case isNumber(has.Type) && isNumber(literal.Type):
		x, _ := has.Number()
		y, _ := literal.Number()
		return cmp.Compare(x, y), true
	case has.Type != literal.Type:
		return 0, false
	case has.Type == Bool && has.Bool == literal.Bool:
		return 0, true
	case has.Type == Bool:
		return 1, true // only ever asked whether they are the same
	}
	return strings.Compare(has.String, literal.String), true
}

// Pattern is what LIKE compares with: % stands for any text, _ for any character, and a backslash takes the meaning from
// the one that follows.
type Pattern string

// part of a pattern: a character, or what stands for some.
type part struct {
	char rune
	// any: % if it repeats, else _.
	any, repeats bool
}

func (p Pattern) parts() []part {
	var out []part
	escaped := false
	for _, r := range string(p) {
		switch {
		case escaped:
			out, escaped = append(out, part{char: r}), false
		case r == '\\':
			escaped = true
		case r == '%':
			out = append(out, part{any: true, repeats: true})
		case r == '_':
			out = append(out, part{any: true})
		default:
			out = append(out, part{char: r})
		}
	}
	if escaped { // there is nothing whose meaning it could take
		out = append(out, part{char: '\\'})
	}
	return out
}

// Canonical writes the pattern so that every database reads it alike: a backslash stands before %, _ and itself alone.
func (p Pattern) Canonical() string {
	var out strings.Builder
	for _, part := range p.parts() {
		switch {
		case part.repeats:
			out.WriteByte('%')
		case part.any:
			out.WriteByte('_')
		case part.char == '%' || part.char == '_' || part.char == '\\':
			out.WriteByte('\\')
			out.WriteRune(part.char)
		default:
			out.WriteRune(part.char)
		}
	}
	return out.String()
}

// Matches tells whether the whole text is like the pattern. It goes back to the last % alone, so that no pattern takes
// longer than the product of the two lengths.
func (p Pattern) Matches(text string) bool {
	parts, chars := p.parts(), []rune(text)
	i, j, back, from := 0, 0, -1, 0
	for j < len(chars) {
		switch {
		case i < len(parts) && parts[i].repeats:
			back, from = i, j
			i++
		case i < len(parts) && (parts[i].any || parts[i].char == chars[j]):
			i++
			j++
		case back >= 0:
			from++
			i, j = back+1, from
		default:
			return false
		}
	}
	for i < len(parts) && parts[i].repeats {
		i++
	}
	return i == len(parts)
}
