// SPDX-License-Identifier: Apache-2.0

package guests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/engine/sample/guests"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

// desk writes down who came, and takes nobody to room 13.
type desk struct {
	mu   sync.Mutex
	book []string
}

func (d *desk) checkIn(_ context.Context, guest, room string) error {
	if room == "13" {
		return errors.New("there is no such room")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.book = append(d.book, guest+" "+room)
	return nil
}

func (d *desk) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.book)
}

type bench struct {
	*domaintest.Bench
	desk    *desk
	counter *testkit.Counter
}

func newBench(t *testing.T) *bench {
	t.Helper()
	cluster := testkit.Start(t)
	b := &bench{Bench: domaintest.New(t, cluster, clientgoscheme.Scheme), desk: &desk{}, counter: testkit.NewCounter()}
	controller := guests.Controller(b.desk.checkIn)
	rules, err := engine.Rules(clientgoscheme.Scheme, controller)
	if err != nil {
		t.Fatal(err)
	}
	b.Manager = charttest.RBAC(t, cluster, b.NS, rules...)
	testkit.Manage(t, func(ctx context.Context) error {
		return domaintest.Run(ctx, b.counter.Wrap(b.Manager), clientgoscheme.Scheme, controller)
	})
	return b
}

func (b *bench) guest(name, room string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.NS, Name: name, Labels: map[string]string{guests.Label: "true"},
		Annotations: map[string]string{guests.AnnotationRoom: room, guests.AnnotationHost: "hotel"},
	}}
}

// says waits until something that was made for a guest has a text, and returns it.
func (b *bench) says(t *testing.T, name, text string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{}
	testkit.Eventually(t, domaintest.Patience, name+" to say "+text, func() error {
		if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: name}, cm); err != nil {
			return err
		}
		if cm.Data["text"] != text {
			return fmt.Errorf("it says %q", cm.Data["text"])
		}
		return nil
	})
	return cm
}

// TestGuests: each seam does what the room says of it.
func TestGuests(t *testing.T) {
	b := newBench(t)
	ada, bob, passerby := b.guest("ada", "7"), b.guest("bob", "8"), b.guest("passer-by", "9")
	passerby.Labels = nil
	b.Create(t, ada, bob, passerby)
	b.says(t, "welcome", "Breakfast is at eight.")
	b.says(t, "ada-bed", "In room 7.")
	b.says(t, "bob-bed", "In room 8.")
	hotel := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "hotel"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	b.Create(t, hotel)
	if badge := b.says(t, "ada-badge", "Invited by hotel."); !metav1.IsControlledBy(badge, hotel) {
		t.Errorf("the badge belongs to %v", badge.OwnerReferences)
	}
	testkit.Eventually(t, domaintest.Patience, "both to be checked in", func() error {
		if book := slices.Sorted(slices.Values(b.desk.read())); !slices.Equal(book, []string{"ada 7", "bob 8"}) {
			return fmt.Errorf("the book has %v", book)
		}
		return nil
	})

	diary, bed := b.says(t, "ada-diary", ""), b.says(t, "ada-bed", "In room 7.")
	b.Change(t, diary, func() { diary.Data["text"] = "Arrived." })
	b.Change(t, bed, func() { bed.Annotations, bed.Data["text"] = map[string]string{guests.Managed: "false"}, "Mine." })
	b.Change(t, ada, func() { ada.Annotations[guests.AnnotationRoom] = "70" })
	b.Change(t, bob, func() { bob.Annotations[guests.AnnotationRoom] = "80" })
	b.says(t, "bob-bed", "In room 80.")
	testkit.Eventually(t, domaintest.Patience, "the new rooms in the book", func() error {
		if book := b.desk.read(); !slices.Contains(book, "ada 70") || !slices.Contains(book, "bob 80") || len(book) != 4 {
			return fmt.Errorf("the book has %v", book)
		}
		return nil
	})
	testkit.NoWrites(t, b.counter, time.Second, "when all have what they want")
	b.says(t, "ada-diary", "Arrived.")
	b.says(t, "ada-bed", "Mine.")
	if err := b.C.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "passer-by-bed"}, &corev1.ConfigMap{}); err == nil {
		t.Error("somebody without the label has a bed")
	}

	b.Delete(t, ada)
	b.says(t, "welcome", "Breakfast is at eight.")
	b.Delete(t, bob)
	b.Gone(t, &corev1.ConfigMap{}, "welcome")
}

// TestDeskRefuses: what another system says to a guest is told, and asked again when the guest changes its mind.
func TestDeskRefuses(t *testing.T) {
	b := newBench(t)
	eve := b.guest("eve", "13")
	b.Create(t, eve)
	if note := b.Told(t, eve, "NotCheckedIn"); !strings.Contains(note, "there is no such room") {
		t.Errorf("the guest hears %q", note)
	}
	b.Change(t, eve, func() { eve.Annotations[guests.AnnotationRoom] = "12" })
	testkit.Eventually(t, domaintest.Patience, "the guest in the book", func() error {
		if book := b.desk.read(); !slices.Equal(book, []string{"eve 12"}) {
			return fmt.Errorf("the book has %v", book)
		}
		return nil
	})
}
