// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ControllerName is by whom routes are answered for.
const ControllerName = "modelplane.dev/end-to-end"

// lag is how long requests still go the old way after a route has changed. Gateways that are programmed from afar have one
// too, and whoever changes routes has to reckon with it.
const lag = 500 * time.Millisecond

// Gateway answers for the routes of one Gateway.
type Gateway struct {
	client.Client
	namespace, name string
	routes          atomic.Pointer[table]
	proxy           *httputil.ReverseProxy
	// seen and used belong to Reconcile, which works on one route at a time.
	seen map[types.NamespacedName]sighting
	used map[types.NamespacedName]*gatewayv1.HTTPRoute
}

// sighting is when a route was first seen as it is.
type sighting struct {
	uid        types.UID
	generation int64
	at         time.Time
}

// Serve watches and proxies until the context ends.
func Serve(ctx context.Context, cfg *rest.Config, at net.Listener, namespace, name string) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), gatewayv1.Install(scheme)); err != nil {
		return err
	}
	manager, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // several may run in one process, one after the other
	})
	if err != nil {
		return err
	}
	g := newGateway(manager.GetClient(), namespace, name)
	// Services are looked up for every request, so they have to be there before the first.
	if _, err := manager.GetCache().GetInformer(ctx, &corev1.Service{}); err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(manager).For(&gatewayv1.HTTPRoute{}).Complete(g); err != nil {
		return err
	}
	web := &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(at) }()
	err = manager.Start(ctx)
	return errors.Join(err, web.Close(), ignoreClosed(<-failed))
}

func newGateway(c client.Client, namespace, name string) *Gateway {
	g := &Gateway{
		Client: c, namespace: namespace, name: name,
		seen: map[types.NamespacedName]sighting{}, used: map[types.NamespacedName]*gatewayv1.HTTPRoute{},
	}
	g.routes.Store(&table{})
	g.proxy = &httputil.ReverseProxy{
		Rewrite:   func(*httputil.ProxyRequest) {}, // done before, where it can fail
		Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 8},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "gateway: "+err.Error(), http.StatusBadGateway)
		},
	}
	return g
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// dial tries again while nobody takes the connection, as gateways do: nothing was sent yet, and the proxy of the node
// may be a moment behind the routes.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// ServeHTTP sends a request where the routes say.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, found := g.routes.Load().find(r)
	if !found {
		http.Error(w, "gateway: no route for "+r.Host+r.URL.Path, http.StatusNotFound)
		return
	}
	ref, found := choose(e.rule.BackendRefs)
	if !found {
		http.Error(w, "gateway: the route has no backend", http.StatusInternalServerError)
		return
	}
	backend, err := g.backend(r.Context(), e.route, ref)
	if err != nil {
		http.Error(w, "gateway: "+err.Error(), http.StatusInternalServerError)
		return
	}
	ctx := r.Context()
	if t := e.rule.Timeouts; t != nil && t.Request != nil {
		if limit, err := time.ParseDuration(string(*t.Request)); err == nil && limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
	}
	out := r.Clone(ctx)
	e.alter(out)
	out.URL.Scheme, out.URL.Host = backend.Scheme, backend.Host
	g.proxy.ServeHTTP(w, out)
}

// backend is the address of a Service in the cluster.
func (g *Gateway) backend(ctx context.Context, route *gatewayv1.HTTPRoute, ref gatewayv1.HTTPBackendRef) (*url.URL, error) {
	service := &corev1.Service{}
	if err := g.Get(ctx, serviceKey(route, ref), service); err != nil {
		return nil, err
	}
	port := ptr.Deref(ref.Port, 0)
	if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port }) {
		return nil, fmt.Errorf("the Service %s/%s has no port %d", service.Namespace, service.Name, port)
	}
	return &url.URL{Scheme: "http", Host: net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(port)))}, nil
}

func serviceKey(route *gatewayv1.HTTPRoute, ref gatewayv1.HTTPBackendRef) client.ObjectKey {
	return client.ObjectKey{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(route.Namespace))), Name: string(ref.Name)}
}

