// SPDX-License-Identifier: Apache-2.0

// Package explain answers the question of the person on call: why is this
// object not ready, and what is there to do. It reads the object, what was made
// of it and the pods, and puts the first cause into a sentence.
//
// It knows Kubernetes and the engine; what is special about a kind comes in as
// About. It only reads, with the permissions of whoever asks, and never prints
// the content of a ConfigMap, a Secret or an environment variable.
package explain

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
)

// Explainer explains the kinds that have a controller.
type Explainer struct {
	Reader client.Reader
	// Served are the APIs of the cluster.
	Served []*restmapper.APIGroupResources
	// Scheme knows the kinds of the controllers and their children.
	Scheme      *runtime.Scheme
	Controllers []engine.Controller
	About       []About
	Now         func() time.Time
	// Kubectl and Self, which is this very command, begin what is suggested to be
	// typed, with the flags that lead to the same cluster.
	Kubectl, Self string
}

// About is what a domain knows of a kind and its controller does not say.
type About struct {
	Kind schema.GroupKind
	// Facts of the header.
	Facts []Path
	// Conditions in the order in which one depends on the other, and no others:
	// what comes first is the first cause.
	Conditions []string
	// Aside are conditions on which being ready does not depend; what is wrong by them is noted.
	Aside []string
	// Latest is the condition that is not True while what was asked for last is not served yet, and may be missing.
	Latest string
	// Commands to suggest for a reason, after "kubectl". NAMESPACE and NAME
	// are replaced.
	Commands map[string][]string
	// Uses are objects that it needs and did not make.
	Uses func(*unstructured.Unstructured) []Ref
}

// Path is a string in an object. Of several with one label the first that is
// there counts.
type Path struct {
	Label  string
	Fields []string
	// Prefix is put before the value.
	Prefix string
}

// Ref names an object.
type Ref struct {
	schema.GroupVersionKind
	Namespace, Name string
}

// Explain looks at one object. The kind is as a person writes it: in singular or
// plural, as a short name, with or without its group.
func (e *Explainer) Explain(ctx context.Context, kind, namespace, name string) (*Report, error) {
	k, err := e.resolve(kind)
	if err != nil {
		return nil, err
	}
	if !k.resource.Namespaced {
		namespace = ""
	}
	x := &exploration{Explainer: e, kind: k, reads: &reads{from: e.Reader}}
	if err := x.start(ctx, client.ObjectKey{Namespace: namespace, Name: name}); err != nil {
		return nil, err
	}
	x.look(ctx)
	return x.report(ctx), nil
}

// exploration is one look at one object.
type exploration struct {
	*Explainer
	*reads
	kind *kind

	obj      *unstructured.Unstructured
	children []unstructured.Unstructured
	// workloads are the Deployments among the children, with their pods.
	workloads []*workload
	tree      []Node
	uses      []Node
}

// start reads the object itself, without which there is nothing to say.
func (x *exploration) start(ctx context.Context, key client.ObjectKey) error {
	x.obj = &unstructured.Unstructured{}
	x.obj.SetGroupVersionKind(x.kind.gvk)
	err := x.from.Get(ctx, key, x.obj)
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return x.notFound(ctx, key)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not read %s %s: %w", x.kind.gvk.Kind, key, err)
	}
	return fmt.Errorf("read %s %s: %w", x.kind.gvk.Kind, key, err)
}

// look reads what was made of the object, and what it needs.
func (x *exploration) look(ctx context.Context) {
	x.children = x.findChildren(ctx)
	x.workloads = x.findWorkloads(ctx)
	endpoints := x.findEndpoints(ctx)
	for i := range x.children {
		x.tree = append(x.tree, x.nodeOf(&x.children[i], endpoints))
	}
	if x.kind.about.Uses == nil {
		return
	}
	for _, ref := range x.kind.about.Uses(x.obj) {
		x.uses = append(x.uses, x.nodeOfUsed(ctx, ref))
	}
}

// report puts together what was seen.
func (x *exploration) report(ctx context.Context) *Report {
	r := &Report{
		APIVersion: x.kind.gvk.GroupVersion().String(), Kind: x.kind.gvk.Kind,
		Namespace: x.obj.GetNamespace(), Name: x.obj.GetName(),
		Generation: x.obj.GetGeneration(), Facts: x.facts(),
		Children: x.tree, Uses: x.uses, childless: len(x.kind.controller.Spec().Children) == 0,
	}
	x.judge(ctx, r)
	r.Warnings = x.warnings(ctx, r.Cause)
	r.Unread = x.missed()
	r.now = x.Now()
	return r
}

func (x *exploration) facts() []Fact {
	var out []Fact
	for _, p := range x.kind.about.Facts {
		value, ok, err := unstructured.NestedString(x.obj.Object, p.Fields...)
		if !ok || err != nil || value == "" {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Name == p.Label {
			continue
		}
		out = append(out, Fact{Name: p.Label, Value: p.Prefix + value})
	}
	return out
}
