// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
)

// A port is the key of its list item: who edits it has an item of their own, and
// the name of the port forbids ours beside it.
func TestAnEditedListKeyIsSetBack(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*corev1.Service){
		"another port": func(s *corev1.Service) { s.Spec.Ports[0].Port = 8080 },
		"another port and one more": func(s *corev1.Service) {
			s.Spec.Ports[0].Port = 8080
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "more", Port: 9000, TargetPort: intstr.FromInt32(9000)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := enginetest.NewParallel(t)
			counter := testkit.NewCounter()
			b.Manage(t, counter.Wrap(b.Manager))
			b.Create(t, b.Sample("one", sample.SampleSpec{}))
			b.WaitReady(t, "one")
			svc := &corev1.Service{}
			if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "one"}, svc); err != nil {
				t.Fatal(err)
			}
			uid, address, want := svc.UID, svc.Spec.ClusterIP, slices.Clone(svc.Spec.Ports)
			edit(svc)
			metav1.SetMetaDataLabel(&svc.ObjectMeta, "team", "search")
			if err := b.C.Update(t.Context(), svc, client.FieldOwner("kubectl-edit")); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, 30*time.Second, "the ports to be as before", func() error {
				if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
					return err
				}
				if !slices.Equal(svc.Spec.Ports, want) {
					return fmt.Errorf("ports are %v", svc.Spec.Ports)
				}
				return nil
			})
			if svc.UID != uid || svc.Spec.ClusterIP != address {
				t.Error("the Service was replaced")
			}
			if svc.Labels["team"] != "search" {
				t.Error("what did no harm was taken away too")
			}
			b.WaitReady(t, "one")
			b.WaitEvents(t, "ChildRepaired", 1)
			testkit.NoWrites(t, counter, quietFor, "after the repair")
			if e := b.WaitEvents(t, "ChildRepaired", 1); !strings.Contains(e[0].Message, "kubectl-edit") {
				t.Errorf("events are %v", e)
			}
			for _, m := range svc.ManagedFields {
				if m.Manager == "kubectl-edit" && strings.Contains(string(m.FieldsV1.GetRawBytes()), "f:ports") {
					t.Errorf("the list is still shared: %s", m.FieldsV1.GetRawBytes())
				}
			}
		})
	}
}
