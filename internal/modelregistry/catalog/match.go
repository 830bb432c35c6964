// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
)

// ofParts begins the names of properties of parts.
const ofParts = "artifacts."

// matches tells whether an entry is wanted. What is asked of artifacts and joined by AND must hold for one and the same
// artifact: who asks for a kind of hardware and a latency means both in one measurement.
func matches(e *entry.Entry, expr filter.Expr) bool {
	if expr == nil {
		return true
	}
	if aboutParts(expr) {
		return slices.ContainsFunc(e.Parts, func(part *entry.Entry) bool { return holds(part, expr, ofParts) })
	}
	switch expr := expr.(type) {
	case filter.And:
		terms := flat(expr)
		if parts := slices.DeleteFunc(slices.Clone(terms), func(t filter.Expr) bool { return !aboutParts(t) }); len(parts) > 1 {
			terms = append(slices.DeleteFunc(terms, aboutParts), filter.And{Terms: parts})
		}
		return !slices.ContainsFunc(terms, func(t filter.Expr) bool { return !matches(e, t) })
	case filter.Or:
		return slices.ContainsFunc(expr.Terms, func(t filter.Expr) bool { return matches(e, t) })
	}
	return holds(e, expr, "")
}

// flat are the terms of an AND, and of those within it.
func flat(and filter.And) []filter.Expr {
	var out []filter.Expr
	for _, t := range and.Terms {
		if inner, ok := t.(filter.And); ok {
			out = append(out, flat(inner)...)
		} else {
			out = append(out, t)
		}
	}
	return out
}

// aboutParts tells whether an expression asks for nothing but artifacts.
func aboutParts(expr filter.Expr) bool {
	other := func(t filter.Expr) bool { return !aboutParts(t) }
	switch expr := expr.(type) {
	case filter.And:
		return !slices.ContainsFunc(expr.Terms, other)
	case filter.Or:
		return !slices.ContainsFunc(expr.Terms, other)
	case filter.Compare:
		return strings.HasPrefix(expr.Property.Name, ofParts)
	}
	return false
}

// partsOnly is what an expression asks of artifacts and of nothing else; nil if it does not.
func partsOnly(expr filter.Expr) filter.Expr {
	if expr == nil || aboutParts(expr) {
		return expr
	}
	and, ok := expr.(filter.And)
	if !ok {
		return nil
	}
	if terms := slices.DeleteFunc(flat(and), func(t filter.Expr) bool { return !aboutParts(t) }); len(terms) > 0 {
		return filter.And{Terms: terms}
	}
	return nil
}

// holds compares the values of one entry or part. Of a list, != means that the value is not in it.
func holds(e *entry.Entry, expr filter.Expr, prefix string) bool {
	switch expr := expr.(type) {
	case nil:
		return true
	case filter.And:
		return !slices.ContainsFunc(expr.Terms, func(t filter.Expr) bool { return !holds(e, t, prefix) })
	case filter.Or:
		return slices.ContainsFunc(expr.Terms, func(t filter.Expr) bool { return holds(e, t, prefix) })
	case filter.Compare:
		property := expr.Property
		property.Name = strings.TrimPrefix(property.Name, prefix)
		values := e.Values(property)
		get := func(filter.Property) []filter.Value { return values.All }
		if values.List && expr.Op == filter.NotEqual {
			expr.Op = filter.Equal
			return len(values.All) > 0 && !filter.Match(expr, get)
		}
		return filter.Match(expr, get)
	}
	return false
}
