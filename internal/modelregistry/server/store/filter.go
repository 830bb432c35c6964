// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
)

// where writes the condition that a filter is, for entities of some kinds in the table called e. What it means for an
// entity is what filter.Match says.
func (b *builder) where(e filter.Expr, kinds []*entity.Kind) (string, error) {
	switch e := e.(type) {
	case filter.And:
		return b.joined(" AND ", e.Terms, kinds)
	case filter.Or:
		return b.joined(" OR ", e.Terms, kinds)
	case filter.Compare:
		return b.compare(e, kinds)
	}
	return "", fmt.Errorf("a filter has a part of type %T", e)
}

func (b *builder) joined(word string, terms []filter.Expr, kinds []*entity.Kind) (string, error) {
	parts := make([]string, len(terms))
	for i, term := range terms {
		var err error
		if parts[i], err = b.where(term, kinds); err != nil {
			return "", err
		}
	}
	return "(" + strings.Join(parts, word) + ")", nil
}

// columns that everything has, and what they hold.
var columns = map[string]struct {
	column string
	holds  filter.Type
}{
	"id": {"id", filter.Int}, "name": {"name", filter.String}, "externalId": {"external_id", filter.String},
	"createTimeSinceEpoch": {"create_time_since_epoch", filter.Int}, "lastUpdateTimeSinceEpoch": {"last_update_time_since_epoch", filter.Int},
}

// compare finds out where a property is. A name that no field has is that of a custom property, and so is every name in
// backticks or with a type behind it.
func (b *builder) compare(c filter.Compare, kinds []*entity.Kind) (string, error) {
	if c.Property.Quoted || c.Property.Type != "" {
		return b.property(c, c.Property.Name, true)
	}
	if common, ok := columns[c.Property.Name]; ok {
		expression := "e." + common.column
		if c.Property.Name == "name" {
			expression = b.nameOf(kinds[0])
		}
		return b.value(c, expression, common.holds)
	}
	if c.Property.Name == "description" {
		return b.property(c, "description", false)
	}
	for _, k := range kinds {
		if f, ok := k.Field(c.Property.Name); ok {
			return b.field(c, f, k)
		}
	}
	return b.property(c, c.Property.Name, true)
}

// nameOf is what clients call an entity. Before it stands to whom it belongs, or a number if it may belong to somebody.
func (b *builder) nameOf(k *entity.Kind) string {
	if !k.Prefixed() {
		return "e.name"
	}
	return fmt.Sprintf(b.behindColon, "e.name")
}

// field compares with one of the fields of a kind.
func (b *builder) field(c filter.Compare, f entity.Field, k *entity.Kind) (string, error) {
	switch {
	case f.At == entity.InColumn && f.Type == entity.Enum:
		return b.word(c, f)
	case f.At == entity.InColumn:
		return b.value(c, "e."+f.Stored, filter.String)
	case f.Type == entity.ID && k.Parent != nil && k.Parent.Field == f.Name:
		of := families[b.of]
		return b.wrapped(fmt.Sprintf("EXISTS (SELECT 1 FROM %s l WHERE l.%s = e.id AND ", b.table(of.links), of.child), func() (string, error) {
			return b.value(withNumbers(c), "l."+of.above, filter.Int)
		})
	case f.Type == entity.ID:
		return b.property(withNumbers(c), f.Stored, f.At == entity.InPath)
	case f.Type == entity.Texts:
		return "", &filter.Error{Message: f.Name + " is a list, which cannot be compared"}
	case f.Type == entity.Number: // which is stored as text
		return b.exists(f.Stored, false, func() (string, error) {
			return b.value(withNumbers(c), fmt.Sprintf(b.whole, "p.string_value"), filter.Int)
		})
	}
	return b.property(c, f.Stored, false)
}

// withNumbers takes numbers in quotes for numbers, as clients read them.
func withNumbers(c filter.Compare) filter.Compare {
	c.Values = slices.Clone(c.Values)
	for i, v := range c.Values {
		if n, err := strconv.ParseInt(v.String, 10, 64); v.Type == filter.String && err == nil {
			c.Values[i] = filter.Value{Type: filter.Int, Int: n}
		}
	}
	return c
}

// word compares with one of some words, of which the place among them is stored. A word that is none of them is no
// entity's.
func (b *builder) word(c filter.Compare, f entity.Field) (string, error) {
	var parts []string
	for place, word := range f.Words {
		matches := filter.Match(c, func(filter.Property) []filter.Value { return []filter.Value{{Type: filter.String, String: word}} })
		if matches {
			parts = append(parts, strconv.Itoa(place))
		}
	}
	if len(parts) == 0 {
		return "1 = 0", nil
	}
	return "e." + f.Stored + " IN (" + strings.Join(parts, ", ") + ")", nil
}

