// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/catalog/entry"
	"github.com/modelplane/modelplane/internal/modelregistry/server/filter"
)

// Resolved is the query with numbers in place of the words min and max, for properties whose range is known.
func (q Query) Resolved(options map[string]entry.Option) map[string]Filter {
	out := maps.Clone(q.Filters)
	for property, f := range out {
		option, ok := options[property]
		if !ok || option.Range == nil {
			continue
		}
		switch f.Value {
		case "min":
			f.Value = option.Range.Min
		case "max":
			f.Value = option.Range.Max
		}
		out[property] = f
	}
	return out
}

// Text is the query in the language of filters.
func (q Query) Text(options map[string]entry.Option) (string, error) {
	if len(q.Filters) == 0 {
		return "", errors.New("compares nothing")
	}
	resolved := q.Resolved(options)
	var terms []string
	for _, property := range slices.Sorted(maps.Keys(resolved)) {
		term, err := resolved[property].text(property)
		if err != nil {
			return "", fmt.Errorf("%s: %w", property, err)
		}
		terms = append(terms, term)
	}
	out := strings.Join(terms, " AND ")
	_, err := filter.Parse(out)
	if unresolved := slices.ContainsFunc(slices.Collect(maps.Values(resolved)), func(f Filter) bool { return f.Value == "min" || f.Value == "max" }); unresolved {
		return out, nil // the range becomes known with the first entries
	}
	return out, err
}

func (f Filter) text(property string) (string, error) {
	op := strings.ToUpper(strings.TrimSpace(f.Operator))
	switch op {
	case "=", "!=", "<>", "<", "<=", ">", ">=", "LIKE", "ILIKE":
		value, err := literal(f.Value)
		return property + " " + op + " " + value, err
	case "IN", "NOT IN":
	default:
		return "", fmt.Errorf("operator %q is unknown", f.Operator)
	}
	items, ok := f.Value.([]any)
	if !ok || len(items) == 0 {
		return "", fmt.Errorf("%s needs a list", op)
	}
	var values []string
	for _, item := range items {
		value, err := literal(item)
		if err != nil {
			return "", err
		}
		values = append(values, value)
	}
	if op == "IN" {
		return property + " IN (" + strings.Join(values, ", ") + ")", nil
	}
	return property + " != " + strings.Join(values, " AND "+property+" != "), nil
}

func literal(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'", nil
	case json.Number:
		return value.String(), nil
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 64), nil
	case bool:
		return strconv.FormatBool(value), nil
	}
	return "", errors.New("the value must be text, a number, true or false")
}
