// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/certs"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/tenancy"
)

// Kind is the kind MaasTenantConfig.
type Kind struct{ *Platform }

var (
	_ engine.Kind[*v1alpha1.MaasTenantConfig, Seen]     = Kind{}
	_ engine.Teardown[*v1alpha1.MaasTenantConfig, Seen] = Kind{}
)

// The Secret with the address of the database, and where it has it.
const (
	databaseSecret = "maas-db-config"    //nolint:gosec // a name
	databaseKey    = "DB_CONNECTION_URL" //nolint:gosec // a name
)

// caKey is where a certificate's Secret has what others must trust.
const caKey = "ca.crt"

// Seen is everything that the decision about a tenant's services depends on.
type Seen struct {
	// Config of the cluster, nil while there is none.
	Config *v1alpha1.Config
	// Tenant is the name of the tenant, empty where the settings are in no tenant's place, and Lost that no AITenant of the name exists.
	Tenant string
	Lost   bool
	// Gateway of the tenant, through which its models are reached.
	Gateway gateways.Seen
	// Coming is the gateway that the tenant moves to, nil if it stays, and Others are those that it had before and through which models
	// are reached still. Suffixes are behind the names of what belongs to one of several.
	Coming   *Coming
	Others   []gateways.Seen
	Suffixes map[client.ObjectKey]string
	// Taken is another tenant that has the gateway; empty if none has.
	Taken string
	// HasRoutes, HasMonitors and HasTelemetry tell which optional APIs there are; MissingKuadrant which kinds of Kuadrant are not.
	HasRoutes, HasTLSPolicies, HasMonitors, HasTelemetry, HasIstioTelemetry bool
	MissingKuadrant                                                         []string
	// Database tells whether there is an address of a database.
	Database, DatabaseSecret bool
	// API and Processor are the certificates of the two servers.
	API, Processor Certificate
	Passes         Passes
	// Standing is how far Kuadrant is with the policies of the gateway.
	Standing Standing
	// Deployments are the live ones, by name.
	Deployments map[string]*appsv1.Deployment
	// Left are the subscriptions and policies in the tenant's namespace, which go before the services.
	Left []client.Object
	// Routes lead to models through the gateway RoutesAt, as far as somebody wants to know: where what checks requests is about to go.
	Routes   []string
	RoutesAt client.ObjectKey
	Now      time.Time
}

// Coming is a gateway that a tenant moves to.
type Coming struct {
	gateways.Seen
	// Claim of the tenant on the gateway.
	Claim types.UID
	// Standing is how far Kuadrant is with the policies there, and Asked whether the payload processor is asked there.
	Standing Standing
	Asked    bool
}

// Certificate is what a server proves its name with.
type Certificate struct {
	Pair    certs.Pair
	RenewAt time.Time
}