// property compares with a row of the property table. The literal says which of its columns count; where none does, no
// entity matches.
func (b *builder) property(c filter.Compare, stored string, custom bool) (string, error) {
	return b.exists(stored, custom, func() (string, error) {
		var parts []string
		for _, t := range []filter.Type{filter.String, filter.Int, filter.Double, filter.Bool} {
			if c.Property.Type != "" && c.Property.Type != t {
				continue
			}
			compare := b.value
			if t == filter.String {
				compare = b.sameText
			}
			if part, err := compare(c, "p."+string(t), t); err == nil {
				parts = append(parts, part)
			}
		}
		if len(parts) == 0 {
			return "1 = 0", nil
		}
		return "(" + strings.Join(parts, " OR ") + ")", nil
	})
}

// sameText compares the text of a property, by its beginning first if that can tell: there is an index for it. A text that is
// shorter than what the index holds is the whole of it.
func (b *builder) sameText(c filter.Compare, expression string, holds filter.Type) (string, error) {
	literals, _, err := literalsOf(c, holds)
	if err != nil || c.Op != filter.Equal && c.Op != filter.In {
		return b.value(c, expression, holds)
	}
	long := b.head == "%s"
	marks := make([]string, len(literals))
	for i, literal := range literals {
		marks[i] = fmt.Sprintf(b.head, b.arg(literal))
		long = long || utf8.RuneCountInString(literal.(string)) >= headLength //nolint:forcetypeassert // text is compared with text
	}
	begins := fmt.Sprintf(b.head, expression) + " IN (" + strings.Join(marks, ", ") + ")"
	if !long {
		return begins, nil
	}
	whole, err := b.value(c, expression, holds)
	return "(" + begins + " AND " + whole + ")", err
}

// exists asks for a row of the property table.
func (b *builder) exists(stored string, custom bool, condition func() (string, error)) (string, error) {
	of := families[b.of]
	return b.wrapped(fmt.Sprintf("EXISTS (SELECT 1 FROM %s p WHERE p.%s = e.id AND p.name = %s AND p.is_custom_property = %s AND ",
		b.table(of.properties), of.owner, b.arg(stored), b.arg(custom)), condition)
}

// wrapped writes the condition last: parameters without a number are counted in the order of the text.
func (b *builder) wrapped(head string, condition func() (string, error)) (string, error) {
	last, err := condition()
	return head + last + ")", err
}

// value compares an expression of the database with the literals. It is refused when they are of another type.
func (b *builder) value(c filter.Compare, expression string, holds filter.Type) (string, error) {
	literals, fraction, err := literalsOf(c, holds)
	if err != nil {
		return "", err
	}
	if fraction && holds == filter.Int {
		expression = "CAST(" + expression + " AS DOUBLE" + map[bool]string{true: " PRECISION"}[b.numbered] + ")"
	}
	if c.Op == filter.Like || c.Op == filter.ILike {
		return b.alike(c, fmt.Sprintf(b.like, expression)), nil
	}
	mark := func(v any) string { return b.arg(v) }
	if holds == filter.String {
		form := b.exact
		if c.Op == filter.Equal || c.Op == filter.NotEqual || c.Op == filter.In {
			form = b.equal
		}
		expression = fmt.Sprintf(form, expression)
		mark = func(v any) string { return fmt.Sprintf(b.parameter, b.arg(v)) }
	}
	if c.Op != filter.In {
		return expression + " " + string(c.Op) + " " + mark(literals[0]), nil
	}
	marks := make([]string, len(literals))
	for i, v := range literals {
		marks[i] = mark(v)
	}
	return expression + " IN (" + strings.Join(marks, ", ") + ")", nil
}

func (b *builder) alike(c filter.Compare, expression string) string {
	pattern := filter.Pattern(c.Values[0].String).Canonical()
	if c.Op == filter.Like {
		return expression + " LIKE " + b.arg(pattern) + b.escape
	}
	return "LOWER(" + expression + ") LIKE LOWER(" + b.arg(pattern) + ")" + b.escape
}

// literalsOf are the parameters for values of a type, all whole or, if one has a fraction, none.
func literalsOf(c filter.Compare, holds filter.Type) (literals []any, fraction bool, err error) {
	fraction = holds == filter.Double || slices.ContainsFunc(c.Values, func(v filter.Value) bool { return v.Type == filter.Double })
	for _, v := range c.Values {
		switch number, isNumber := v.Number(); {
		case holds == filter.String && v.Type == filter.String:
			literals = append(literals, v.String)
		case holds == filter.Bool && v.Type == filter.Bool:
			literals = append(literals, v.Bool)
		case holds == filter.Int && v.Type == filter.Int && !fraction:
			literals = append(literals, v.Int)
		case (holds == filter.Int || holds == filter.Double) && isNumber:
			literals = append(literals, number)
		default:
			return nil, false, &filter.Error{Message: fmt.Sprintf("%s is compared with something that it cannot be", c.Property.Name)}
		}
	}
	return literals, fraction, nil
}
