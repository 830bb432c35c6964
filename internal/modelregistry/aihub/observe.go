// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/aihub/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Seen is everything that the decision about a catalog depends on.
type Seen struct {
	Settings Settings
	// Now is the time of the look.
	Now time.Time
	// OpenShift tells whether the cluster has Routes, HasGateways whether it has gateways and one is for us, and HasMonitors
	// whether Prometheus is told what to scrape.
	OpenShift, HasGateways, HasMonitors bool
	// ClusterDomain is that of the cluster's own Routes; empty if nobody says it.
	ClusterDomain string
	// Admins are groups that may change what the catalog shows.
	Admins []string
	// Sources are the names of ConfigMaps that people want to have in the catalog, and Unusable those that cannot be, with the
	// reason.
	Sources, Unusable []string
	TLS               platform.TLS
	// NewPassword is that of a database whose Secret is not there yet.
	NewPassword string

	// What became of earlier plans.
	Server, Database platform.Workload
	Pods             []corev1.Pod
	// Legacy is what earlier operators left, as in legacies.
	Legacy []Legacy
	// Route and Gateway are the live routes to the catalog; nil if they are not there.
	Route, Gateway *unstructured.Unstructured
	// Endpoints is how many pods take requests through the Service.
	Endpoints int
}

// observer reads for one catalog.
type observer struct {
	*Domain
	engine.Reader
	catalog *v1alpha1.Catalog
	seen    Seen
}

func (o *observer) observe(ctx context.Context) (Seen, error) {
	o.seen = Seen{Settings: o.settings, Now: o.now()}
	if err := o.readModule(ctx); err != nil {
		return Seen{}, err
	}
	o.seen.OpenShift = !o.settings.NotOpenShift && o.HasAPI(platform.Route.GroupKind())
	o.seen.HasGateways = o.seen.Settings.GatewayDomain != "" && o.HasAPI(platform.HTTPRoute.GroupKind())
	o.seen.HasMonitors = o.HasAPI(platform.ServiceMonitor.GroupKind())
	for _, read := range []func(context.Context) error{
		o.readDomain, o.readAdmins, o.readSources, o.readTLS, o.readWorkloads, o.readPassword, o.readPods, o.readRoutes, o.readLegacy,
	} {
		if err := read(ctx); err != nil {
			return Seen{}, err
		}
	}
	return o.seen, nil
}

func (o *observer) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: o.catalog.Namespace, Name: name}
}

// readDomain asks OpenShift for the domain of its Routes, where nobody else says it.
func (o *observer) readDomain(ctx context.Context) (err error) {
	if o.seen.OpenShift && o.settings.Domain == "" {
		o.seen.ClusterDomain, err = platform.ClusterDomain(ctx, o)
	}
	return err
}

// readAdmins asks the platform which groups are its administrators.
func (o *observer) readAdmins(ctx context.Context) error {
	if !o.HasAPI(auth.GroupKind()) {
		return nil
	}
	u := platform.Foreign(auth)
	found, err := platform.Exists(o.Get(ctx, client.ObjectKey{Name: "auth"}, u))
	if found {
		groups, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "adminGroups")
		o.seen.Admins = slices.DeleteFunc(groups, func(g string) bool { return strings.TrimSpace(g) == "" })
	}
	return err
}

// maxSources bounds how many ConfigMaps are mounted.
const maxSources = 100

// readSources finds the ConfigMaps that are labelled.
func (o *observer) readSources(ctx context.Context) error {
	found := &corev1.ConfigMapList{}
	if err := o.List(ctx, found, client.InNamespace(o.catalog.Namespace), client.MatchingLabels{labelSource: "true"}); err != nil {
		return err
	}
	slices.SortFunc(found.Items, func(a, b corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) })
	for i := range found.Items {
		cm := &found.Items[i]
		_, has := cm.Data[sourcesKey]
		const longest = validation.DNS1123LabelMaxLength - len(labelledPrefix)
		switch {
		case !has:
			o.seen.Unusable = append(o.seen.Unusable, cm.Name+" has no key "+sourcesKey)
		case len(validation.IsDNS1123Label(cm.Name)) > 0 || len(cm.Name) > longest:
			o.seen.Unusable = append(o.seen.Unusable, cm.Name+" has a name with dots or of more than 55 characters")
		case len(o.seen.Sources) == maxSources:
			o.seen.Unusable = append(o.seen.Unusable, cm.Name+" is one too many")
		default:
			o.seen.Sources = append(o.seen.Sources, cm.Name)
		}
	}
	return nil
}

func (o *observer) readTLS(ctx context.Context) (err error) {
	o.seen.TLS, err = platform.ReadTLS(ctx, o, o.pairs, o.seen.Now, platform.Server{
		Owner: o.catalog.UID, Service: o.key(name), Secret: tlsSecret, OpenShift: o.seen.OpenShift,
	})
	return err
}

// passwords remembers what was made, so that a look before the cluster has it does not make another one.
type passwords struct {
	mu   sync.Mutex
	made map[types.UID]string
}

func (p *passwords) take(uid types.UID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made[uid] == "" {
		p.made = map[types.UID]string{uid: rand.Text()} // there is one Catalog
	}
	return p.made[uid]
}

// readPassword makes one, where a database needs it that has none.
func (o *observer) readPassword(ctx context.Context) error {
	if o.settings.own() && o.seen.Database.Live() == nil || o.settings.SkipDatabase || o.passwords == nil {
		return nil
	}
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	found, err := platform.Exists(o.Get(ctx, o.key(databaseName), head))
	if !found && err == nil {
		o.seen.NewPassword = o.passwords.take(o.catalog.UID)
	}
	return err
}

func (o *observer) readWorkloads(ctx context.Context) (err error) {
	if o.seen.Server, err = platform.ReadWorkload(ctx, o, o.key(name)); err != nil {
		return err
	}
	o.seen.Database, err = platform.ReadWorkload(ctx, o, o.key(databaseName))
	return err
}

func (o *observer) readPods(ctx context.Context) (err error) {
	pods := &corev1.PodList{}
	if err := o.List(ctx, pods, client.InNamespace(o.catalog.Namespace)); err != nil {
		return err
	}
	o.seen.Pods = pods.Items
	o.seen.Endpoints, err = platform.Endpoints(ctx, o, o.key(name))
	return err
}

// readRoutes reads whether routers and gateways have taken the routes that we made.
func (o *observer) readRoutes(ctx context.Context) error {
	if o.seen.OpenShift {
		u := platform.Foreign(platform.Route)
		u.SetNamespace(o.catalog.Namespace)
		u.SetName(routeName)
		found, err := platform.Exists(o.Child(ctx, u))
		if err != nil {
			return err
		}
		if found {
			o.seen.Route = u
		}
	}
	if !o.seen.HasGateways {
		return nil
	}
	u := platform.Foreign(platform.HTTPRoute)
	found, err := platform.Exists(o.Get(ctx, client.ObjectKey{Namespace: o.seen.Settings.RouteNamespace, Name: name}, u))
	if found {
		o.seen.Gateway = u
	}
	return err
}
