// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Names of what belongs to a registry, which tools know: they follow its own name.
const (
	postgresSuffix    = "-postgres"
	credentialsSuffix = "-postgres-credentials"
	proxySuffix       = "-kube-rbac-proxy"
	configSuffix      = "-kube-rbac-proxy-config"
	delegatorSuffix   = "-auth-delegator"
	usersSuffix       = "-users"
	httpSuffix        = "-http"
	httpsSuffix       = "-https"
	policySuffix      = "-https-route"
	grantName         = "allow-gateway-httproutes"
)

// Labels by which tools find what belongs to registries.
const (
	labelApp       = "app"
	labelComponent = "component"
	labelName      = "app.kubernetes.io/name"
	labelCreatedBy = "app.kubernetes.io/created-by"

	component         = "model-registry"
	databaseComponent = "model-registry-postgres"
	catalogComponent  = "model-catalog"
	createdBy         = "model-registry-operator"
)

// Stages: what the server needs, the server, and what leads to it. A route that cannot be made must not keep the server
// from being made, nor must a volume that cannot grow.
const (
	stageNeeds = iota
	stageServer
	stageAround
)

// planner decides about one registry.
type planner struct {
	registry *v1beta1.ModelRegistry
	spec     *v1beta1.ModelRegistrySpec
	seen     *Seen
	database *database
	// proxy before the server, nil if there is none.
	proxy *v1beta1.KubeRBACProxy
	// held are what is kept of pods that another operator left.
	held, heldDatabase platform.Held
}

func newPlanner(m *v1beta1.ModelRegistry, seen *Seen) *planner {
	p := &planner{registry: m, spec: &m.Spec, seen: seen, database: databaseOf(m), proxy: proxyOf(&m.Spec, seen.OpenShift)}
	if p.database != nil && p.database.generated && seen.Credentials.User != "" {
		p.database.user = seen.Credentials.User
	}
	p.held, p.heldDatabase = p.hold(seen.Server), p.hold(seen.Database)
	return p
}

// hold keeps pods that another operator made for this registry, as long as the spec, as it is carried out, is that one: a default
// which is written down is no change.
func (p *planner) hold(w platform.Workload) platform.Held {
	spec := p.registry.Spec.DeepCopy()
	setDefaults(spec)
	return platform.Hold(p.registry, platform.Digest(spec), w, func(d *appsv1.Deployment) bool { return metav1.IsControlledBy(d, p.registry) })
}

func (p *planner) name() string { return p.registry.Name }

func (p *planner) plan() engine.Plan {
	if problem := p.refusal(); problem != nil {
		return engine.Plan{KeepChildren: true, Children: p.data(), Problem: problem, Status: p.heldStatus(problem), RequeueAfter: p.seen.TLS.LookAgain(p.seen.Now)}
	}
	var children []engine.Child
	for _, more := range [][]engine.Child{p.data(), p.generated(), p.server(), p.protection(), p.access(), p.exposure(), p.monitoring(), p.formerCatalog()} {
		children = append(children, more...)
	}
	return engine.Plan{Children: children, Status: p.status(), Events: p.events(), RequeueAfter: p.seen.TLS.LookAgain(p.seen.Now)}
}

// refusal is why nothing can be made of the object, nil if something can. Admission says the same, but an object may be
// older than it.
func (p *planner) refusal() *engine.Problem {
	switch {
	case p.database == nil:
		return engine.MustChange("DatabaseMissing", "The registry has no database. Set spec.postgres or spec.mysql, or the annotation %s to %s.", AnnotationDatabase, sqlite)
	case p.image() == "":
		return engine.MustChange("ImageMissing", "Neither the object nor the platform says which image to run. Set spec.rest.image, or %s in the environment of the manager.", EnvImage)
	}
	return nil
}

// image of the server, and whether it is our own.
func (p *planner) image() string {
	return cmp.Or(p.spec.Rest.Image, p.seen.Settings.Image, p.seen.Settings.OwnImage)
}

func (p *planner) ownImage() bool { return p.image() == p.seen.Settings.OwnImage }

// proxyImage is that of the proxy container; empty if the server does its work, or there is no proxy.
func (p *planner) proxyImage() string {
	if p.proxy == nil {
		return ""
	}
	image := cmp.Or(p.proxy.Image, p.seen.Settings.ProxyImage)
	if image == "" && !p.ownImage() {
		return defaultProxy
	}
	return image
}

// labels of an object, as tools expect them.
func (p *planner) labels(object string) map[string]string {
	const longest = 63
	if len(object) > longest {
		object = p.name()
	}
	return map[string]string{
		labelApp: p.name(), labelComponent: component, labelName: p.name(), "app.kubernetes.io/instance": object,
		"app.kubernetes.io/component": component, labelCreatedBy: createdBy, "app.kubernetes.io/part-of": component,
		"app.kubernetes.io/managed-by": createdBy,
	}
}

// selector finds the pods of the server.
func (p *planner) selector() map[string]string {
	return map[string]string{labelApp: p.name(), labelComponent: component, labelName: p.name()}
}

// meta is that of an object beside the registry.
func (p *planner) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.registry.Namespace, Name: name, Labels: p.labels(name)}
}

// at gives children their stage.
func at(stage int, objects ...client.Object) []engine.Child {
	var out []engine.Child
	for _, o := range objects {
		out = append(out, engine.Child{Object: o, Stage: stage})
	}
	return out
}

// access is who the server is, and who may use it.
func (p *planner) access() []engine.Child {
	role := "registry-user-" + p.name()
	meta := p.meta(role)
	meta.Annotations = map[string]string{
		annotationDisplayName: "Registry User " + p.name(), annotationDescription: "Can access Model Registry " + p.name(),
	}
	out := at(stageNeeds,
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: p.meta(p.name())},
		&rbacv1.Role{TypeMeta: platform.RBAC("Role"), ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{p.name()}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"endpoints"}, ResourceNames: []string{p.name()}, Verbs: []string{"get"}},
		}})
	if p.seen.OpenShift {
		out = append(out, p.users()...)
		out = append(out, at(stageNeeds, &rbacv1.RoleBinding{
			TypeMeta: platform.RBAC("RoleBinding"), ObjectMeta: p.meta(p.name() + usersSuffix),
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: p.name() + usersSuffix}},
		})...)
	}
	return out
}

// users is the group of those who may use the registry. Who is in it is decided by others. One of the name that nobody
// made for the registry is used as it is.
func (p *planner) users() []engine.Child {
	if !p.seen.HasGroups {
		return nil
	}
	g := platform.Foreign(group)
	g.SetName(p.name() + usersSuffix)
	g.SetLabels(p.labels(g.GetName()))
	return p.unlessTaken(engine.Child{Object: g, Stage: stageAround}, p.seen.Names.Group)
}

// unlessTaken takes over what another operator left for this registry, and leaves alone what is somebody else's.
func (p *planner) unlessTaken(child engine.Child, there *metav1.PartialObjectMetadata) []engine.Child {
	switch {
	case there == nil, there.Labels[engine.LabelOwner] != "":
	case there.Labels[labelCreatedBy] == createdBy && there.Labels[labelApp] == p.name():
		child.Object.SetUID(there.UID)
		child.Adopt = true
	default:
		return nil
	}
	return []engine.Child{child}
}
