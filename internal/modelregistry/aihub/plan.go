// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/aihub/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// Names of what belongs to a catalog. They do not follow the name of the object: there is one catalog, and tools look for it
// under these.
const (
	name           = "model-catalog"
	databaseName   = "model-catalog-postgres"
	tlsSecret      = "model-catalog-kube-rbac-proxy"
	proxyConfig    = "model-catalog-kube-rbac-proxy-config"
	delegator      = "model-catalog-auth-delegator"
	policyName     = "model-catalog-https-route"
	routeName      = "model-catalog-https"
	readerBinding  = "model-catalog-authenticated"
	adminRole      = "model-catalog-admin"
	adminBinding   = "model-catalog-admin-binding"
	defaultSources = "default-catalog-sources"
	// grantName is our own: registries of the namespace have one for themselves.
	grantName = "allow-gateway-httproutes-model-catalog"
	// tokens is a Secret whose keys become variables of the server, such as HF_API_KEY. There may be none.
	tokens = "model-catalog-api-keys"
)

// Labels by which tools find what belongs to catalogs.
const (
	labelApp       = "app"
	labelComponent = "component"
	labelName      = "app.kubernetes.io/name"
	labelSource    = "opendatahub.io/catalog-source"
	createdBy      = "model-registry-operator"
)

// Stages: what the server needs, the server, and what leads to it.
const (
	stageNeeds = iota
	stageServer
	stageAround
)

// planner decides about one catalog.
type planner struct {
	catalog *v1alpha1.Catalog
	seen    *Seen
	// held are what is kept of pods that another operator left.
	held, heldDatabase platform.Held
}

func newPlanner(c *v1alpha1.Catalog, seen *Seen) *planner {
	p := &planner{catalog: c, seen: seen}
	p.held, p.heldDatabase = p.hold(seen.Server), p.hold(seen.Database)
	return p
}

func (p *planner) plan() engine.Plan {
	if problem := p.refusal(); problem != nil {
		return engine.Plan{KeepChildren: true, Problem: problem, Status: p.heldStatus(problem)}
	}
	var children []engine.Child
	for _, more := range [][]engine.Child{p.access(), p.sources(), p.legacies(), p.database(), p.server(), p.protection(), p.exposure(), p.monitoring()} {
		children = append(children, more...)
	}
	return engine.Plan{Children: children, Status: p.status(), RequeueAfter: p.seen.TLS.LookAgain(p.seen.Now)}
}

// refusal is why nothing can be made of the object, nil if something can. Admission says the same, but an object may be older
// than it.
func (p *planner) refusal() *engine.Problem {
	switch only := p.seen.Settings.CatalogNamespace; {
	case p.catalog.Name != v1alpha1.CatalogName:
		return engine.MustChange("NameRefused", "There is one catalog in a namespace, and it is called %s. Delete this object and make one of that name.", v1alpha1.CatalogName)
	case only != "" && p.catalog.Namespace != only:
		return engine.MustChange("NamespaceRefused", "The catalog of this platform is in namespace %s. Delete this object and make one there.", only)
	case p.seen.Settings.image() == "":
		return engine.MustChange("ImageMissing", "The platform does not say which image to run. Set RELATED_IMAGE_ODH_MODEL_REGISTRY_IMAGE in the environment of the manager.")
	}
	return nil
}

// labels of an object, as tools expect them.
func labelsOf(component string) map[string]string {
	return map[string]string{
		labelApp: name, labelComponent: component, labelName: name, "app.kubernetes.io/instance": name, "app.kubernetes.io/component": component,
		"app.kubernetes.io/created-by": createdBy, "app.kubernetes.io/managed-by": createdBy, "app.kubernetes.io/part-of": name,
	}
}

// podsOf are the labels of pods, by which they are found.
func podsOf(component string) map[string]string {
	return map[string]string{labelApp: name, labelComponent: component, labelName: name}
}

func (p *planner) meta(object string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.catalog.Namespace, Name: object, Labels: labelsOf(name)}
}

// at gives children their stage. What an earlier operator left under these names is taken over.
func at(stage int, objects ...client.Object) []engine.Child {
	var out []engine.Child
	for _, o := range objects {
		out = append(out, engine.Child{Object: o, Stage: stage, Adopt: true})
	}
	return out
}

// access is who the server is, who may read the catalog, and who may say what it shows. Administrators may read the tokens of
// the catalog and no other Secret.
func (p *planner) access() []engine.Child {
	out := at(stageNeeds,
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: p.meta(name)},
		&rbacv1.Role{TypeMeta: platform.RBAC("Role"), ObjectMeta: p.meta(name), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services", "endpoints"}, ResourceNames: []string{name}, Verbs: []string{"get"}},
		}},
		p.binding(readerBinding, name, "system:authenticated"),
		&rbacv1.Role{TypeMeta: platform.RBAC("Role"), ObjectMeta: p.meta(adminRole), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: userSources(), Verbs: []string{"update", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{tokens}, Verbs: []string{"get", "patch"}},
		}})
	if len(p.seen.Admins) > 0 {
		out = append(out, at(stageNeeds, p.binding(adminBinding, adminRole, p.seen.Admins...))...)
	}
	return out
}

func (p *planner) binding(object, role string, groups ...string) *rbacv1.RoleBinding {
	out := &rbacv1.RoleBinding{
		TypeMeta: platform.RBAC("RoleBinding"), ObjectMeta: p.meta(object),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
	}
	for _, group := range groups {
		out.Subjects = append(out.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group})
	}
	return out
}
