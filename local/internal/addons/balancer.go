// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// balanced is what Services are told of their address. A name and not an address, because kube-proxy would take packets to
// an address for its own.
var balanced = []corev1.LoadBalancerIngress{{Hostname: "localhost"}}

// balancer gives Services of type LoadBalancer the ports that they ask for, on the machine's own loopback addresses:
// whoever works on the machine reaches them, and no other machine does. What comes in goes to the Service's own address.
type balancer struct {
	client   kubernetes.Interface
	sources  informers.SharedInformerFactory
	services corelisters.ServiceLister
	events   record.EventRecorder
	tell     record.EventBroadcaster
	doors    map[int32]*door
	open     func(port int32) (*door, error)
}

func newBalancer(client kubernetes.Interface) *balancer {
	sources := informers.NewSharedInformerFactory(client, 0)
	tell := record.NewBroadcaster()
	return &balancer{
		client: client, sources: sources, tell: tell, services: sources.Core().V1().Services().Lister(),
		events: tell.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "modelplane.dev/local"}),
		doors:  map[int32]*door{}, open: openDoor,
	}
}

func (b *balancer) run(ctx context.Context, ready func()) error {
	b.tell.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: b.client.CoreV1().Events("")})
	defer b.tell.Shutdown()
	defer b.keepOnly(nil)
	return lookAfterChanges(ctx, b.sources, []cache.SharedIndexInformer{b.sources.Core().V1().Services().Informer()},
		ready, b.look, "Not every Service has its ports on this machine")
}

// look opens what is asked for and closes the rest. The older of two Services that want one port has it.
func (b *balancer) look(ctx context.Context) error {
	all, err := b.services.List(labels.Everything())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s *corev1.Service) bool {
		return s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.LoadBalancerClass != nil || s.DeletionTimestamp != nil || s.Spec.ClusterIP == ""
	})
	slices.SortFunc(all, func(x, y *corev1.Service) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	taken := map[int32]string{}
	for _, s := range all {
		for _, p := range s.Spec.Ports {
			if name := s.Namespace + "/" + s.Name; taken[p.Port] == "" {
				taken[p.Port] = name
			}
		}
	}
	b.keepOnly(taken)
	var failures []error
	for _, s := range all {
		if err := b.provide(ctx, s, taken); err != nil {
			failures = append(failures, fmt.Errorf("service %s of %s: %w", s.Name, s.Namespace, err))
			b.events.Event(s, corev1.EventTypeWarning, "NoPortOnThisMachine", err.Error())
		}
	}
	return errors.Join(failures...)
}

// keepOnly closes every other door.
func (b *balancer) keepOnly(wanted map[int32]string) {
	for port, door := range b.doors {
		if wanted[port] == "" {
			door.close()
			delete(b.doors, port)
		}
	}
}

// provide opens the ports of one Service and tells it so.
func (b *balancer) provide(ctx context.Context, s *corev1.Service, taken map[int32]string) error {
	for _, p := range s.Spec.Ports {
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			return fmt.Errorf("port %d is %s, and only TCP is handed on to Services here", p.Port, p.Protocol)
		}
		if owner := taken[p.Port]; owner != s.Namespace+"/"+s.Name {
			return fmt.Errorf("port %d of this machine is that of the Service %s; choose another, or delete that one", p.Port, owner)
		}
		if b.doors[p.Port] == nil {
			door, err := b.open(p.Port)
			if err != nil {
				return fmt.Errorf("port %d of this machine cannot be had: %w; end what listens there, or choose another", p.Port, err)
			}
			b.doors[p.Port] = door
		}
		b.doors[p.Port].leadTo(net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(p.Port))))
	}
	if equality.Semantic.DeepEqual(s.Status.LoadBalancer.Ingress, balanced) {
		return nil
	}
	next := s.DeepCopy()
	next.Status.LoadBalancer.Ingress = balanced
	_, err := b.client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it has changed, and comes again
	}
	return err
}
