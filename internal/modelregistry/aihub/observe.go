// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/aihub/v1alpha1"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
)

// Seen is everything that the decision about a catalog depends on.
type Seen struct {
	Settings Settings
	// Now is the time of the look.
	Now time.Time
	// OpenShift tells whether the cluster has Routes, and HasGateways whether it has gateways and one is for us.
	OpenShift, HasGateways bool
	// ClusterDomain is that of the cluster's own Routes; empty if nobody says it.
	ClusterDomain string
	// Admins are groups that may change what the catalog shows.
	Admins []string
	// Sources are the names of ConfigMaps that people want to have in the catalog, and Unusable those that cannot be, with the
	// reason.
	Sources, Unusable []string
	TLS               TLS
	// NewPassword is that of a database whose Secret is not there yet.
	NewPassword string

	// What became of earlier plans.
	Server, Database *appsv1.Deployment
	Pods             []corev1.Pod
	// Endpoints is how many pods take requests through the Service.
	Endpoints int
}

// TLS is what the server proves its name with.
type TLS struct {
	// Own is the pair that the Secret is to hold; nil when the platform or the user makes it.
	Own *certs.Pair
	// RenewAt is when our own pair is to be replaced.
	RenewAt time.Time
	// Broken is set when a Secret that is not ours has no pair in it.
	Broken bool
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
	o.seen.OpenShift = !o.settings.NotOpenShift && o.HasAPI(route.GroupKind())
	o.seen.HasGateways = o.seen.Settings.GatewayDomain != "" && o.HasAPI(httpRoute.GroupKind())
	for _, read := range []func(context.Context) error{
		o.readDomain, o.readAdmins, o.readSources, o.readTLS, o.readPassword, o.readWorkloads, o.readPods,
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

// readAdmins asks the platform which groups are its administrators.
func (o *observer) readAdmins(ctx context.Context) error {
	if !o.HasAPI(auth.GroupKind()) {
		return nil
	}
	u := foreign(auth)
	found, err := exists(o.Get(ctx, client.ObjectKey{Name: "auth"}, u))
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

// hosts are the names under which the catalog is called inside the cluster.
func hosts(namespace string) []string {
	near := name + "." + namespace
	return []string{name, near, near + ".svc", near + ".svc.cluster.local", "localhost"}
}

// readTLS looks at the Secret of the server. On OpenShift the platform makes it; one that somebody made is taken as it is;
// without a cluster nothing secret is made.
func (o *observer) readTLS(ctx context.Context) error {
	secret := &corev1.Secret{}
	found, err := exists(o.GetUncached(ctx, o.key(tlsSecret), secret))
	if err != nil {
		return err
	}
	switch theirs := o.seen.OpenShift || found && secret.Labels[engine.LabelOwner] == ""; {
	case theirs:
		_, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		o.seen.TLS.Broken = found && err != nil
		return nil
	case o.pairs == nil:
		o.seen.TLS.Own = &certs.Pair{Roots: []byte{}, Certificate: []byte{}, Key: []byte{}}
		return nil
	}
	have := certs.Pair{}
	// One that was deleted counts as such also while it is remembered: whoever deleted it wants another key.
	if there, err := o.child(ctx, tlsSecret); err != nil {
		return err
	} else if there {
		have = certs.Pair{Roots: secret.Data[caKey], Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
	}
	pair, at, err := o.pairs.Take(o.catalog.UID, name, o.seen.Now, hosts(o.catalog.Namespace), have)
	o.seen.TLS = TLS{Own: &pair, RenewAt: at}
	return err
}

// child tells whether we have made a Secret and it is still there.
func (o *observer) child(ctx context.Context, secret string) (bool, error) {
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	head.Namespace, head.Name = o.catalog.Namespace, secret
	return exists(o.Child(ctx, head))
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
	if o.settings.own() || o.settings.SkipDatabase || o.passwords == nil {
		return nil
	}
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	found, err := exists(o.Get(ctx, o.key(databaseName), head))
	if !found && err == nil {
		o.seen.NewPassword = o.passwords.take(o.catalog.UID)
	}
	return err
}

func (o *observer) readWorkloads(ctx context.Context) (err error) {
	if o.seen.Server, err = o.deployment(ctx, name); err != nil || o.settings.own() {
		return err
	}
	o.seen.Database, err = o.deployment(ctx, databaseName)
	return err
}

func (o *observer) deployment(ctx context.Context, name string) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = o.catalog.Namespace, name
	found, err := exists(o.Child(ctx, d))
	if !found {
		return nil, err
	}
	return d, nil
}

func (o *observer) readPods(ctx context.Context) error {
	pods, endpoints := &corev1.PodList{}, &discoveryv1.EndpointSliceList{}
	if err := o.List(ctx, pods, client.InNamespace(o.catalog.Namespace)); err != nil {
		return err
	}
	o.seen.Pods = pods.Items
	ours := client.MatchingLabels{discoveryv1.LabelServiceName: name}
	mine := engine.MatchingFunc(func(obj client.Object) bool { return obj.GetLabels()[discoveryv1.LabelServiceName] == name })
	if err := o.List(ctx, endpoints, client.InNamespace(o.catalog.Namespace), ours, mine); err != nil {
		return err
	}
	for _, slice := range endpoints.Items {
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				o.seen.Endpoints++
			}
		}
	}
	return nil
}
