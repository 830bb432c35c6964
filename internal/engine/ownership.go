// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/kube"
)

// StatusOwnership is the part of a status that one controller decides where
// several look after one kind. The engine writes nothing else of it, and keeps
// the rest as it stands. It is a list, and not server-side apply of the status,
// because most kinds have their conditions in a list without keys.
type StatusOwnership struct {
	// Conditions by their types. The condition of Spec.Ready must be among them;
	// Stalled may be.
	Conditions []string
	// Alone are conditions that it decides as well in a process where no controller decides the rest, so that those who
	// wait for them do not wait in vain.
	Alone []string
	// Fields of the status, by their names in JSON; "components.predictor" is one entry of the map components.
	Fields []string
	// Where limits it to some objects, such as those of one mode. Of all others it has nothing. All if nil.
	Where func(client.Object) bool
}

// Concerns tells whether it has a part of an object's status.
func (o *StatusOwnership) Concerns(obj client.Object) bool { return o.Where == nil || o.Where(obj) }

// second tells whether another controller is the first of the kind: the one that
// decides what nobody else does, and whose word counts for metrics of objects.
func (s *Spec) second() bool { return s.Status != nil }

// ready tells whether the object works, as far as this controller is concerned.
// A second controller that has nothing to say has nothing to complain of.
func (s *Spec) ready(conditions kube.Conditions) bool {
	_, said := conditions.Get(s.readyType())
	return conditions.IsTrue(s.readyType()) || (s.second() || s.NoStatus) && !said
}

// part is one controller's part of encoded statuses.
type part struct {
	owns *StatusOwnership
	// all are those who look after the kind, which is complete when they start.
	all *lookers
}

// on is the part of one object's status.
func (p part) on(obj client.Object) part {
	if p.all == nil {
		return p
	}
	out := part{owns: p.owns, all: &lookers{}}
	if p.owns != nil && !p.owns.Concerns(obj) {
		out.owns = &StatusOwnership{}
	}
	for _, s := range p.all.specs {
		if s.Status == nil || s.Status.Concerns(obj) {
			out.all.specs = append(out.all.specs, s)
		}
	}
	return out
}

// entries are the fields that are entries of maps.
func (p part) entries() []string {
	var out []string
	if p.all == nil {
		return nil
	}
	for _, s := range p.all.specs {
		if s.Status == nil {
			continue
		}
		for _, f := range s.Status.Fields {
			if strings.Contains(f, ".") {
				out = append(out, f)
			}
		}
	}
	return out
}

// lift makes fields of entries of maps.
func lift(status map[string]any, entries []string) map[string]any {
	out := maps.Clone(status)
	for _, e := range entries {
		name, entry, _ := strings.Cut(e, ".")
		from, _ := out[name].(map[string]any)
		value, there := from[entry]
		if !there {
			continue
		}
		from = maps.Clone(from)
		delete(from, entry)
		if out[name] = from; len(from) == 0 {
			delete(out, name)
		}
		out[e] = value
	}
	return out
}

// lower puts them back.
func lower(status map[string]any, entries []string) map[string]any {
	for _, e := range entries {
		value, there := status[e]
		if !there {
			continue
		}
		name, entry, _ := strings.Cut(e, ".")
		into, _ := status[name].(map[string]any)
		if into = maps.Clone(into); into == nil {
			into = map[string]any{}
		}
		into[entry] = value
		status[name] = into
		delete(status, e)
	}
	return status
}

// decides tells whether a condition is this controller's.
func (p part) decides(condition string) bool {
	alone := p.all != nil && !slices.ContainsFunc(p.all.specs, func(s Spec) bool { return s.Status == nil })
	return p.has(func(o *StatusOwnership) bool {
		return slices.Contains(o.Conditions, condition) || alone && slices.Contains(o.Alone, condition)
	})
}

func (p part) decidesField(name string) bool {
	return p.has(func(o *StatusOwnership) bool { return slices.Contains(o.Fields, name) })
}

