// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"cmp"
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
)

// Seen is everything that the decision about a registry depends on.
type Seen struct {
	Settings Settings
	// Now is the time of the look.
	Now time.Time

	// OpenShift tells whether the cluster has Routes, and the others which further APIs it serves.
	OpenShift, HasGroups, HasGateways bool
	// ClusterDomain is that of the cluster's own Routes; empty if nobody says it.
	ClusterDomain string

	// TLS is what the proxy proves its name with.
	TLS TLS
	// Credentials are those of a generated database.
	Credentials Credentials
	// Inputs are what the server and a generated database read when they start.
	Inputs Inputs

	// What became of earlier plans, or of those of another operator.
	Server, Database Workload
	Claim            *corev1.PersistentVolumeClaim
	Pods             []corev1.Pod
	// Endpoints is how many pods take requests through the Service.
	Endpoints int
	// Routes are the live ones, by name.
	Routes map[string]*unstructured.Unstructured
	// Names are whose the objects are that no owner reference ties to the registry.
	Names Names
}

// Workload is a live Deployment.
type Workload struct {
	// Deployment is ours as far as it is not only Whole, without its template.
	Deployment *appsv1.Deployment
	// Whole has the template as well. It may be another operator's.
	Whole *appsv1.Deployment
}

// live is the Deployment, whoever made it; nil if there is none.
func (w Workload) live() *appsv1.Deployment {
	if w.Deployment != nil {
		return w.Deployment
	}
	return w.Whole
}

// Names tell of objects that have a name which the plan wants.
type Names struct {
	// Binding, Group, HTTPRoute and Grant are what is there; nil if nothing is.
	Binding, Group, HTTPRoute, Grant *metav1.PartialObjectMetadata
}

// observer reads for one registry.
type observer struct {
	*Domain
	engine.Reader
	registry *v1beta1.ModelRegistry
	seen     Seen
	// password of a generated database; it does not leave the observer but as a checksum.
	password string
}

func (o *observer) observe(ctx context.Context) (Seen, error) {
	o.seen = Seen{Settings: o.settings, Now: o.now(), Routes: map[string]*unstructured.Unstructured{}}
	o.seen.OpenShift = !o.settings.NotOpenShift && o.HasAPI(route.GroupKind())
	o.seen.HasGroups = o.seen.OpenShift && o.HasAPI(group.GroupKind())
	o.seen.HasGateways = o.settings.GatewayDomain != "" && o.HasAPI(httpRoute.GroupKind())
	for _, read := range []func(context.Context) error{
		o.readDomain, o.readWorkloads, o.readClaim, o.readCredentials, o.readTLS, o.readInputs, o.readPods, o.readRoutes, o.readNames,
	} {
		if err := read(ctx); err != nil {
			return Seen{}, err
		}
	}
	return o.seen, nil
}

func (o *observer) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: o.registry.Namespace, Name: name}
}

// exists takes NotFound for an answer.
func exists(err error) (bool, error) { return err == nil, client.IgnoreNotFound(err) }

// readDomain asks OpenShift for the domain of its Routes, where nobody else says it.
func (o *observer) readDomain(ctx context.Context) error {
	if !o.seen.OpenShift || o.settings.Domain != "" || !o.HasAPI(clusterIngress.GroupKind()) {
		return nil
	}
	ingress := foreign(clusterIngress)
	found, err := exists(o.Get(ctx, client.ObjectKey{Name: "cluster"}, ingress))
	if found {
		apps, _, _ := unstructured.NestedString(ingress.Object, "spec", "appsDomain")
		domain, _, _ := unstructured.NestedString(ingress.Object, "spec", "domain")
		o.seen.ClusterDomain = cmp.Or(apps, domain)
	}
	return err
}

func (o *observer) readWorkloads(ctx context.Context) (err error) {
	if o.seen.Server, err = o.workload(ctx, o.registry.Name); err != nil {
		return err
	}
	o.seen.Database, err = o.workload(ctx, o.registry.Name+postgresSuffix)
	return err
}

// workload reads a Deployment as a child, which is what our own writes are compared with, and as an input, which has the
// pods' template.
func (o *observer) workload(ctx context.Context, name string) (Workload, error) {
	child, whole, out := &appsv1.Deployment{}, &appsv1.Deployment{}, Workload{}
	child.Namespace, child.Name = o.registry.Namespace, name
	ours, err := exists(o.Child(ctx, child))
	if err != nil {
		return out, err
	}
	found, err := exists(o.Get(ctx, o.key(name), whole))
	if ours {
		out.Deployment = child
	}
	if found && (!ours || child.UID == whole.UID) {
		out.Whole = whole
	}
	return out, err
}

// readClaim reads the claim of the database that the registry has for itself.
func (o *observer) readClaim(ctx context.Context) error {
	claim := &corev1.PersistentVolumeClaim{}
	found, err := exists(o.Get(ctx, o.key(claimName(o.registry)), claim))
	if found {
		o.seen.Claim = claim
	}
	return err
}

func (o *observer) readPods(ctx context.Context) error {
	pods, slices := &corev1.PodList{}, &discoveryv1.EndpointSliceList{}
	name := o.registry.Name
	mine := engine.MatchingFunc(func(obj client.Object) bool { return obj.GetLabels()[labelApp] == name })
	if err := o.List(ctx, pods, client.InNamespace(o.registry.Namespace), client.MatchingLabels{labelApp: name}, mine); err != nil {
		return err
	}
	o.seen.Pods = pods.Items
	service := engine.MatchingFunc(func(obj client.Object) bool { return obj.GetLabels()[discoveryv1.LabelServiceName] == name })
	err := o.List(ctx, slices, client.InNamespace(o.registry.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: name}, service)
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				o.seen.Endpoints++
			}
		}
	}
	return err
}

// readRoutes reads whether the router has taken the routes that we made.
func (o *observer) readRoutes(ctx context.Context) error {
	if !o.seen.OpenShift {
		return nil
	}
	for _, name := range []string{o.registry.Name + httpsSuffix, o.registry.Name + httpSuffix} {
		u := foreign(route)
		u.SetNamespace(o.registry.Namespace)
		u.SetName(name)
		found, err := exists(o.Child(ctx, u))
		if err != nil {
			return err
		}
		if found {
			o.seen.Routes[name] = u
		}
	}
	return nil
}

// readNames looks at objects that owner references do not tie to the registry: another operator leaves them so, and they
// may be somebody else's.
func (o *observer) readNames(ctx context.Context) (err error) {
	name := o.registry.Name
	if o.seen.Names.Binding, err = o.head(ctx, rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), "", name+delegatorSuffix); err != nil {
		return err
	}
	if o.seen.HasGroups {
		if o.seen.Names.Group, err = o.head(ctx, group, "", name+usersSuffix); err != nil {
			return err
		}
	}
	if !o.seen.HasGateways {
		return nil
	}
	if o.seen.Names.HTTPRoute, err = o.head(ctx, httpRoute, o.settings.RouteNamespace, httpRouteName(name)); err != nil {
		return err
	}
	o.seen.Names.Grant, err = o.head(ctx, referenceGrant, o.registry.Namespace, grantName)
	return err
}

func (o *observer) head(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	out := &metav1.PartialObjectMetadata{}
	out.SetGroupVersionKind(gvk)
	found, err := exists(o.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, out))
	if !found {
		return nil, err
	}
	return out, nil
}
