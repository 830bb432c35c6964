// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type kind int

const (
	atEnd kind = iota
	aName
	aQuotedName
	aLiteral
	aSign
)

type token struct {
	kind  kind
	at    int
	text  string
	value Value
	// pattern is the text between quotes as LIKE reads it: what has a backslash there has one.
	pattern string
}

func (t token) isWord(word string) bool { return t.kind == aName && strings.EqualFold(t.text, word) }

// String is how an error message shows it.
func (t token) String() string {
	const shown = 40
	switch {
	case t.kind == atEnd:
		return "the end"
	case len(t.text) > shown:
		return strconv.Quote(strings.ToValidUTF8(t.text[:shown], "") + "…")
	}
	return strconv.Quote(t.text)
}

func isKeyword(name string) bool {
	return slices.ContainsFunc([]string{"AND", "OR", "LIKE", "ILIKE", "IN", "TRUE", "FALSE"}, func(word string) bool {
		return strings.EqualFold(name, word)
	})
}

// scanner cuts a query into tokens.
type scanner struct {
	text string
	at   int
}

func (s *scanner) scan() (token, error) {
	s.skip()
	begin := s.at
	if begin == len(s.text) {
		return token{kind: atEnd, at: begin}, nil
	}
	switch c := s.text[begin]; {
	case isLetter(c):
		for s.at < len(s.text) && (isLetter(s.text[s.at]) || isDigit(s.text[s.at])) {
			s.at++
		}
		return token{kind: aName, at: begin, text: s.text[begin:s.at]}, nil
	case c == '\'' || c == '"' || c == '`':
		return s.quoted(c)
	case isDigit(c), (c == '-' || c == '+' || c == '.') && begin+1 < len(s.text) && (isDigit(s.text[begin+1]) || s.text[begin+1] == '.'):
		return s.number()
	}
	for _, sign := range []string{"!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ",", "."} {
		if strings.HasPrefix(s.text[begin:], sign) {
			s.at += len(sign)
			return token{kind: aSign, at: begin, text: sign}, nil
		}
	}
	r, _ := utf8.DecodeRuneInString(s.text[begin:])
	return token{}, &Error{At: begin, Message: fmt.Sprintf("%q has no meaning here; text is written in quotes, and names with other characters than letters, digits and _ in backticks", r)}
}

// skip passes over blanks and over comments, which begin with -- and end with the line.
func (s *scanner) skip() {
	for s.at < len(s.text) {
		switch {
		case strings.IndexByte(" \t\r\n", s.text[s.at]) >= 0:
			s.at++
		case strings.HasPrefix(s.text[s.at:], "--"):
			if end := strings.IndexByte(s.text[s.at:], '\n'); end >= 0 {
				s.at += end
			} else {
				s.at = len(s.text)
			}
		default:
			return
		}
	}
}

// escapes by the character after the backslash. Any other one stands for itself.
var escapes = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r'}

// quoted reads text in single or double quotes, or a name in backticks. The quote itself is written with a backslash or
// twice.
func (s *scanner) quoted(quote byte) (token, error) {
	begin := s.at
	var out, pattern strings.Builder
	write := func(c byte) {
		out.WriteByte(c)
		pattern.WriteByte(c)
	}
	for s.at++; s.at < len(s.text); s.at++ {
		c := s.text[s.at]
		switch {
		case c == '\\' && s.at+1 < len(s.text):
			s.at++
			if c = s.text[s.at]; escapes[c] != 0 {
				c = escapes[c]
			}
			if c == '%' || c == '_' || c == '\\' {
				pattern.WriteByte('\\')
			}
			write(c)
		case c == quote && s.at+1 < len(s.text) && s.text[s.at+1] == quote:
			s.at++
			write(c)
		case c == quote:
			s.at++
			t, err := s.closed(begin, quote, out.String())
			t.pattern = pattern.String()
			return t, err
		default:
			write(c)
		}
	}
	return token{}, &Error{At: begin, Message: fmt.Sprintf("there is no %c that ends what begins here", quote)}
}

func (s *scanner) closed(begin int, quote byte, text string) (token, error) {
	switch {
	case !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0:
		return token{}, &Error{At: begin, Message: "there is something that is no text between the quotes"}
	case quote != '`':
		return token{kind: aLiteral, at: begin, text: text, value: Value{Type: String, String: text}}, nil
	case text == "":
		return token{}, &Error{At: begin, Message: "there is no name between the backticks"}
	}
	return token{kind: aQuotedName, at: begin, text: text}, nil
}

// number reads a whole number, or one with a fraction or an exponent.
func (s *scanner) number() (token, error) {
	begin, whole := s.at, true
	if c := s.text[s.at]; c == '-' || c == '+' {
		s.at++
	}
	for s.at < len(s.text) {
		c := s.text[s.at]
		switch {
		case isDigit(c):
		case c == '.', c == 'e', c == 'E', (c == '-' || c == '+') && (s.text[s.at-1] == 'e' || s.text[s.at-1] == 'E'):
			whole = false
		default:
			return s.counted(begin, whole)
		}
		s.at++
	}
	return s.counted(begin, whole)
}

func (s *scanner) counted(begin int, whole bool) (token, error) {
	text := s.text[begin:s.at]
	t := token{kind: aLiteral, at: begin, text: text}
	if s.at < len(s.text) && isLetter(s.text[s.at]) {
		t.text = s.text[begin : s.at+1]
		return token{}, &Error{At: begin, Message: t.String() + " begins like a number; names that begin with a digit are written in backticks"}
	}
	if n, err := strconv.ParseInt(text, 10, 64); whole && err == nil {
		t.value = Value{Type: Int, Int: n}
		return t, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || math.IsInf(f, 0):
		return token{}, &Error{At: begin, Message: t.String() + " is too large for a number"}
	case err != nil:
		return token{}, &Error{At: begin, Message: t.String() + " is not a number"}
	}
	t.value = Value{Type: Double, Double: f}
	return t, nil
}

func isLetter(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