// Observe implements engine.Kind.
func (k Kind) Observe(ctx context.Context, r engine.Reader, obj *v1alpha1.MaasTenantConfig) (Seen, error) {
	// What settings say of themselves does not count: who may write some could name any tenant.
	seen := Seen{Now: k.Now(), Tenant: naming.TenantOf(obj.Namespace, k.SubscriptionNamespace), Deployments: map[string]*appsv1.Deployment{}}
	if seen.Tenant == "" {
		return seen, nil
	}
	for _, read := range []func(context.Context, engine.Reader, *v1alpha1.MaasTenantConfig, *Seen) error{
		k.readContext, k.readAPIs, k.readDatabase, k.readCertificates, k.readPasses, k.readStanding, k.readDeployments, k.readLeft, k.readRoutes,
	} {
		if err := read(ctx, r, obj, &seen); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// readContext finds out whose settings these are.
func (k Kind) readContext(ctx context.Context, r engine.Reader, _ *v1alpha1.MaasTenantConfig, seen *Seen) error {
	config := &v1alpha1.Config{}
	err := r.Get(ctx, client.ObjectKey{Name: v1alpha1.ConfigName}, config)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil {
		seen.Config = config
	}
	tenant := &v1alpha1.AITenant{ObjectMeta: metav1.ObjectMeta{Namespace: k.TenantNamespace, Name: seen.Tenant}}
	err = r.Get(ctx, client.ObjectKeyFromObject(tenant), tenant)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	seen.Lost = err != nil
	tenant.Namespace, tenant.Name = k.TenantNamespace, seen.Tenant
	return k.readGateways(ctx, r, tenant, seen)
}

// readGateways finds out through which gateway the tenant is reached, and at which others requests are checked for it.
func (k Kind) readGateways(ctx context.Context, r engine.Reader, tenant *v1alpha1.AITenant, seen *Seen) error {
	claims, err := tenancy.ObserveClaims(ctx, r, k.Settings)
	if err != nil {
		return err
	}
	wanted, held := tenancy.Wanted(tenant, k.Settings), claims.Held(tenant, k.Settings)
	if seen.Gateway, err = gateways.Observe(ctx, r, wanted); err != nil {
		return err
	}
	claim, claimed := claims.On(wanted)
	if claimed && claim.Tenant != seen.Tenant {
		seen.Taken = claim.Tenant
	}
	seen.Suffixes = map[client.ObjectKey]string{}
	for _, c := range claims.Of(seen.Tenant) {
		seen.Suffixes[c.Gateway] = claims.Suffix(c.Gateway, seen.Tenant)
		if c.Gateway == wanted {
			continue
		}
		other, err := gateways.Observe(ctx, r, c.Gateway)
		switch {
		case err != nil:
			return err
		case !other.Exists:
		case c.Gateway != held:
			seen.Others = append(seen.Others, other)
		default:
			if claimed && seen.Taken == "" {
				seen.Coming = &Coming{Seen: seen.Gateway, Claim: claim.UID}
			}
			seen.Gateway, seen.Taken = other, ""
		}
	}
	return nil
}

// all are the gateways at which requests are to be checked for the tenant.
func (s *Seen) all() []gateways.Seen {
	out := append([]gateways.Seen{s.Gateway}, s.Others...)
	if s.Coming != nil && s.Coming.Exists {
		out = append(out, s.Coming.Seen)
	}
	return out
}

func (Kind) readAPIs(_ context.Context, r engine.Reader, _ *v1alpha1.MaasTenantConfig, seen *Seen) error {
	seen.HasRoutes = r.HasAPI(gateways.HTTPRoute.GroupKind())
	seen.HasTLSPolicies = r.HasAPI(gateways.BackendTLSPolicy.GroupKind())
	seen.HasMonitors = r.HasAPI(podMonitor.GroupKind())
	seen.HasTelemetry = r.HasAPI(telemetryPolicy.GroupKind())
	seen.HasIstioTelemetry = r.HasAPI(gateways.Telemetry.GroupKind())
	for _, gvk := range kuadrant.Kinds() {
		if !r.HasAPI(gvk.GroupKind()) {
			seen.MissingKuadrant = append(seen.MissingKuadrant, gvk.Kind)
		}
	}
	return nil
}

// readDatabase finds out whether there is an address. It is not kept.
func (k Kind) readDatabase(ctx context.Context, r engine.Reader, _ *v1alpha1.MaasTenantConfig, seen *Seen) error {
	secret := &corev1.Secret{}
	err := r.GetUncached(ctx, client.ObjectKey{Namespace: k.InfraNamespace, Name: databaseSecret}, secret)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	seen.DatabaseSecret = true
	seen.Database = len(secret.Data[databaseKey]) > 0 || secret.StringData[databaseKey] != ""
	return nil
}

// readCertificates looks at those of both servers, and makes them where they are missing or old.
func (k Kind) readCertificates(ctx context.Context, r engine.Reader, obj *v1alpha1.MaasTenantConfig, seen *Seen) (err error) {
	if seen.API, err = k.certificate(ctx, r, obj.UID+"/api", k.InfraNamespace, naming.OfTenant(apiName, seen.Tenant)); err != nil {
		return err
	}
	seen.Processor, err = k.certificate(ctx, r, obj.UID+"/processor", k.GatewayNamespace, naming.OfTenant(processorName, seen.Tenant))
	return err
}

func (k Kind) certificate(ctx context.Context, r engine.Reader, id types.UID, namespace, service string) (Certificate, error) {
	if k.Pairs == nil {
		return Certificate{Pair: certs.Pair{Roots: []byte{}, Certificate: []byte{}, Key: []byte{}}}, nil
	}
	secret, head := &corev1.Secret{}, &metav1.PartialObjectMetadata{}
	key := client.ObjectKey{Namespace: namespace, Name: certificateName(service)}
	err := r.GetUncached(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return Certificate{}, err
	}
	head.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	head.Namespace, head.Name = key.Namespace, key.Name
	have := certs.Pair{Roots: secret.Data[caKey], Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
	if err := r.Child(ctx, head); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return Certificate{}, err
		}
		have = certs.Pair{} // one that is not ours, or that somebody deleted
	}
	pair, at, err := k.Pairs.Take(id, service, k.Now(), hostsOf(namespace, service), have)
	return Certificate{Pair: pair, RenewAt: at}, err
}

// hostsOf are the names under which a server is called inside the cluster.
func hostsOf(namespace, service string) []string {
	near := service + "." + namespace
	return []string{service, near, near + ".svc", near + ".svc.cluster.local"}
}

func (k Kind) readDeployments(ctx context.Context, r engine.Reader, _ *v1alpha1.MaasTenantConfig, seen *Seen) error {
	for _, key := range []client.ObjectKey{
		{Namespace: k.InfraNamespace, Name: naming.OfTenant(apiName, seen.Tenant)},
		{Namespace: k.GatewayNamespace, Name: naming.OfTenant(processorName, seen.Tenant)},
		{Namespace: k.GatewayNamespace, Name: naming.OfTenant(preProcessorName, seen.Tenant)},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		err := r.Child(ctx, d)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil {
			seen.Deployments[key.Name] = d
		}
	}
	return nil
}

// readRoutes looks for routes that nobody would check any more.
func (k Kind) readRoutes(ctx context.Context, r engine.Reader, obj *v1alpha1.MaasTenantConfig, seen *Seen) (err error) {
	if obj.DeletionTimestamp == nil && obj.Annotations[AnnotationManagement] != removed && seen.Config != nil && seen.Config.DeletionTimestamp == nil {
		return nil
	}
	for _, at := range seen.all() {
		seen.RoutesAt = at.Key
		if seen.Routes, err = tenancy.ModelRoutes(ctx, r, at.Key); err != nil || len(seen.Routes) > 0 {
			return err
		}
	}
	return nil
}

// readLeft looks for what must go before the services do.
func (Kind) readLeft(ctx context.Context, r engine.Reader, obj *v1alpha1.MaasTenantConfig, seen *Seen) error {
	if obj.DeletionTimestamp == nil {
		return nil
	}
	subscriptions, policies := &v1alpha1.MaaSSubscriptionList{}, &v1alpha1.MaaSAuthPolicyList{}
	if err := r.List(ctx, subscriptions, client.InNamespace(obj.Namespace)); err != nil {
		return err
	}
	if err := r.List(ctx, policies, client.InNamespace(obj.Namespace)); err != nil {
		return err
	}
	for _, s := range subscriptions.Items {
		seen.Left = append(seen.Left, &v1alpha1.MaaSSubscription{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID, DeletionTimestamp: s.DeletionTimestamp}})
	}
	for _, p := range policies.Items {
		seen.Left = append(seen.Left, &v1alpha1.MaaSAuthPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, DeletionTimestamp: p.DeletionTimestamp}})
	}
	return nil
}
