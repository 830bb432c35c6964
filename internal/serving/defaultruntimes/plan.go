// SPDX-License-Identifier: Apache-2.0

package defaultruntimes

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelplane/modelplane/internal/engine"
)

// Plan implements engine.Kind.
func (Kind) Plan(cm *corev1.ConfigMap, seen Seen) engine.Plan {
	want, unread := wanted(cm)
	plan := engine.Plan{}
	for _, key := range sorted(want) {
		l, there := seen[key]
		if !there {
			plan.Children = append(plan.Children, written(want[key]))
			continue
		}
		plan.Children = append(plan.Children, beside(want[key], l))
	}
	for _, key := range sorted(seen) {
		switch {
		case want[key] != nil || !seen[key].ours():
		case unread != nil: // what cannot be read must not be taken for removed
			plan.Children = append(plan.Children, left(key))
		default:
			plan.Children = append(plan.Children, removed(key, seen[key]))
		}
	}
	if unread != nil {
		plan.Problem = engine.MustChange("EntryUnreadable",
			"%s. What is there stays until then. Correct the entry, or install the release again.", strings.ReplaceAll(unread.Error(), "\n", "; "))
	}
	return plan
}

func sorted[V any](m map[id]V) []id {
	return slices.SortedFunc(maps.Keys(m), func(a, b id) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
}

// beside decides about an object that has the name of one that the release brings.
func beside(o *unstructured.Unstructured, l live) engine.Child {
	asked, noted := o.GetAnnotations()[Asked], l.Annotations[Asked]
	switch {
	case !l.ours(): // somebody else made it
		return left(idOf(o))
	case l.Labels[engine.LabelTakingOver] != "":
		return adopted(idOf(o), l, noted) // until that is finished
	case l.Annotations[digestKey] == o.GetAnnotations()[digestKey]:
		return left(idOf(o))
	case asked != "" && noted == "" && l.applied():
		return noting(idOf(o), l, asked)
	case asked != "" && noted == "":
		return adopted(idOf(o), l, asked)
	case asked != "" && asked == noted: // the release brings another version, which nobody asked for
		return left(idOf(o))
	case !l.applied(): // first its fields must be ours, so that those which the release no longer has go
		return adopted(idOf(o), l, noted)
	}
	return written(o)
}

// written is a child as the release brings it. It belongs to no ConfigMap in
// particular: the next one finds it.
func written(o *unstructured.Unstructured) engine.Child {
	return engine.Child{Object: o, Shared: true, Retain: true}
}

// left is a child that stays as it is.
func left(key id) engine.Child {
	return engine.Child{Object: key.object(), Shared: true, Retain: true, Unmanaged: true}
}

// removed is what the release no longer brings.
func removed(key id, l live) engine.Child {
	o := key.object()
	o.SetUID(l.UID)
	return engine.Child{Object: o, Shared: true, Retain: true, Delete: true}
}

// adopted makes an object ours that was brought before the engine did that, without
// a change of what it says.
func adopted(key id, l live, asked string) engine.Child {
	o := marked(key, l, asked)
	o.SetUID(l.UID)
	return engine.Child{Object: o, Shared: true, Retain: true, Adopt: true}
}

// noting writes what was asked for into an object that was brought when nobody noted
// that, and changes nothing else.
func noting(key id, l live, asked string) engine.Child {
	if l.spec == nil {
		return left(key) // not seen yet
	}
	o := marked(key, l, asked)
	o.SetLabels(foreign(l.Labels))
	o.SetAnnotations(with(foreign(l.Annotations), Asked, asked))
	o.Object["spec"] = l.spec
	return written(o)
}

// foreign are marks that the engine does not set itself.
func foreign(marks map[string]string) map[string]string {
	out := maps.Clone(marks)
	delete(out, engine.LabelOwner)
	delete(out, engine.LabelIntent)
	return out
}

// marked is an object with the marks that it has, and with what was asked for.
func marked(key id, l live, asked string) *unstructured.Unstructured {
	o := key.object()
	o.SetLabels(map[string]string{Label: l.Labels[Label]})
	annotations := map[string]string{digestKey: l.Annotations[digestKey]}
	if asked != "" {
		annotations[Asked] = asked
	}
	o.SetAnnotations(annotations)
	return o
}
