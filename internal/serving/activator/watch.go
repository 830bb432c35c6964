// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/serving/activation"
)

// portPeers is the name of the port on which replicas ask each other.
const portPeers = "peers"

// watcher keeps the table as the API server describes services, and the peers as it describes the activator.
type watcher struct {
	table   *table
	peers   *peers
	metrics *metrics
	log     *slog.Logger

	mu sync.Mutex
	// slices are what is known of EndpointSlices: first by the key of the target, then by the slice's own name.
	slices map[string]map[string][]*pod
	own    map[string]*discoveryv1.EndpointSlice
}

func newWatcher(t *table, p *peers, m *metrics, log *slog.Logger) *watcher {
	return &watcher{table: t, peers: p, metrics: m, log: log, slices: map[string]map[string][]*pod{}, own: map[string]*discoveryv1.EndpointSlice{}}
}

// informer is a watch, and who is called back for what it sees.
type informer struct {
	cache.SharedIndexInformer
	called cache.ResourceEventHandlerRegistration
}

// newInformer watches objects of one kind with a label and calls back for each. Only what trim leaves is kept.
func newInformer(from cache.Getter, resource, namespace, selector string, of runtime.Object, trim cache.TransformFunc, handle cache.ResourceEventHandler) (*informer, error) {
	list := cache.NewFilteredListWatchFromClient(from, resource, namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = selector
	})
	i := cache.NewSharedIndexInformer(list, of, 0, cache.Indexers{})
	if err := i.SetTransform(trim); err != nil {
		return nil, fmt.Errorf("prepare the watch of %s: %w", resource, err)
	}
	called, err := i.AddEventHandler(handle)
	if err != nil {
		return nil, fmt.Errorf("prepare the watch of %s: %w", resource, err)
	}
	return &informer{i, called}, nil
}

// handler calls put for what is there and remove for what is gone.
func handler[T any](put, remove func(T)) cache.ResourceEventHandler {
	is := func(obj any) (T, bool) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		o, ok := obj.(T)
		return o, ok
	}
	call := func(do func(T)) func(any) {
		return func(obj any) {
			if o, ok := is(obj); ok {
				do(o)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: call(put), UpdateFunc: func(_, now any) { call(put)(now) }, DeleteFunc: call(remove),
	}
}

// trimService keeps what targets are made of.
func trimService(obj any) (any, error) {
	if s, ok := obj.(*corev1.Service); ok {
		s.ManagedFields = nil
		s.Annotations = map[string]string{activation.Annotation: s.Annotations[activation.Annotation]}
	}
	return obj, nil
}

func trimSlice(obj any) (any, error) {
	if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
		s.ManagedFields, s.Annotations = nil, nil
	}
	return obj, nil
}

