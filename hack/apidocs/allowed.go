// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// quantityPattern is not worth repeating at every quantity.
const quantityPattern = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// allowed says which values a schema accepts beyond their type.
func allowed(s *apiextensionsv1.JSONSchemaProps) string {
	var out []string
	if values := enum(s); values != "" {
		out = append(out, values)
	}
	if text := span("", s.Minimum, s.Maximum, number); text != "" {
		out = append(out, text)
	}
	for _, bound := range []struct {
		unit        string
		least, most *int64
	}{
		{" characters", s.MinLength, s.MaxLength},
		{" items", s.MinItems, s.MaxItems},
		{" entries", s.MinProperties, s.MaxProperties},
	} {
		if text := span(bound.unit, bound.least, bound.most, func(n int64) string { return strconv.FormatInt(n, 10) }); text != "" {
			out = append(out, text)
		}
	}
	if s.Pattern != "" && s.Pattern != quantityPattern {
		out = append(out, "matches "+code(s.Pattern))
	}
	if len(s.XListMapKeys) > 0 {
		out = append(out, "unique by "+codes(s.XListMapKeys))
	}
	return strings.Join(out, "; ")
}

func enum(s *apiextensionsv1.JSONSchemaProps) string {
	values := make([]string, 0, len(s.Enum))
	for _, v := range s.Enum {
		values = append(values, strings.Trim(string(v.Raw), `"`))
	}
	return codes(values)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// span words a lower and an upper bound.
func span[N any](unit string, least, most *N, text func(N) string) string {
	switch {
	case least != nil && most == nil && unit != "" && text(*least) == "1":
		return "not empty"
	case least != nil && most != nil:
		return fmt.Sprintf("%s to %s%s", text(*least), text(*most), unit)
	case least != nil:
		return "at least " + text(*least) + unit
	case most != nil:
		return "at most " + text(*most) + unit
	}
	return ""
}
