// SPDX-License-Identifier: Apache-2.0

// Package selection answers which subscription pays for a request: the one that the caller names, or the best of those that
// the caller owns and that have the model. It is an index that is told of every change of subscriptions, auth policies and
// model refs, so that an answer takes the same few look-ups however many of them there are. It is fed with plain values
// and knows no client and no HTTP.
//
// What is decided where more than one thing fits:
//
//   - Several subscriptions of the caller have the model: of those that work, the one with the highest priority. Where two of
//     them share the highest priority, nobody has said who pays, and the answer is multiple_subscriptions until the caller
//     names one. A negative priority counts as 0.
//   - A subscription that does not work (its phase, its deletion, or the limits of the model) is passed over as long as
//     another one works. Where none does, the answer is model_unhealthy.
//   - A model is asked for as namespace/name, else by its alias, else by its bare name. Several model refs with one alias: the
//     oldest has it, as the oldest route has the traffic. The answer does not depend on who asks.
//   - A bare name that several namespaces have means the one that the subscription lists; where it lists several, the caller
//     must name the namespace.
//   - Without a model (a key is made): the highest priority that works, then the largest limit, then the first name.
package selection

import (
	"slices"
	"time"
)

// Model names a model ref.
type Model struct{ Namespace, Name string }

func (m Model) String() string { return m.Namespace + "/" + m.Name }

// Limit is a number of tokens in a window such as 1h.
type Limit struct {
	Tokens int64
	Window string
}

// SubscribedModel is a model of a subscription.
type SubscribedModel struct {
	Model
	Limits   []Limit
	PerToken string // what a token costs; may be empty
	// Limited tells that the model's limits are in force, for subscriptions that are degraded.
	Limited bool
}

// Phases of subscriptions, as their status has them.
const (
	Active   = "Active"
	Degraded = "Degraded"
	Pending  = "Pending"
	Failed   = "Failed"
)

// Subscription is one object. It is not changed once it was given to the index or by it.
type Subscription struct {
	Namespace, Name          string
	DisplayName, Description string
	Users, Groups            []string
	Models                   []SubscribedModel
	Priority                 int32
	Phase                    string
	// Deleted is zero unless it is being deleted.
	Deleted time.Time

	OrganizationID, CostCenter string
	Labels                     map[string]string
}

// Key is namespace/name.
func (s *Subscription) Key() string { return s.Namespace + "/" + s.Name }

// EffectivePriority is never negative.
func (s *Subscription) EffectivePriority() int32 { return max(s.Priority, 0) }

// Works tells whether requests may be charged to it at all.
func (s *Subscription) Works() bool {
	return s.Deleted.IsZero() && (s.Phase == Active || s.Phase == Degraded)
}

// WorksFor is Works for one of its models: in a degraded subscription, the limits of that very model must be in force.
func (s *Subscription) WorksFor(m Model) bool {
	if !s.Works() {
		return false
	}
	if s.Phase == Active {
		return true
	}
	i := slices.IndexFunc(s.Models, func(o SubscribedModel) bool { return o.Model == m })
	return i >= 0 && s.Models[i].Limited
}

// largestLimit of all of its models.
func (s *Subscription) largestLimit() int64 {
	var out int64
	for _, m := range s.Models {
		for _, l := range m.Limits {
			out = max(out, l.Tokens)
		}
	}
	return out
}

// AuthPolicy opens models to users and groups.
type AuthPolicy struct {
	Namespace, Name string
	Users, Groups   []string
	Models          []Model
	// Deleted policies open nothing.
	Deleted time.Time
}

// ModelRef is a published model.
type ModelRef struct {
	Model
	// Alias is the name by which clients ask for it; may be empty.
	Alias   string
	Created time.Time

	// What lists of models tell.
	Kind, Backend, URL       string
	Ready                    bool
	DisplayName, Description string
	UseCase, ContextWindow   string
	Capabilities             []string
}

// Code of an Error, as gateways and clients know it.
type Code string

// Every code.
const (
	BadRequest            Code = "bad_request"
	NotFound              Code = "not_found"
	AccessDenied          Code = "access_denied"
	MultipleSubscriptions Code = "multiple_subscriptions"
	ModelNotIncluded      Code = "model_not_in_subscription"
	ModelUnhealthy        Code = "model_unhealthy"
	InternalError         Code = "internal_error"
)

// Error says why no subscription pays for a request.
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string { return e.Message }

// Request is who asks for what. Subscription and Model may be empty.
type Request struct {
	Username string
	Groups   []string
	// Subscription is a name or namespace/name.
	Subscription string
	// Model is namespace/name, an alias or a bare name.
	Model string
}

// Choice is the subscription that pays.
type Choice struct {
	Subscription *Subscription
	// Model that is meant; zero if none was asked for.
	Model Model
	// Allowed tells that an auth policy opens the model to the caller, or that none was asked for.
	Allowed bool
}
