// SPDX-License-Identifier: Apache-2.0

// Package kuadrant writes and reads the few kinds of Kuadrant that models as a service need, as they are on the wire: the
// policy that asks for credentials at a gateway, and those that limit tokens. The product itself is no dependency, and need not
// be in the cluster. Nothing here decides who may do what; it only says it in Kuadrant's words.
package kuadrant

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/maas/naming"
)

// The kinds of Kuadrant.
var (
	AuthPolicy           = schema.GroupVersionKind{Group: "kuadrant.io", Version: "v1", Kind: "AuthPolicy"}
	TokenRateLimitPolicy = schema.GroupVersionKind{Group: "kuadrant.io", Version: "v1alpha1", Kind: "TokenRateLimitPolicy"}
	// Kuadrant is the object without which its operator does nothing. What it makes, and what that may read, is beside it.
	Kuadrant = schema.GroupVersionKind{Group: "kuadrant.io", Version: "v1beta1", Kind: "Kuadrant"}
)

// Kinds are those without which Kuadrant cannot enforce.
func Kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{AuthPolicy, TokenRateLimitPolicy}
}

// Target names what a policy is for.
type Target struct{ Kind, Namespace, Name string }

// String is also the value by which ByTarget finds policies.
func (t Target) String() string { return t.Kind + ":" + t.Namespace + "/" + t.Name }

// New is an empty policy.
func New(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// List is an empty list of policies.
func List(gvk schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return l
}

// TargetOf is what a policy is for. Targets are in the policy's own namespace.
func TargetOf(policy *unstructured.Unstructured) Target {
	ref, _, _ := unstructured.NestedStringMap(policy.Object, "spec", "targetRef")
	return Target{Kind: ref["kind"], Namespace: policy.GetNamespace(), Name: ref["name"]}
}

// ByTarget is an index of policies.
func ByTarget(obj client.Object) []string {
	if policy, ok := obj.(*unstructured.Unstructured); ok {
		return []string{TargetOf(policy).String()}
	}
	return nil
}

// Ours tells whether a policy was generated for models as a service, by this controller or by the one before.
func Ours(policy *unstructured.Unstructured) bool {
	return policy.GetLabels()[naming.LabelManagedBy] == naming.ManagedBy
}

// Left tells whether a user keeps a generated object for himself by a label; the engine knows the annotation.
func Left(obj client.Object) bool {
	return obj.GetLabels()[naming.Managed] == "false" || obj.GetAnnotations()[naming.Managed] == "false"
}

// Verdict is what Kuadrant says of a policy as it is now.
type Verdict struct {
	Accepted, Enforced bool
	// Told says that Kuadrant has looked at it at all, and Before that it has not, but was content with an earlier version.
	Told, Before bool
	// Message is what stands in the way, and Since when it began to.
	Message string
	Since   time.Time
}

// VerdictOn reads the conditions of a policy.
func VerdictOn(policy *unstructured.Unstructured) Verdict {
	var v Verdict
	conditions, _, _ := unstructured.NestedSlice(policy.Object, "status", "conditions")
	earlier, content := 0, true
	for _, item := range conditions {
		c, _ := item.(map[string]any)
		text := func(name string) string { s, _ := c[name].(string); return s }
		yes := text("status") == "True"
		if seen, stamped := c["observedGeneration"].(int64); stamped && seen < policy.GetGeneration() {
			earlier, content = earlier+1, content && yes
			continue
		}
		switch text("type") {
		case "Accepted":
			v.Accepted, v.Told = yes, true
		case "Enforced":
			v.Enforced = yes
		default:
			continue
		}
		if !yes && v.Message == "" {
			v.Message = strings.TrimRight(fmt.Sprintf("%s: %s", text("reason"), strings.Join(strings.Fields(text("message")), " ")), " .:")
			v.Since, _ = time.Parse(time.RFC3339, text("lastTransitionTime"))
		}
	}
	v.Before = earlier > 0 && content && v.Message == ""
	return v
}

func object(gvk schema.GroupVersionKind, namespace, name string, labels map[string]string, spec map[string]any) *unstructured.Unstructured {
	u := New(gvk)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetLabels(labels)
	u.Object["spec"] = spec
	return u
}

func targetRef(kind, name string) map[string]any {
	return map[string]any{"group": "gateway.networking.k8s.io", "kind": kind, "name": name}
}

// when is a list of predicates that all must hold.
func when(predicates ...string) []any {
	out := make([]any, 0, len(predicates))
	for _, p := range predicates {
		out = append(out, map[string]any{"predicate": p})
	}
	return out
}
