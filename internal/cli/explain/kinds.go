// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/modelplane/modelplane/internal/engine"
)

// kind is one that can be explained in this cluster.
type kind struct {
	gvk        schema.GroupVersionKind
	resource   metav1.APIResource
	controller engine.Controller
	about      About
}

// resolve finds the kind that a person means.
func (e *Explainer) resolve(text string) (*kind, error) {
	word, group, _ := strings.Cut(strings.ToLower(text), ".")
	var found, all []*kind
	served := false
	for _, c := range e.Controllers {
		gvk, err := apiutil.GVKForObject(c.Object(), e.Scheme)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(k *kind) bool { return k.gvk == gvk }) {
			continue // a second controller; the first one makes the children
		}
		k := &kind{gvk: gvk, controller: c, about: e.aboutOf(gvk.GroupKind())}
		if r := e.served(gvk); r != nil {
			k.resource, served = *r, true
		}
		all = append(all, k)
		if k.called(word) && (group == "" || group == gvk.Group || group == gvk.Version+"."+gvk.Group) {
			found = append(found, k)
		}
	}
	switch {
	case len(found) == 1 && found[0].resource.Name == "":
		return nil, fmt.Errorf("the cluster does not serve %s of %s: check that Modelplane is installed, and that this is the right cluster",
			found[0].gvk.Kind, found[0].gvk.GroupVersion())
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("%q is a kind of several groups: choose from %s", text, enumerate(found, (*kind).long))
	case !served:
		return nil, fmt.Errorf("the cluster serves no kind of Modelplane (%s): check that it is installed, and that this is the right cluster",
			enumerate(all, (*kind).short))
	}
	return nil, fmt.Errorf("%q cannot be explained: choose from %s", text, enumerate(all, (*kind).short))
}

func (k *kind) called(word string) bool {
	return word == k.short() || word != "" && (word == k.resource.Name || word == k.resource.SingularName || slices.Contains(k.resource.ShortNames, word))
}

func (k *kind) short() string { return strings.ToLower(k.gvk.Kind) }

func (k *kind) long() string { return k.short() + "." + k.gvk.Group }

func enumerate(kinds []*kind, name func(*kind) string) string {
	var names []string
	for _, k := range kinds {
		names = append(names, name(k))
	}
	return strings.Join(names, ", ")
}

func (e *Explainer) aboutOf(gk schema.GroupKind) About {
	for _, a := range e.About {
		if a.Kind == gk {
			return a
		}
	}
	return About{}
}

// served is how the cluster serves a kind, nil if it does not.
func (e *Explainer) served(gvk schema.GroupVersionKind) *metav1.APIResource {
	for _, g := range e.Served {
		if g.Group.Name != gvk.Group {
			continue
		}
		resources := g.VersionedResources[gvk.Version]
		for i := range resources {
			if resources[i].Kind == gvk.Kind && !strings.Contains(resources[i].Name, "/") {
				return &resources[i]
			}
		}
	}
	return nil
}

// notFound says which names come near, and where else there is one of that name.
func (x *exploration) notFound(ctx context.Context, key client.ObjectKey) error {
	text := fmt.Sprintf("there is no %s %s", x.kind.short(), key.Name)
	if key.Namespace != "" {
		text += " in namespace " + key.Namespace
		if others := x.namespacesOf(ctx, key.Name); len(others) > 0 {
			return fmt.Errorf("%s, but in %s: add -n", text, strings.Join(others, ", "))
		}
	}
	var names []string
	for _, u := range x.list(ctx, x.kind.gvk, query{namespace: key.Namespace, metadata: true}) {
		names = append(names, u.GetName())
	}
	if near := nearest(key.Name, names); len(near) > 0 {
		return fmt.Errorf("%s: did you mean %s?", text, strings.Join(near, " or "))
	}
	if key.Namespace != "" && len(names) == 0 && len(x.missed()) == 0 {
		return fmt.Errorf("%s, nor any other: check the namespace (-n) and the cluster (--context)", text)
	}
	return fmt.Errorf("%s", text)
}

// namespacesOf are those that have an object of the name. Who may not look
// everywhere is not told.
func (x *exploration) namespacesOf(ctx context.Context, name string) []string {
	aside := &reads{from: x.from}
	var out []string
	for _, u := range aside.list(ctx, x.kind.gvk, query{metadata: true, fields: fields.OneTermEqualSelector("metadata.name", name)}) {
		out = append(out, u.GetNamespace())
	}
	slices.Sort(out)
	return out[:min(len(out), 3)]
}

// nearest are up to three names that are a slip of the finger, or a piece, away.
func nearest(name string, names []string) []string {
	type near struct {
		name     string
		distance int
	}
	var found []near
	for _, n := range names {
		d := distance(name, n)
		if d <= max(2, len(name)/3) || strings.Contains(n, name) || strings.Contains(name, n) {
			found = append(found, near{n, d})
		}
	}
	slices.SortFunc(found, func(a, b near) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, n := range found[:min(len(found), 3)] {
		out = append(out, n.name)
	}
	return out
}

// distance counts the letters to add, drop or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}

// used reads an object that the explained one needs.
func (x *exploration) nodeOfUsed(ctx context.Context, ref Ref) Node {
	n := Node{Kind: ref.Kind, Name: ref.Name, Namespace: x.elsewhere(ref.Namespace)}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(ref.GroupVersionKind)
	switch x.get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, u) {
	case present:
		n.State, n.Health, n.Reason = conditionState(u)
	case absent:
		n.State, n.Health, n.Reason = "does not exist", Failing, "NotFound"
	case unknown:
		n.State = "not read"
	}
	return n
}

// elsewhere is a namespace only if it is another than the object's.
func (x *exploration) elsewhere(namespace string) string {
	if namespace == x.obj.GetNamespace() {
		return ""
	}
	return namespace
}
