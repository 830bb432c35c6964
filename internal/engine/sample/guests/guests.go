// SPDX-License-Identifier: Apache-2.0

// Package guests is the second sample of a domain room: it has no kind of its own, and uses the seams that most rooms do
// without. Service accounts with a label are guests of their namespace. It is not part of the product.
package guests

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
)

const (
	// Label with the value "true" makes a service account a guest.
	Label = "test.modelplane.dev/guest"
	// AnnotationRoom and AnnotationHost are what a guest says: a number, and the Service that has invited it.
	AnnotationRoom = "test.modelplane.dev/room"
	AnnotationHost = "test.modelplane.dev/host"
	// Managed with the value "false" on something that was made for a guest leaves it to the guest.
	Managed = "test.modelplane.dev/managed"
)

// Desk is another system, which hears of every guest. It may hear of one twice.
type Desk func(ctx context.Context, guest, room string) error

// checkIn is what the desk is asked for.
const checkIn = "check-in"

// Controller of guests. Select picks them among all service accounts; NoStatus says that these have none for us to write, so
// that problems are told in events; OptOut lets people keep what was made for them.
func Controller(desk Desk) engine.Controller {
	return engine.For[*corev1.ServiceAccount, Seen](kind{}, engine.Spec{
		Name: "guests", Select: labels.SelectorFromSet(labels.Set{Label: "true"}), NoStatus: true, OptOut: Managed,
		Children: []engine.ChildKind{{Object: &corev1.ConfigMap{}}},
		Inputs:   []engine.Input{{Object: &corev1.Service{}, MetadataOnly: true}},
		Executor: func(ctx context.Context, who types.NamespacedName, c engine.Call) (any, error) {
			room, _ := c.Request.(string)
			return nil, desk(ctx, who.Name, room)
		},
	})
}

// Seen is everything that the decision about a guest depends on.
type Seen struct {
	// Host is the Service that has invited the guest, nil while there is none.
	Host *metav1.PartialObjectMetadata
	// CheckedIn is what the desk said.
	CheckedIn engine.Answer
}

type kind struct{}

// Observe implements engine.Kind. What a call has come to is read like anything else.
func (kind) Observe(ctx context.Context, r engine.Reader, guest *corev1.ServiceAccount) (Seen, error) {
	seen := Seen{CheckedIn: r.Answer(checkIn, "")}
	name := guest.Annotations[AnnotationHost]
	if name == "" {
		return seen, nil
	}
	host := &metav1.PartialObjectMetadata{}
	host.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	err := r.Get(ctx, types.NamespacedName{Namespace: guest.Namespace, Name: name}, host)
	if err == nil {
		seen.Host = host
	}
	return seen, client.IgnoreNotFound(err)
}

// Plan implements engine.Kind.
func (kind) Plan(guest *corev1.ServiceAccount, seen Seen) engine.Plan {
	room := guest.Annotations[AnnotationRoom]
	if room == "" {
		return engine.Plan{KeepChildren: true, Problem: engine.MustChange("NoRoom", "The guest has no room. Set the annotation %s.", AnnotationRoom)}
	}
	plan := engine.Plan{
		Children: []engine.Child{
			// The same for all guests of a namespace; it goes with the last of them.
			{Object: note(guest, "welcome", "Breakfast is at eight."), Shared: true},
			// Empty at first; what the guest writes into it is never touched.
			{Object: note(guest, guest.Name+"-diary", ""), CreateOnly: true},
			{Object: note(guest, guest.Name+"-bed", "In room "+room+".")},
		},
		Calls: []engine.Call{{Name: checkIn, Request: room}},
	}
	if seen.Host != nil { // the badge is the host's, and goes with it
		plan.Children = append(plan.Children, engine.Child{Object: note(guest, guest.Name+"-badge", "Invited by "+seen.Host.Name+"."), Owner: &metav1.OwnerReference{
			APIVersion: "v1", Kind: "Service", Name: seen.Host.Name, UID: seen.Host.UID,
		}})
	}
	if seen.CheckedIn.Failures > 0 {
		plan.Problem = engine.WaitFor("NotCheckedIn", "The desk does not take the guest: %s. It is asked again; choose another room if it stays so.", seen.CheckedIn.Err)
	}
	return plan
}

func note(guest *corev1.ServiceAccount, name, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: guest.Namespace, Name: name}, Data: map[string]string{"text": text}}
}