// has is about the controller's own list, or else about all others'.
func (p part) has(listed func(*StatusOwnership) bool) bool {
	if p.owns != nil {
		return listed(p.owns)
	}
	return p.all == nil || !slices.ContainsFunc(p.all.specs, func(s Spec) bool { return s.Status != nil && listed(s.Status) })
}

// whole tells whether all of the status is this controller's.
func (p part) whole() bool { return p.owns == nil && (p.all == nil || len(p.all.specs) < 2) }

// of is this controller's part of a status.
func (p part) of(status map[string]any) map[string]any {
	if p.whole() {
		return status
	}
	entries := p.entries()
	return lower(p.fields(lift(status, entries)), entries)
}

// fields is this controller's part of a status whose entries are lifted.
func (p part) fields(status map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range status {
		if name != conditionsField && p.decidesField(name) {
			out[name] = value
		}
	}
	var own []any
	for _, c := range rawConditions(status) {
		if p.decides(typeOf(c)) {
			own = append(own, c)
		}
	}
	if own != nil {
		out[conditionsField] = own
	}
	return out
}

// merge puts this controller's part of a planned status into the live one. The
// conditions stay in their places, so that controllers do not dispute their order.
func (p part) merge(live, planned map[string]any) map[string]any {
	if p.whole() {
		return planned
	}
	entries := p.entries()
	live = lift(live, entries)
	next := p.fields(lift(planned, entries))
	for name, value := range live {
		if name != conditionsField && !p.decidesField(name) {
			next[name] = runtime.DeepCopyJSONValue(value)
		}
	}
	left := rawConditions(next)
	var merged []any
	for _, c := range rawConditions(live) {
		if !p.decides(typeOf(c)) {
			merged = append(merged, runtime.DeepCopyJSON(c))
			continue
		}
		at := slices.IndexFunc(left, func(n map[string]any) bool { return typeOf(n) == typeOf(c) })
		if at >= 0 {
			merged = append(merged, left[at])
			left = slices.Delete(left, at, at+1)
		}
	}
	for _, c := range left {
		merged = append(merged, c)
	}
	delete(next, conditionsField)
	if merged != nil {
		next[conditionsField] = merged
	}
	return lower(next, entries)
}

const conditionsField = "conditions"

func typeOf(condition map[string]any) string {
	t, _ := condition["type"].(string)
	return t
}

// lookers are all controllers that look after one kind.
type lookers struct{ specs []Spec }

// claims tells who decides what of which kind.
type claims map[schema.GroupKind]*lookers

// add refuses a controller whose status another would overwrite for ever.
func (c claims) add(gk schema.GroupKind, s Spec) (part, error) {
	if s.NoStatus {
		return part{}, nil
	}
	all := c[gk]
	if all == nil {
		all = &lookers{}
		c[gk] = all
	}
	if s.Status != nil && !slices.Contains(s.Status.Conditions, s.readyType()) {
		return part{}, fmt.Errorf("its condition %s is not among those that it decides", s.readyType())
	}
	for _, other := range all.specs {
		if what := overlap(s.Status, other.Status); what != "" {
			return part{}, fmt.Errorf("it and the controller %s both decide %s of the status of %s: give one of them a Status of its own", other.Name, what, gk.Kind)
		}
	}
	all.specs = append(all.specs, s)
	return part{owns: s.Status, all: all}, nil
}

// overlap names something that two controllers both decide.
func overlap(a, b *StatusOwnership) string {
	switch {
	case a == nil && b == nil:
		return "all"
	case a == nil || b == nil:
		return "" // one decides what the other does not
	}
	for _, condition := range b.Conditions {
		if slices.Contains(a.Conditions, condition) {
			return "the condition " + condition
		}
	}
	for _, field := range b.Fields {
		if slices.Contains(a.Fields, field) {
			return "the field " + field
		}
	}
	return ""
}
