// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1alpha1"
	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
)

// Admission returns the kinds of the domain with the rules that their schemas cannot express. Both versions of a registry
// are asked for at the one path that installations know.
func (r *Domain) Admission() ([]admission.Kind, error) {
	kinds, err := admission.Kinds(admission.ModelRegistry)
	if err != nil {
		return nil, err
	}
	for i := range kinds {
		switch k := &kinds[i]; k.GVK {
		case v1beta1.GroupVersion.WithKind("ModelRegistry"):
			k.PathWithoutVersion, k.Default, k.Validate = true, setDefault, r.validate
		case v1alpha1.GroupVersion.WithKind("ModelRegistry"):
			k.PathWithoutVersion, k.Default, k.Validate = true, setFormerDefault, r.validateFormer
		}
	}
	return kinds, nil
}

func setDefault(_ context.Context, obj client.Object) error {
	setDefaults(&obj.(*v1beta1.ModelRegistry).Spec)
	return nil
}

// setDefaults fills in what the schema cannot: databases that are none are left out, and the former proxy becomes the
// present one.
func setDefaults(spec *v1beta1.ModelRegistrySpec) {
	if spec.Rest.ServiceRoute == "" {
		spec.Rest.ServiceRoute = v1beta1.Disabled
	}
	if p := spec.Postgres; p != nil && p.Host == "" && p.HostAddress == "" && !ptr.Deref(p.GenerateDeployment, false) {
		spec.Postgres = nil
	}
	if spec.MySQL != nil && spec.MySQL.Host == "" {
		spec.MySQL = nil
	}
	if spec.OAuthProxy != nil && spec.KubeRBACProxy == nil && spec.OAuthProxy.Image == "" { // else something is to be told about it
		spec.KubeRBACProxy, spec.OAuthProxy = fromOAuth(spec.OAuthProxy), nil
	}
	if spec.KubeRBACProxy != nil && spec.KubeRBACProxy.ServiceRoute == "" {
		spec.KubeRBACProxy.ServiceRoute = v1beta1.Enabled
	}
}

// setFormerDefault does the same for the former version, as far as that can say it.
func setFormerDefault(_ context.Context, obj client.Object) error {
	m := obj.(*v1alpha1.ModelRegistry)
	if m.Spec.Rest.ServiceRoute == "" {
		m.Spec.Rest.ServiceRoute = v1alpha1.Disabled
	}
	if p := m.Spec.Postgres; p != nil && p.Host == "" && p.HostAddress == "" && !generatedBefore(m) {
		m.Spec.Postgres = nil
	}
	if m.Spec.MySQL != nil && m.Spec.MySQL.Host == "" {
		m.Spec.MySQL = nil
	}
	if p := m.Spec.OAuthProxy; p != nil && p.ServiceRoute == "" {
		p.ServiceRoute = v1alpha1.Enabled
	}
	return nil
}

// generatedBefore tells whether the present version has a generated database, which the former cannot show.
func generatedBefore(m *v1alpha1.ModelRegistry) bool {
	hub, err := present(m)
	return err == nil && generates(hub.Spec.Postgres)
}

// present is an object of the former version in the present one.
func present(m *v1alpha1.ModelRegistry) (*v1beta1.ModelRegistry, error) {
	hub := &v1beta1.ModelRegistry{}
	return hub, m.DeepCopy().ConvertTo(hub)
}

func (r *Domain) validateFormer(ctx context.Context, old, obj client.Object) ([]string, error) {
	now, err := present(obj.(*v1alpha1.ModelRegistry))
	if err != nil {
		return nil, err
	}
	var before client.Object
	if was, ok := old.(*v1alpha1.ModelRegistry); ok && was != nil {
		hub, err := present(was)
		if err != nil {
			return nil, err
		}
		before = hub
	}
	return r.validate(ctx, before, now)
}

