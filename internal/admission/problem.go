// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Problem is one reason why an object cannot be taken as it is.
type Problem struct {
	// Path of the field from the root of the object, with list indexes.
	Path string
	// Message says what is wrong there and, where known, what was meant.
	Message string
	// Type is the machine-readable form of the message.
	Type metav1.CauseType
}

func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// Problems is what is wrong with one object, in the order of its fields.
type Problems []Problem

// listed is how many problems a message names: enough to correct a manifest in
// one go, not so many that a hostile one fills the log.
const listed = 20

func (ps Problems) Error() string {
	lines := make([]string, 0, min(len(ps), listed)+1)
	for i, p := range ps {
		if i == listed {
			lines = append(lines, fmt.Sprintf("and %d more", len(ps)-listed))
			break
		}
		lines = append(lines, p.String())
	}
	if len(lines) == 1 {
		return lines[0]
	}
	return "[" + strings.Join(lines, ", ") + "]"
}

// status turns the problems into the answer an API client understands: code 422,
// reason Invalid, one cause per field.
func (ps Problems) status(kind schema.GroupKind, name string) *apierrors.StatusError {
	causes := make([]metav1.StatusCause, 0, min(len(ps), listed))
	for _, p := range ps[:min(len(ps), listed)] {
		causes = append(causes, metav1.StatusCause{Type: p.Type, Message: p.Message, Field: p.Path})
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnprocessableEntity,
		Reason:  metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("%s %q is invalid: %s", kind, name, ps.Error()),
		Details: &metav1.StatusDetails{Group: kind.Group, Kind: kind.Kind, Name: name, Causes: causes},
	}}
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// key names a problem apart from its position in a list, which changes when a
// neighbour is added or removed.
func (p Problem) key() string {
	return string(p.Type) + " " + indexes.ReplaceAllString(p.Path, "[]")
}

// since separates the problems that an update brings in from those that the
// stored object already had: the latter are nobody's fault now and must not
// block an unrelated change.
func (ps Problems) since(old Problems) (fresh, known Problems) {
	had := map[string]int{}
	for _, p := range old {
		had[p.key()]++
	}
	for _, p := range ps {
		if had[p.key()] > 0 {
			had[p.key()]--
			known = append(known, p)
			continue
		}
		fresh = append(fresh, p)
	}
	return fresh, known
}
