// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// childKey identifies a child in the cluster.
type childKey struct {
	gvk schema.GroupVersionKind
	types.NamespacedName
}

func (k childKey) String() string {
	if k.Namespace == "" {
		return k.gvk.Kind + " " + k.Name
	}
	return k.gvk.Kind + " " + k.Namespace + "/" + k.Name
}

// intent is a child as it will be sent: exactly the fields we own.
type intent struct {
	Child
	key    childKey
	body   *unstructured.Unstructured
	digest string
	// initial are the values of Child.Initial, which body and digest are without.
	initial []initialField
	// uid is that of the very object that the plan means, if it says so.
	uid types.UID
	// holder is whose child it is: the owner's UID, or OwnerShared.
	holder types.UID
	// reachable says that an owner reference ties the child to its owner, so
	// that the cluster's garbage collector cleans it up.
	reachable bool
	// reached is the version that the cache had reached before the child was
	// looked for in it.
	reached string
}

// owner is the object on whose behalf children exist.
type owner struct {
	client.Object
	gvk schema.GroupVersionKind
}

// ref names the owner in an annotation.
func (o owner) ref() string {
	return strings.Join([]string{o.gvk.GroupKind().String(), o.GetNamespace(), o.GetName()}, "/")
}

// newIntent turns a planned child into what is sent. It fails when the child
// is not well-formed, which is a mistake of the plan.
func newIntent(scheme *runtime.Scheme, o owner, c Child) (*intent, error) {
	body, gvk, err := bodyOf(scheme, c.Object)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: body}
	u.SetGroupVersionKind(gvk)
	if u.GetName() == "" {
		return nil, fmt.Errorf("the plan names a %s without a name", gvk.Kind)
	}
	if c.Retain && c.Owner != nil {
		return nil, fmt.Errorf("the plan retains %s %s and gives it an owner", gvk.Kind, u.GetName())
	}
	in := &intent{Child: c, body: u, uid: u.GetUID(), holder: o.GetUID(), reachable: c.Owner != nil || !c.Retain && !c.Shared && (o.GetNamespace() == "" || o.GetNamespace() == u.GetNamespace())}
	u.SetUID("")
	if c.Shared {
		in.holder = OwnerShared
	}
	in.key = childKey{gvk: gvk, NamespacedName: types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}}
	in.mark(o)
	if err := in.setAside(); err != nil {
		return nil, err
	}
	if err := in.seal(); err != nil {
		return nil, err
	}
	return in, nil
}

// bodyOf encodes the fields that a plan set, and no others.
func bodyOf(scheme *runtime.Scheme, obj client.Object) (map[string]any, schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, gvk, fmt.Errorf("the plan names a child of an unknown kind: %w", err)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		obj = u.DeepCopy() // encoding it would share its maps
	}
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, gvk, fmt.Errorf("encode %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	delete(body, "status")
	dropNulls(body)
	return body, gvk, nil
}

// mark ties the child to its owner.
func (in *intent) mark(o owner) {
	labels := in.body.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelOwner] = string(in.holder)
	if in.Shared && !in.Retain {
		labels[LabelGoesWithLast] = "true"
	}
	in.body.SetLabels(labels)
	if in.Shared {
		return // it must look the same whoever plans it
	}
	if in.Owner != nil {
		ref, yes := *in.Owner, true
		ref.Controller = &yes
		in.body.SetOwnerReferences([]metav1.OwnerReference{ref})
	}
	if in.reachable && in.Owner == nil {
		yes := true
		in.body.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: o.gvk.GroupVersion().String(), Kind: o.gvk.Kind, Name: o.GetName(), UID: o.GetUID(),
			Controller: &yes, BlockOwnerDeletion: &yes,
		}})
		return
	}
	annotations := in.body.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationOwner] = o.ref()
	if in.Retain {
		annotations[AnnotationRetained] = "true"
	}
	in.body.SetAnnotations(annotations)
}

// seal computes the digest over everything but itself and writes it down.
func (in *intent) seal() error {
	raw, err := json.Marshal(in.body.Object) // maps are encoded in key order
	if err != nil {
		return fmt.Errorf("encode %s: %w", in.key, err)
	}
	sum := sha256.Sum256(raw)
	in.digest = hex.EncodeToString(sum[:12])
	labels := in.body.GetLabels()
	labels[LabelIntent] = in.digest
	in.body.SetLabels(labels)
	return nil
}

// noise are structs that typed objects encode as {} when nobody set them. For
// most other fields {} means something (emptyDir: {}).
var noise = map[string]bool{"resources": true, "strategy": true, "updateStrategy": true, "status": true}

// dropNulls removes what typed objects encode although nobody set it: an
// applied null would claim the field.
func dropNulls(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			dropNulls(v)
			if len(v) == 0 && noise[k] {
				delete(m, k)
			}
		case []any:
			for _, e := range v {
				if em, ok := e.(map[string]any); ok {
					dropNulls(em)
				}
			}
		}
	}
}