// validate refuses what an update adds; what was wrong before is only warned of.
func (r *Domain) validate(ctx context.Context, old, obj client.Object) ([]string, error) {
	found := admission.Check(old, obj, r.examine)
	m := obj.(*v1beta1.ModelRegistry)
	if was, ok := old.(*v1beta1.ModelRegistry); ok && was != nil {
		found.Refuse(examineSwitch(was, m)...)
	} else {
		found.Refuse(examineName(ctx, m)...)
	}
	return found.Result()
}

var (
	specPath = field.NewPath("spec")
	metaPath = field.NewPath("metadata")
)

// examine looks at one object by itself.
func (r *Domain) examine(m *v1beta1.ModelRegistry) *admission.Report {
	found := &admission.Report{}
	if only := r.settings.RegistriesNamespace; only != "" && m.Namespace != only {
		found.Refuse(field.Invalid(metaPath.Child("namespace"), m.Namespace, "namespace must be "+only))
	}
	if databaseOf(m) == nil {
		const missing = "required one of `postgres` or `mysql` database"
		found.Refuse(field.Required(specPath.Child("postgres"), missing), field.Required(specPath.Child("mysql"), missing))
	}
	if p := m.Spec.Postgres; generates(p) && (p.Host != "" || p.HostAddress != "") {
		found.Refuse(field.Invalid(specPath.Child("postgres", "host"), p.Host, "host should not be set when auto-provisioning is enabled"))
	}
	examineAnnotations(found, m)
	for _, i := range ignoredBy(m, false) {
		found.Warn(field.NewPath(i.field), "has no effect: %s", i.why)
	}
	return found
}

func examineAnnotations(found *admission.Report, m *v1beta1.ModelRegistry) {
	at := func(name string) *field.Path { return metaPath.Child("annotations").Key(name) }
	if text, ok := m.Annotations[AnnotationReplicas]; ok {
		n, err := strconv.ParseInt(text, 10, 32)
		switch d := databaseOf(m); {
		case err != nil || n < 1:
			found.Refuse(field.Invalid(at(AnnotationReplicas), text, "must be a number of pods, 1 or more"))
		case n > 1 && d != nil && d.kind == sqlite:
			found.Refuse(field.Invalid(at(AnnotationReplicas), text, "SQLite keeps its data in a file, which only one pod can use; use PostgreSQL or MySQL"))
		}
	}
	if text, ok := m.Annotations[AnnotationStorageSize]; ok {
		if size, err := resource.ParseQuantity(text); err != nil || size.Sign() <= 0 {
			found.Refuse(field.Invalid(at(AnnotationStorageSize), text, "must be a size, such as 20Gi"))
		}
	}
	if text, ok := m.Annotations[AnnotationDatabase]; ok && text != sqlite {
		found.Refuse(field.NotSupported(at(AnnotationDatabase), text, []string{sqlite}))
	}
}

// examineName refuses a name that another registry has, wherever it is, or that no Service can have.
func examineName(ctx context.Context, m *v1beta1.ModelRegistry) field.ErrorList {
	at := metaPath.Child("name")
	const longest = validation.DNS1035LabelMaxLength - len(postgresSuffix)
	for _, why := range validation.IsDNS1035Label(m.Name) {
		return field.ErrorList{field.Invalid(at, m.Name, "the Service of the registry has this name: "+why)}
	}
	if len(m.Name) > longest {
		return field.ErrorList{field.TooLong(at, m.Name, longest)}
	}
	reader := admission.ReaderFrom(ctx)
	if reader == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // a cache that is filled takes none of it
	defer cancel()
	others := &v1beta1.ModelRegistryList{}
	if reader.List(ctx, others, client.UnsafeDisableDeepCopy) != nil {
		return nil // what is missed here is told in a condition
	}
	for i := range others.Items {
		if o := &others.Items[i]; o.Name == m.Name && o.Namespace != m.Namespace && o.DeletionTimestamp == nil {
			return field.ErrorList{duplicate(at, m.Name, o.Namespace)}
		}
	}
	return nil
}

