// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Seen is everything that the decision about a registry depends on.
type Seen struct {
	Settings Settings
	// Now is the time of the look.
	Now time.Time

	// OpenShift tells whether the cluster has Routes, and the others which further APIs it serves.
	OpenShift, HasGroups, HasGateways, HasMonitors bool
	// ClusterDomain is that of the cluster's own Routes; empty if nobody says it.
	ClusterDomain string

	// TLS is what the proxy proves its name with.
	TLS platform.TLS
	// Credentials are those of a generated database.
	Credentials Credentials
	// Inputs are what the server and a generated database read when they start.
	Inputs Inputs

	// What became of earlier plans, or of those of another operator.
	Server, Database platform.Workload
	Claim            *corev1.PersistentVolumeClaim
	Pods             []corev1.Pod
	// Endpoints is how many pods take requests through the Service.
	Endpoints int
	// Routes are the live ones, by name.
	Routes map[string]*unstructured.Unstructured
	// Catalog is what is left of the catalog that each registry once had.
	Catalog []*metav1.PartialObjectMetadata
	// Names are whose the objects are that no owner reference ties to the registry.
	Names Names
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
	o.seen.OpenShift = !o.settings.NotOpenShift && o.HasAPI(platform.Route.GroupKind())
	o.seen.HasGroups = o.seen.OpenShift && o.HasAPI(group.GroupKind())
	o.seen.HasGateways = o.settings.GatewayDomain != "" && o.HasAPI(platform.HTTPRoute.GroupKind())
	o.seen.HasMonitors = o.HasAPI(platform.ServiceMonitor.GroupKind())
	for _, read := range []func(context.Context) error{
		o.readDomain, o.readWorkloads, o.readClaim, o.readCredentials, o.readTLS, o.readInputs, o.readPods, o.readRoutes, o.readNames, o.readCatalog,
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

// readDomain asks OpenShift for the domain of its Routes, where nobody else says it.
func (o *observer) readDomain(ctx context.Context) (err error) {
	if o.seen.OpenShift && o.settings.Domain == "" {
		o.seen.ClusterDomain, err = platform.ClusterDomain(ctx, o)
	}
	return err
}

func (o *observer) readWorkloads(ctx context.Context) (err error) {
	if o.seen.Server, err = platform.ReadWorkload(ctx, o, o.key(o.registry.Name)); err != nil {
		return err
	}
	o.seen.Database, err = platform.ReadWorkload(ctx, o, o.key(o.registry.Name+postgresSuffix))
	return err
}

// readClaim reads the claim of the database that the registry has for itself.
func (o *observer) readClaim(ctx context.Context) error {
	claim := &corev1.PersistentVolumeClaim{}
	found, err := platform.Exists(o.Get(ctx, o.key(claimName(o.registry)), claim))
	if found {
		o.seen.Claim = claim
	}
	return err
}

func (o *observer) readPods(ctx context.Context) (err error) {
	pods, name := &corev1.PodList{}, o.registry.Name
	mine := engine.MatchingFunc(func(obj client.Object) bool { return obj.GetLabels()[labelApp] == name })
	if err := o.List(ctx, pods, client.InNamespace(o.registry.Namespace), client.MatchingLabels{labelApp: name}, mine); err != nil {
		return err
	}
	o.seen.Pods = pods.Items
	o.seen.Endpoints, err = platform.Endpoints(ctx, o, o.key(name))
	return err
}

// readTLS looks at the Secret of the proxy, or at that which the user names.
func (o *observer) readTLS(ctx context.Context) (err error) {
	proxy := proxyOf(&o.registry.Spec, o.seen.OpenShift)
	if proxy == nil {
		return nil
	}
	if given := proxy.TLSCertificateSecret; given != nil {
		o.seen.TLS, err = platform.ReadGivenTLS(ctx, o, o.key(given.Name))
		return err
	}
	o.seen.TLS, err = platform.ReadTLS(ctx, o, o.pairs, o.seen.Now, platform.Server{
		Owner: o.registry.UID, Service: o.key(o.registry.Name), Secret: o.registry.Name + proxySuffix, OpenShift: o.seen.OpenShift,
	})
	return err
}

// readRoutes reads whether the router has taken the routes that we made.
func (o *observer) readRoutes(ctx context.Context) error {
	if !o.seen.OpenShift {
		return nil
	}
	for _, name := range []string{o.registry.Name + httpsSuffix, o.registry.Name + httpSuffix} {
		u := platform.Foreign(platform.Route)
		u.SetNamespace(o.registry.Namespace)
		u.SetName(name)
		found, err := platform.Exists(o.Child(ctx, u))
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
	if o.seen.Names.HTTPRoute, err = o.head(ctx, platform.HTTPRoute, o.settings.RouteNamespace, httpRouteName(name)); err != nil {
		return err
	}
	o.seen.Names.Grant, err = o.head(ctx, platform.ReferenceGrant, o.registry.Namespace, grantName)
	return err
}

func (o *observer) head(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	out := &metav1.PartialObjectMetadata{}
	out.SetGroupVersionKind(gvk)
	found, err := platform.Exists(o.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, out))
	if !found {
		return nil, err
	}
	return out, nil
}