// putService takes a service as it is described. One whose description cannot be used is left as it was known before.
func (w *watcher) putService(s *corev1.Service) {
	if s.DeletionTimestamp != nil { // its EndpointSlices may go before it does
		w.removeService(s)
		return
	}
	name := activation.Component(s.Name)
	settings, err := activation.Decode(s.Annotations[activation.Annotation])
	if name == "" || err != nil {
		w.log.Error("A Service has the label of the activator, and cannot be used", "service", s.Namespace+"/"+s.Name, "err", fmt.Sprint(err))
		return
	}
	var ports []port
	for i, p := range s.Spec.Ports {
		if p.Protocol == "" || p.Protocol == corev1.ProtocolTCP {
			ports = append(ports, port{name: s.Spec.Ports[i].Name, number: p.Port, http2: ptr.Deref(p.AppProtocol, "") == "kubernetes.io/h2c"})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table.put(s.Namespace, name, s.CreationTimestamp.Time, settings, ports)
	w.tell(s.Namespace + "/" + name)
}

func (w *watcher) removeService(s *corev1.Service) {
	if name := activation.Component(s.Name); name != "" {
		w.table.remove(s.Namespace, name, func() { w.metrics.forget(s.Namespace, name) })
	}
}

// targetOf is the target that the pods of a slice belong to; empty for a slice of something else.
func targetOf(s *discoveryv1.EndpointSlice) string {
	name := activation.Component(s.Labels[discoveryv1.LabelServiceName])
	if name == "" {
		return ""
	}
	return s.Namespace + "/" + name
}

func (w *watcher) putSlice(s *discoveryv1.EndpointSlice) {
	key := targetOf(s)
	if key == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slices[key] == nil {
		w.slices[key] = map[string][]*pod{}
	}
	w.slices[key][s.Name] = podsIn(s)
	w.tell(key)
}

func (w *watcher) removeSlice(s *discoveryv1.EndpointSlice) {
	key := targetOf(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.slices[key], s.Name); len(w.slices[key]) == 0 {
		delete(w.slices, key)
	}
	w.tell(key)
}

// tell says to a target which pods it has. A Service has a slice as long as it is there, with or without pods. Where there is
// none it is about to go, or has just come: this says nothing of its pods, and we may hear of the slice before we hear of the
// Service. Its requests go on to the pods that are known.
func (w *watcher) tell(key string) {
	if t := w.table.known(key); t != nil && len(w.slices[key]) > 0 {
		t.setPods(w.podsOf(key))
	}
}

// podsOf joins the slices of a target. Each caller gets pods of its own.
func (w *watcher) podsOf(key string) []*pod {
	var out []*pod
	for _, pods := range w.slices[key] {
		for _, p := range pods {
			if !slices.ContainsFunc(out, func(have *pod) bool { return have.address == p.address }) {
				out = append(out, &pod{address: p.address, ports: p.ports})
			}
		}
	}
	slices.SortFunc(out, func(a, b *pod) int { return slices.Compare([]byte(a.address), []byte(b.address)) })
	return out
}

// podsIn are the pods of a slice that are ready.
func podsIn(s *discoveryv1.EndpointSlice) []*pod {
	ports := portsIn(s)
	var out []*pod
	for _, e := range s.Endpoints {
		if ptr.Deref(e.Conditions.Ready, true) && len(e.Addresses) > 0 {
			out = append(out, &pod{address: e.Addresses[0], ports: ports})
		}
	}
	return out
}

func portsIn(s *discoveryv1.EndpointSlice) map[string]int32 {
	out := map[string]int32{}
	for _, p := range s.Ports {
		if p.Port != nil {
			out[ptr.Deref(p.Name, "")] = *p.Port
		}
	}
	return out
}

// putOwn and removeOwn follow the replicas of the activator.
func (w *watcher) putOwn(s *discoveryv1.EndpointSlice) { w.changeOwn(s, s) }

func (w *watcher) removeOwn(s *discoveryv1.EndpointSlice) { w.changeOwn(s, nil) }

func (w *watcher) changeOwn(s, now *discoveryv1.EndpointSlice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.own[s.Name] = now; now == nil {
		delete(w.own, s.Name)
	}
	var listed, open []string
	for _, slice := range w.own {
		ports := portsIn(slice)
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			if p, has := ports[portPeers]; has {
				listed = append(listed, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(p))))
			}
			if p, has := ports[activation.PortName]; has && ptr.Deref(e.Conditions.Ready, true) {
				open = append(open, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(p))))
			}
		}
	}
	slices.Sort(listed)
	slices.Sort(open)
	w.peers.set(slices.Compact(listed), slices.Compact(open))
}

// start runs informers until the context ends. synced says that all that there was in the beginning has been called back for.
func start(ctx context.Context, informers []*informer) (synced func() bool) {
	for _, i := range informers {
		go i.RunWithContext(ctx)
	}
	return func() bool {
		return !slices.ContainsFunc(informers, func(i *informer) bool { return !i.called.HasSynced() })
	}
}
