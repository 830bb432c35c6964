// SPDX-License-Identifier: Apache-2.0

// Package filter reads the language in which clients of the registry say which entities they want: comparisons of
// properties, joined by AND and OR.
//
//	name LIKE 'bert%' AND (state = 'LIVE' OR `my prop`.double_value >= 0.5)
//
// It knows what can be written and what it means, and nothing of entities or of how they are stored: whoever asks a
// database turns the tree into a question. Match is that meaning for a single entity in memory, and the measure for all
// others.
package filter

import (
	"fmt"
	"strings"
)

// Expr is a node of the tree: And, Or or Compare.
type Expr interface{ isExpr() }

// And holds when all of its terms do.
type And struct{ Terms []Expr }

// Or holds when one of its terms does.
type Or struct{ Terms []Expr }

// Compare holds when the entity has the property and the operator holds between its value and the literal, or for In
// one of the literals. An entity without the property never matches, whatever the operator is.
type Compare struct {
	Property Property
	Op       Op
	Values   []Value
}

func (And) isExpr()     {}
func (Or) isExpr()      {}
func (Compare) isExpr() {}

// Property is named by the client. Type is what follows the name as .string_value and so on; empty if nothing does.
type Property struct {
	Name string
	Type Type
	// Quoted tells that the name was in backticks, so that it is never the name of a field.
	Quoted bool
}

// Type is one of the kinds of value that a property can have.
type Type string

// The types of properties.
const (
	String Type = "string_value"
	Int    Type = "int_value"
	Double Type = "double_value"
	Bool   Type = "bool_value"
)

// Op is an operator, as it is written in capitals.
type Op string

// The operators. NotEqual is written != or <>.
const (
	Equal        Op = "="
	NotEqual     Op = "!="
	Less         Op = "<"
	LessEqual    Op = "<="
	Greater      Op = ">"
	GreaterEqual Op = ">="
	Like         Op = "LIKE"
	ILike        Op = "ILIKE"
	In           Op = "IN"
)

// Value is a literal. Its type is String, Int, Double or Bool, and one of the fields holds it.
type Value struct {
	Type   Type
	String string
	Int    int64
	Double float64
	Bool   bool
}

// Number is the literal as a number with a fraction; false if it is none.
func (v Value) Number() (float64, bool) {
	switch v.Type {
	case Int:
		return float64(v.Int), true
	case Double:
		return v.Double, true
	}
	return 0, false
}

// Error says what is wrong with a query, and where.
type Error struct {
	// At is the byte at which it was noticed, counted from 0.
	At      int
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("filterQuery: at character %d: %s", e.At+1, e.Message)
}

// Bounds of a query. What people write is far below them; they keep a client from having a server do endless work.
const (
	maxLength = 16 << 10
	maxDepth  = 64
	maxTerms  = 256
	maxList   = 1024
)

// Parse reads a query. One that is empty or holds nothing but blanks and comments is nil: everything matches.
func Parse(query string) (Expr, error) {
	if len(query) > maxLength {
		return nil, &Error{At: maxLength, Message: fmt.Sprintf("the query has more than %d bytes", maxLength)}
	}
	p := &parser{scanner: scanner{text: query}}
	if err := p.next(); err != nil {
		return nil, err
	}
	if p.token.kind == atEnd {
		return nil, nil //nolint:nilnil // no expression and nothing wrong
	}
	expr, err := p.or(0)
	if err != nil {
		return nil, err
	}
	if p.token.kind != atEnd {
		return nil, p.unexpected("AND, OR or the end")
	}
	return expr, nil
}

type parser struct {
	scanner
	token token
	terms int
}

func (p *parser) next() (err error) {
	p.token, err = p.scan()
	return err
}

func (p *parser) fail(format string, args ...any) error {
	return &Error{At: p.token.at, Message: fmt.Sprintf(format, args...)}
}

func (p *parser) unexpected(want string) error {
	return p.fail("%s is not expected here; %s is", p.token, want)
}

// or reads terms joined by OR, which binds less than AND.
func (p *parser) or(depth int) (Expr, error) {
	terms, err := p.joined("OR", depth, p.and)
	if len(terms) == 1 {
		return terms[0], err
	}
	return Or{terms}, err
}

func (p *parser) and(depth int) (Expr, error) {
	terms, err := p.joined("AND", depth, p.term)
	if len(terms) == 1 {
		return terms[0], err
	}
	return And{terms}, err
}

