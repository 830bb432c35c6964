// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Report collects what the rules of a kind have to say about one object.
type Report struct {
	errs     field.ErrorList
	warnings []string
}

// Refuse adds reasons why the object cannot be taken.
func (r *Report) Refuse(errs ...*field.Error) { r.errs = append(r.errs, errs...) }

// Warn adds what the user should know.
func (r *Report) Warn(path *field.Path, format string, args ...any) {
	r.warnings = append(r.warnings, path.String()+": "+fmt.Sprintf(format, args...))
}

// Since turns what the stored object already had into warnings.
func (r *Report) Since(before *Report) *Report {
	had := map[string]int{}
	for _, err := range before.errs {
		had[errorKey(err)]++
	}
	out := &Report{warnings: r.warnings}
	for _, err := range r.errs {
		if had[errorKey(err)] > 0 {
			had[errorKey(err)]--
			out.warnings = append(out.warnings, err.Error()+" (was so before this change)")
			continue
		}
		out.Refuse(err)
	}
	return out
}

// errorKey names a problem apart from its position in a list. The value belongs to
// it, also where the message does not show it: who changes a wrong value is
// asked for a right one.
func errorKey(err *field.Error) string {
	text := indexes.ReplaceAllString(err.Error(), "[]")
	if err.Type != field.ErrorTypeForbidden {
		return text
	}
	value, encodeErr := json.Marshal(err.BadValue)
	if encodeErr != nil {
		return text
	}
	return text + string(value)
}

// Result is what a Kind's Validate returns.
func (r *Report) Result() ([]string, error) { return r.warnings, r.errs.ToAggregate() }

// Check runs the rules of a kind on an object and, on an update, on the stored
// one for comparison.
func Check[T client.Object](old, obj client.Object, rules func(T) *Report) *Report {
	found := rules(obj.(T))
	if before, ok := old.(T); ok {
		return found.Since(rules(before))
	}
	return found
}