// Reconcile puts a route to use a while after it was seen, and then answers for it.
func (g *Gateway) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	route := &gatewayv1.HTTPRoute{}
	err := g.Get(ctx, request.NamespacedName, route)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil || route.DeletionTimestamp != nil || len(g.parents(route)) == 0 {
		delete(g.seen, request.NamespacedName)
		delete(g.used, request.NamespacedName)
		return ctrl.Result{}, g.learn()
	}
	last := g.seen[request.NamespacedName]
	if last.uid != route.UID || last.generation != route.Generation {
		last = sighting{uid: route.UID, generation: route.Generation, at: time.Now()}
		g.seen[request.NamespacedName] = last
	}
	if rest := lag - time.Since(last.at); rest > 0 {
		return ctrl.Result{RequeueAfter: rest}, nil
	}
	g.used[request.NamespacedName] = route
	if err := g.learn(); err != nil {
		return ctrl.Result{}, err
	}
	return g.answer(ctx, route)
}

func (g *Gateway) learn() error {
	routes, err := newTable(slices.Collect(maps.Values(g.used)))
	if err == nil {
		g.routes.Store(&routes)
	}
	return err
}

// parents are the references by which a route asks for this gateway.
func (g *Gateway) parents(route *gatewayv1.HTTPRoute) []gatewayv1.ParentReference {
	return slices.DeleteFunc(slices.Clone(route.Spec.ParentRefs), func(ref gatewayv1.ParentReference) bool {
		return string(ref.Name) != g.name || string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(route.Namespace))) != g.namespace
	})
}

// open says that the Gateway itself is looked after.
func (g *Gateway) open(ctx context.Context) error {
	gate := &gatewayv1.Gateway{}
	if err := g.Get(ctx, client.ObjectKey{Namespace: g.namespace, Name: g.name}, gate); err != nil {
		return client.IgnoreNotFound(err)
	}
	next := gate.DeepCopy()
	for _, kind := range []gatewayv1.GatewayConditionType{gatewayv1.GatewayConditionAccepted, gatewayv1.GatewayConditionProgrammed} {
		apimeta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: string(kind), Status: metav1.ConditionTrue, Reason: string(kind), ObservedGeneration: gate.Generation,
		})
	}
	return g.Status().Patch(ctx, next, client.MergeFrom(gate))
}

// answer says that a route is taken, and whether its Services are there. It looks again while one is not.
func (g *Gateway) answer(ctx context.Context, route *gatewayv1.HTTPRoute) (ctrl.Result, error) {
	if err := g.open(ctx); err != nil {
		return ctrl.Result{}, err
	}
	next := route.DeepCopy()
	resolved := metav1.Condition{Type: string(gatewayv1.RouteConditionResolvedRefs), Status: metav1.ConditionTrue, Reason: string(gatewayv1.RouteReasonResolvedRefs)}
	var result ctrl.Result
	if missing := g.missing(ctx, route); missing != nil {
		resolved.Status, resolved.Reason, resolved.Message = metav1.ConditionFalse, string(gatewayv1.RouteReasonBackendNotFound), missing.Error()
		result.RequeueAfter = 200 * time.Millisecond
	}
	var all []gatewayv1.RouteParentStatus
	for _, ref := range g.parents(route) {
		status := gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: ControllerName}
		if i := slices.IndexFunc(route.Status.Parents, func(s gatewayv1.RouteParentStatus) bool { return s.ControllerName == ControllerName }); i >= 0 {
			status.Conditions = slices.Clone(route.Status.Parents[i].Conditions)
		}
		accepted := metav1.Condition{Type: string(gatewayv1.RouteConditionAccepted), Status: metav1.ConditionTrue, Reason: string(gatewayv1.RouteReasonAccepted)}
		for _, c := range []metav1.Condition{accepted, resolved} {
			c.ObservedGeneration = route.Generation
			apimeta.SetStatusCondition(&status.Conditions, c)
		}
		all = append(all, status)
	}
	next.Status.Parents = all
	if err := g.Status().Patch(ctx, next, client.MergeFrom(route)); err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, err
	}
	return result, nil
}

func (g *Gateway) missing(ctx context.Context, route *gatewayv1.HTTPRoute) error {
	for _, rule := range route.Spec.Rules {
		for _, ref := range rule.BackendRefs {
			if _, err := g.backend(ctx, route, ref); err != nil {
				return err
			}
		}
	}
	return nil
}