// duplicate is worded as existing tools expect it.
func duplicate(at *field.Path, name, namespace string) *field.Error {
	err := field.Duplicate(at, name)
	err.Detail = fmt.Sprintf("registry named %s already exists in namespace %s", name, namespace)
	return err
}

// examineSwitch refuses another database, in which the registry would not find what it has, unless that very database is
// named in an annotation.
func examineSwitch(old, m *v1beta1.ModelRegistry) field.ErrorList {
	was, is := databaseOf(old), databaseOf(m)
	if was == nil || is == nil || was.identity() == is.identity() || m.Annotations[AnnotationSwitchDatabase] == is.identity() {
		return nil
	}
	at := specPath.Child("postgres")
	if is.kind == mysql {
		at = specPath.Child("mysql")
	}
	return field.ErrorList{field.Forbidden(at, fmt.Sprintf("the registry keeps its data in %s, and would not find it in %s; move the data, and set the annotation %s to %q to switch",
		was, is, AnnotationSwitchDatabase, is.identity()))}
}

// ignored is a setting that nothing is made of.
type ignored struct{ field, why string }

func (i ignored) String() string { return i.field + " has no effect: " + i.why + "." }

// ignoredBy are the settings of a registry that nothing is made of.
func ignoredBy(m *v1beta1.ModelRegistry, openShift bool) []ignored {
	spec := &m.Spec
	var out []ignored
	say := func(on bool, path, why string) {
		if on {
			out = append(out, ignored{"spec." + path, why})
		}
	}
	say(strings.Contains(m.Annotations[v1alpha1.KeptFromV1alpha1], `"istio"`), "istio",
		"there is a proxy that asks Kubernetes who may enter instead; use v1beta1 and spec.kubeRBACProxy")
	if g := spec.Grpc; g != nil {
		say(positive(g.Port, 9090) != 9090 || g.Image != "" || g.Resources != nil, "grpc", "the gRPC server is no longer run")
	}
	say(spec.EnableDatabaseUpgrade != nil, "enable_database_upgrade", "the server brings its database to its own version whenever it starts")
	say(spec.DowngradeDBSchemaVersion != nil, "downgrade_db_schema_version", "the server cannot bring a database to an earlier version")
	say(spec.MySQL != nil && spec.Postgres != nil, "mysql", "spec.postgres goes before it")
	if p := spec.Postgres; p != nil {
		say(ptr.Deref(p.SkipDBCreation, false), "postgres.skipDBCreation", "the server never creates a database, it only fills one")
		say(p.Host != "" && p.HostAddress != "", "postgres.hostAddress", "spec.postgres.host goes before it")
		if generates(p) {
			saysGenerated(p, say)
		}
	} else if s := spec.MySQL; s != nil {
		say(ptr.Deref(s.SkipDBCreation, false), "mysql.skipDBCreation", "the server never creates a database, it only fills one")
	}
	say(proxyOf(spec, openShift) != nil && spec.Rest.ServiceRoute == v1beta1.Enabled, "rest.serviceRoute", "the proxy is before the server; use spec.kubeRBACProxy.serviceRoute")
	if spec.OAuthProxy != nil {
		say(spec.OAuthProxy.Image != "", "oauthProxy.image", "kube-rbac-proxy is run instead; use spec.kubeRBACProxy.image")
	}
	return out
}

// saysGenerated are settings of a connection that a generated database decides itself.
func saysGenerated(p *v1beta1.Postgres, say func(bool, string, string)) {
	var fields []string
	for name, set := range map[string]bool{
		"username": p.Username != "", "database": p.Database != "", "passwordSecret": p.PasswordSecret != nil,
	} {
		if set {
			fields = append(fields, name)
		}
	}
	if len(fields) > 0 {
		slices.Sort(fields)
		say(true, "postgres."+strings.Join(fields, ", "), "a generated database has its own")
	}
	say(p.SSLMode != "" && p.SSLMode != v1beta1.SSLDisable, "postgres.sslMode", "a generated database is reached inside the namespace only, without TLS")
}
