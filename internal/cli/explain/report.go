// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Report is everything that is said about one object.
type Report struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Ready is the verdict: the object says so, of its present generation, and its
	// pods do not belie it.
	Ready bool `json:"ready"`
	// Since when the object says what it says.
	Since              *metav1.Time `json:"since,omitempty"`
	Generation         int64        `json:"generation"`
	ObservedGeneration int64        `json:"observedGeneration,omitempty"`
	Facts              []Fact       `json:"facts,omitempty"`
	Children           []Node       `json:"children,omitempty"`
	Uses               []Node       `json:"uses,omitempty"`
	// Warnings are the newest events that tell of trouble.
	Warnings []Warning `json:"warnings,omitempty"`
	// Cause is why it is not ready, nil if it is.
	Cause *Cause `json:"cause,omitempty"`
	// Notes are worth knowing and change nothing about the verdict.
	Notes []string `json:"notes,omitempty"`
	// Commands show more, or mend it.
	Commands []string `json:"commands,omitempty"`
	// Unread is what could not be looked at, and why.
	Unread []string `json:"unread,omitempty"`

	now time.Time
	// unservedYet says that what answers is not of the present generation.
	unservedYet bool
	// childless is a kind of which nothing is made.
	childless bool
}

// Fact is a line of the header.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Health of one object.
type Health string

// Healths. An object of which nothing can be told has none.
const (
	Well    Health = "ok"
	Pending Health = "waiting"
	Failing Health = "failing"
)

// Node is an object in the tree.
type Node struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Namespace where it is not the explained object's.
	Namespace string `json:"namespace,omitempty"`
	State     string `json:"state,omitempty"`
	Health    Health `json:"health,omitempty"`
	// Reason is one word for what is wrong.
	Reason string `json:"reason,omitempty"`
	Nodes  []Node `json:"nodes,omitempty"`
	// More counts those that are not shown, and MoreReady how many of them are ready.
	More      int `json:"more,omitempty"`
	MoreReady int `json:"moreReady,omitempty"`
}

// Warning is an event, or several of the same words.
type Warning struct {
	Kind    string      `json:"kind"`
	Name    string      `json:"name"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Count   int         `json:"count"`
	Last    metav1.Time `json:"last"`
}

// Source says where a cause was found.
type Source string

// Sources of a cause.
const (
	FromCondition Source = "condition"
	FromPods      Source = "pods"
	FromObject    Source = "object"
)

// Cause is the first cause.
type Cause struct {
	Source Source `json:"source"`
	// Condition and its status, where a condition says it.
	Condition string `json:"condition,omitempty"`
	Status    string `json:"status,omitempty"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
	// Pod and Container where it happens.
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
}
