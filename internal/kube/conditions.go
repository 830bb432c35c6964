// SPDX-License-Identifier: Apache-2.0

// Package kube holds small helpers on Kubernetes types that several rooms
// need: conditions, names, merges. It talks to no API server and knows no
// domain.
package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition is what a plan says about one aspect of an object, in the words
// that metav1.Condition and the Knative-style condition share.
type Condition struct {
	Type    string
	Status  metav1.ConditionStatus
	Reason  string
	Message string
	// Severity is Knative's: empty means that a False makes the object not
	// ready.
	Severity string
}

// Conditions are all aspects of an object, in the order they were first set.
type Conditions []Condition

// Set adds a condition or overwrites the one of its type.
func (cs *Conditions) Set(c Condition) {
	for i := range *cs {
		if (*cs)[i].Type == c.Type {
			(*cs)[i] = c
			return
		}
	}
	*cs = append(*cs, c)
}

// True says that an aspect is as it should be.
func (cs *Conditions) True(typ, reason, message string) {
	cs.Set(Condition{Type: typ, Status: metav1.ConditionTrue, Reason: reason, Message: message})
}

// False says that it is not, and what to do.
func (cs *Conditions) False(typ, reason, message string) {
	cs.Set(Condition{Type: typ, Status: metav1.ConditionFalse, Reason: reason, Message: message})
}

// Unknown says that it cannot be told yet.
func (cs *Conditions) Unknown(typ, reason, message string) {
	cs.Set(Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: reason, Message: message})
}

// Get finds a condition; the second result tells whether it is there.
func (cs Conditions) Get(typ string) (Condition, bool) {
	for _, c := range cs {
		if c.Type == typ {
			return c, true
		}
	}
	return Condition{}, false
}

// IsTrue tells whether a condition is there and True.
func (cs Conditions) IsTrue(typ string) bool {
	c, ok := cs.Get(typ)
	return ok && c.Status == metav1.ConditionTrue
}

// Summarise sets one condition from others: True when all of them are True,
// else what the first False says, else what the first Unknown or missing one
// says. So the summary carries the first cause and never contradicts its parts.
func (cs *Conditions) Summarise(typ, whenTrue string, of ...string) {
	worst := Condition{Status: metav1.ConditionTrue, Reason: typ, Message: whenTrue}
	for _, part := range of {
		c, ok := cs.Get(part)
		if !ok {
			c = Condition{Status: metav1.ConditionUnknown, Reason: "NotReported", Message: part + " has not been reported yet."}
		}
		if rank(c.Status) > rank(worst.Status) {
			worst = c
		}
	}
	worst.Type, worst.Severity = typ, ""
	cs.Set(worst)
}

func rank(s metav1.ConditionStatus) int {
	switch s {
	case metav1.ConditionTrue:
		return 0
	case metav1.ConditionUnknown:
		return 1
	}
	return 2
}

// Standard renders metav1 conditions. Transition times and generations are the
// engine's to fill in.
func (cs Conditions) Standard() []metav1.Condition {
	return Render(cs, func(c Condition) metav1.Condition {
		return metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}
	})
}

// Render turns conditions into a kind's own type, such as the Knative-style one.
func Render[C any](cs Conditions, as func(Condition) C) []C {
	out := make([]C, 0, len(cs))
	for _, c := range cs {
		out = append(out, as(c))
	}
	return out
}