func (p *parser) joined(word string, depth int, term func(int) (Expr, error)) ([]Expr, error) {
	var terms []Expr
	for {
		one, err := term(depth)
		if err != nil {
			return nil, err
		}
		terms = append(terms, one)
		if !p.token.isWord(word) {
			return terms, nil
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
}

// term reads a comparison, or an expression in parentheses.
func (p *parser) term(depth int) (Expr, error) {
	if p.token.kind != aSign || p.token.text != "(" {
		return p.compare()
	}
	if depth == maxDepth {
		return nil, p.fail("parentheses are nested more than %d deep", maxDepth)
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	inner, err := p.or(depth + 1)
	if err != nil {
		return nil, err
	}
	return inner, p.sign(")")
}

// sign takes a sign that must be there.
func (p *parser) sign(want string) error {
	if p.token.kind != aSign || p.token.text != want {
		return p.unexpected(want)
	}
	return p.next()
}

func (p *parser) compare() (Expr, error) {
	if p.terms++; p.terms > maxTerms {
		return nil, p.fail("there are more than %d comparisons", maxTerms)
	}
	property, err := p.property()
	if err != nil {
		return nil, err
	}
	at := p.token
	op, err := p.operator()
	if err != nil {
		return nil, err
	}
	values, err := p.values(op)
	if err != nil {
		return nil, err
	}
	c := Compare{Property: property, Op: op, Values: values}
	if wrong := c.wrong(); wrong != "" {
		return nil, &Error{At: at.at, Message: wrong}
	}
	return c, nil
}

// types by the words that name them.
var types = map[string]Type{string(String): String, string(Int): Int, string(Double): Double, string(Bool): Bool}

// property reads a dotted name, the last part of which may be a type. A name with blanks, quotes or dots of its own is in
// backticks.
func (p *parser) property() (Property, error) {
	if p.token.kind != aName && p.token.kind != aQuotedName {
		return Property{}, p.unexpected("the name of a property")
	}
	if p.token.kind == aName && isKeyword(p.token.text) {
		return Property{}, p.fail("%s is a word of the language; a property of that name is written in backticks", p.token)
	}
	parts := []string{p.token.text}
	property := Property{Quoted: p.token.kind == aQuotedName}
	for {
		if err := p.next(); err != nil {
			return Property{}, err
		}
		if p.token.kind != aSign || p.token.text != "." {
			break
		}
		if err := p.next(); err != nil {
			return Property{}, err
		}
		if p.token.kind != aName && p.token.kind != aQuotedName {
			return Property{}, p.unexpected("the rest of the name")
		}
		property.Quoted = property.Quoted || p.token.kind == aQuotedName
		parts = append(parts, p.token.text)
	}
	if last := len(parts) - 1; last > 0 && types[parts[last]] != "" {
		property.Type, parts = types[parts[last]], parts[:last]
	}
	property.Name = strings.Join(parts, ".")
	return property, nil
}

var signs = map[string]Op{"=": Equal, "!=": NotEqual, "<>": NotEqual, "<": Less, "<=": LessEqual, ">": Greater, ">=": GreaterEqual}

func (p *parser) operator() (Op, error) {
	if op, ok := signs[p.token.text]; ok && p.token.kind == aSign {
		return op, p.next()
	}
	for _, op := range []Op{Like, ILike, In} {
		if p.token.isWord(string(op)) {
			return op, p.next()
		}
	}
	return "", p.unexpected("an operator (= != < <= > >= LIKE ILIKE IN)")
}

func (p *parser) values(op Op) ([]Value, error) {
	if op != In {
		pattern := p.token.pattern
		value, err := p.value()
		if value.Type == String && (op == Like || op == ILike) {
			value.String = pattern
		}
		return []Value{value}, err
	}
	if err := p.sign("("); err != nil {
		return nil, err
	}
	var values []Value
	for {
		if len(values) == maxList {
			return nil, p.fail("the list has more than %d values", maxList)
		}
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		if p.token.kind != aSign || p.token.text != "," {
			return values, p.sign(")")
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
}

func (p *parser) value() (Value, error) {
	switch {
	case p.token.kind == aLiteral:
		value := p.token.value
		return value, p.next()
	case p.token.isWord("TRUE"), p.token.isWord("FALSE"):
		value := Value{Type: Bool, Bool: p.token.isWord("TRUE")}
		return value, p.next()
	case p.token.kind == aName:
		return Value{}, p.fail("%s is no value; text is written in quotes", p.token)
	}
	return Value{}, p.unexpected("a value")
}

// wrong says what makes a comparison senseless; empty if nothing does.
func (c Compare) wrong() string {
	of := c.Values[0].Type
	for _, v := range c.Values {
		switch {
		case v.Type != of && (!isNumber(v.Type) || !isNumber(of)):
			return "the values of a list must be of one type"
		case (c.Op == Like || c.Op == ILike) && v.Type != String:
			return fmt.Sprintf("%s compares with text", c.Op)
		case v.Type == Bool && c.Op != Equal && c.Op != NotEqual && c.Op != In:
			return fmt.Sprintf("true and false have no order; %s cannot be used", c.Op)
		case c.Property.Type == "" || c.Property.Type == v.Type || c.Property.Type == Double && v.Type == Int:
		default:
			return fmt.Sprintf("%s is not a value for %s", article[v.Type], c.Property.Type)
		}
	}
	return ""
}

func isNumber(t Type) bool { return t == Int || t == Double }

var article = map[Type]string{String: "text", Int: "a whole number", Double: "a number with a fraction", Bool: "true or false"}
