// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Family says who must do something about a problem.
type Family string

const (
	// Invalid: the user must change something. Not tried again until an input
	// changes.
	Invalid Family = "Invalid"
	// Waiting: something else must appear first. Woken by the watch on it.
	Waiting Family = "Waiting"
	// Failed: the world failed us. Tried again with back-off.
	Failed Family = "Failed"
)

// Problem is why an object is not as asked. Message is a sentence for the
// person on call that ends in a next step.
type Problem struct {
	Family  Family
	Reason  string
	Message string

	// visible problems are reported at once, others after several failures.
	visible bool
	// passing problems end by themselves.
	passing bool
	cause   error
}

// Error makes a Problem usable where an error is expected.
func (p *Problem) Error() string { return p.Message }

// Unwrap gives the API server's own error, if there was one.
func (p *Problem) Unwrap() error { return p.cause }

// MustChange is a Problem of the family Invalid.
func MustChange(reason, format string, args ...any) *Problem {
	return &Problem{Family: Invalid, Reason: reason, Message: fmt.Sprintf(format, args...), visible: true}
}

// WaitFor is a Problem of the family Waiting.
func WaitFor(reason, format string, args ...any) *Problem {
	return &Problem{Family: Waiting, Reason: reason, Message: fmt.Sprintf(format, args...), visible: true}
}

// passes is the problem as one that ends by itself.
func (p *Problem) passes() *Problem {
	p.passing = true
	return p
}

// problemOf sorts an error of a write into its family.
func problemOf(err error, doing string) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &Problem{Family: Waiting, Reason: "NamespaceTerminating",
			Message: fmt.Sprintf("%s: the namespace is being deleted.", doing), cause: err, visible: true, passing: true}
	case withoutNamespace(err):
		return &Problem{Family: Waiting, Reason: "NamespaceMissing",
			Message: fmt.Sprintf("%s: the namespace does not exist. Create it.", doing), cause: err, visible: true}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return &Problem{Family: Invalid, Reason: "ChildRefused", cause: err, visible: true,
			Message: fmt.Sprintf("%s: the API server refused it: %s. Correct the field that it names.", doing, oneLine(err))}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return &Problem{Family: Failed, Reason: "QuotaExceeded", cause: err, visible: true,
			Message: fmt.Sprintf("%s: %s. Raise the quota or ask for less.", doing, oneLine(err))}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "custom resource definition is terminating"):
		return &Problem{Family: Failed, Reason: "APIMissing", cause: err, visible: true, // the definition may be made anew before we look
			Message: fmt.Sprintf("%s: this API is being removed from the cluster. It is made when the API is there again.", doing)}
	case apierrors.IsForbidden(err):
		return &Problem{Family: Failed, Reason: "Forbidden", cause: err, visible: true,
			Message: fmt.Sprintf("%s: %s. Grant the permission or change the policy that denies it.", doing, oneLine(err))}
	case meta.IsNoMatchError(err):
		return &Problem{Family: Waiting, Reason: "APIMissing", cause: err, visible: true,
			Message: fmt.Sprintf("%s: the cluster does not serve this API. Install it; nothing needs a restart.", doing)}
	}
	return &Problem{Family: Failed, Reason: "APIServerFailed", cause: err,
		Message: fmt.Sprintf("%s: %s. It is being tried again.", doing, oneLine(err))}
}

// asProblem is problemOf for an error that may be nil.
func asProblem(err error, doing string) *Problem {
	if err == nil {
		return nil
	}
	return problemOf(err, doing)
}

// badPlan is a mistake of ours, not of a person's.
func badPlan(err error) *Problem {
	return &Problem{Family: Failed, Reason: "BadPlan", Message: err.Error() + ". Please report this.", visible: true, cause: err}
}

// namespaceGoes tells whether something cannot be made because its namespace is
// being deleted.
func namespaceGoes(p *Problem) bool {
	return apierrors.HasStatusCause(p.cause, corev1.NamespaceTerminatingCause)
}

// withoutNamespace tells whether a write failed because its namespace is not there
// or is being deleted.
func withoutNamespace(err error) bool {
	var status apierrors.APIStatus
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// immutable tells whether the API server refused a change of a field that
// cannot change in place.
func immutable(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	return anyCause(status.Status(), func(c metav1.StatusCause) bool {
		return strings.Contains(c.Message, "immutable") || strings.Contains(c.Message, "updates to statefulset spec") ||
			strings.Contains(c.Message, "cannot change roleRef")
	})
}

// controlledByAnother tells whether the API server refused our controller
// reference because there is one already.
func controlledByAnother(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	return anyCause(status.Status(), func(c metav1.StatusCause) bool {
		return strings.HasPrefix(c.Field, "metadata.ownerReferences")
	})
}

// anotherObject tells whether the API server refused a write because the object
// of that name is not the one that was meant: its UID is another, or it is gone.
func anotherObject(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), "uid mismatch") ||
		apierrors.IsInvalid(err) && anyCause(status.Status(), func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

func anyCause(s metav1.Status, match func(metav1.StatusCause) bool) bool {
	if s.Details == nil {
		return false
	}
	for _, c := range s.Details.Causes {
		if match(c) {
			return true
		}
	}
	return false
}

// oneLine keeps a message of the API server readable in a condition.
func oneLine(err error) string {
	const most = 1024
	s := strings.TrimRight(strings.Join(strings.Fields(err.Error()), " "), ".")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
