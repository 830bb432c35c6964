// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
)

const (
	prefix = "/" + name
	port   = 8443
	// checksumAnnotation on the pods changes with what they read when they start.
	checksumAnnotation = "mlflow.opendatahub.io/checksum"
	// serviceCA is where OpenShift puts the certificates of its service authority, in every namespace.
	serviceCA, serviceCAKey = "openshift-service-ca.crt", "service-ca.crt"
)

// values are those of the chart. They are set as a whole: a partial spec.resources is not mixed with the chart's own.
type values map[string]any

// put sets a value below a path that the chart has. What the chart does not know is a mistake of ours.
func (v values) put(value any, path ...string) {
	m := map[string]any(v)
	for _, field := range path[:len(path)-1] {
		m = m[field].(map[string]any)
	}
	last := path[len(path)-1]
	if _, ok := m[last]; !ok {
		panic(fmt.Sprintf("the chart has no value %s", strings.Join(path, ".")))
	}
	m[last] = value
}

// given sets a value unless it is the zero one.
func given[T any](v values, value *T, path ...string) {
	if value != nil {
		v.put(*value, path...)
	}
}

// some sets a list or map unless it is empty.
func some[T any](v values, value []T, path ...string) {
	if len(value) > 0 {
		v.put(value, path...)
	}
}

// values says to the chart what the spec says.
func (p *planner) values() (values, error) {
	v, err := p.chart.Values()
	if err != nil {
		return nil, err
	}
	spec, set := p.spec, values(v)
	set.put(p.seen.Settings.Namespace, "namespace")
	set.put(ptr.Deref(spec.Replicas, 1), "replicaCount")
	set.put(p.image(), "image", "name")
	if spec.Image != nil {
		set.put(spec.Image.ImagePullPolicy, "image", "imagePullPolicy")
	}
	set.put(accountOf(spec), "serviceAccount", "name")
	set.put(!p.seen.ForeignAccount, "serviceAccount", "create")
	given(set, spec.Resources, "resources")
	if spec.TemporaryStorage != nil {
		given(set, spec.TemporaryStorage.SizeLimit, "temporaryStorage", "sizeLimit")
	}
	p.putPods(set)
	p.putStorage(set)
	p.putTrust(set)
	p.putJobs(set)
	set.put(p.seen.HasRoutes, "httpRoute", "enabled")
	set.put(map[string]any{"name": p.seen.Settings.GatewayName, "namespace": p.seen.Settings.GatewayNamespace}, "httpRoute", "gateway")
	set.put(p.seen.HasConsole && p.seen.Settings.URL != "", "consoleLink", "enabled")
	set.put(p.seen.Settings.URL+prefix, "consoleLink", "href")
	set.put(p.seen.Settings.SectionTitle, "consoleLink", "section")
	return set, p.putServer(set)
}

func accountOf(spec *mlflowv1.MLflowSpec) string {
	return cmp.Or(spec.ServiceAccountName, defaultAccount)
}

// image is the one that the spec names, or the platform's; empty if there is neither.
func (p *planner) image() string {
	if p.spec.Image != nil && p.spec.Image.Image != "" {
		return p.spec.Image.Image
	}
	return p.seen.Settings.Image
}

func (p *planner) putPods(set values) {
	spec := p.spec
	annotations := map[string]string{}
	maps.Copy(annotations, spec.PodAnnotations)
	annotations[checksumAnnotation] = p.seen.Checksum
	set.put(annotations, "podAnnotations")
	if len(spec.PodLabels) > 0 {
		set.put(spec.PodLabels, "podLabels")
	}
	if len(spec.NodeSelector) > 0 {
		set.put(spec.NodeSelector, "nodeSelector")
	}
	set.put(p.env(), "env")
	some(set, spec.EnvFrom, "envFrom")
	given(set, spec.PodSecurityContext, "podSecurityContext")
	given(set, spec.SecurityContext, "securityContext")
	some(set, spec.Tolerations, "tolerations")
	given(set, spec.Affinity, "affinity")
	some(set, spec.ResourceClaims, "resourceClaims")
	some(set, spec.NetworkPolicyEgressRules, "networkPolicy", "egressRules")
	some(set, spec.NetworkPolicyAdditionalEgressRules, "networkPolicy", "additionalEgressRules")
}

// env is the user's, with what OpenShift's servers have for their ciphers.
func (p *planner) env() []corev1.EnvVar {
	env := append([]corev1.EnvVar{}, p.spec.Env...)
	const ciphers = "UVICORN_SSL_CIPHERS"
	if p.seen.OpenShift && !slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return e.Name == ciphers }) {
		env = append(env, corev1.EnvVar{Name: ciphers, Value: "PROFILE=SYSTEM"})
	}
	return env
}

func (p *planner) putServer(set values) error {
	spec := p.spec
	putStore(set, backendOf(spec), "backendStoreUri")
	putStore(set, replicaOf(spec), "readReplicaBackendStoreUri")
	putStore(set, registryOf(spec), "registryStoreUri")
	set.put(cmp.Or(ptr.Deref(spec.ArtifactsDestination, ""), defaultDestination), "mlflow", "artifactsDestination")
	set.put(ptr.Deref(spec.DefaultArtifactRoot, ""), "mlflow", "defaultArtifactRoot")
	set.put(ptr.Deref(spec.ServeArtifacts, false), "mlflow", "serveArtifacts")
	set.put(ptr.Deref(spec.Workers, 1), "mlflow", "workers")
	set.put([]string{"*"}, "mlflow", "allowedHosts")
	set.put(prefix, "mlflow", "staticPrefix")
	set.put(strings.Join(p.origins(), ","), "mlflow", "corsAllowedOrigins")
	if spec.WorkspaceLabelSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(spec.WorkspaceLabelSelector)
		if err != nil {
			return fmt.Errorf("spec.workspaceLabelSelector: %w", err)
		}
		set.put(selector.String(), "mlflow", "workspaceLabelSelector")
	}
	return nil
}

// putStore sets a database; a reference goes before an address.
func putStore(set values, s store, field string) {
	if s.from != nil {
		set.put(map[string]any{"secretKeyRef": s.from}, "mlflow", field+"From")
		return
	}
	set.put(s.uri, "mlflow", field)
}

// origins are those from which browsers may call the server.
func (p *planner) origins() []string {
	at := fmt.Sprintf("https://%s:%d", host(p.seen.Settings.Namespace), port)
	out := []string{
		fmt.Sprintf("https://%s:%d", name, port), at, strings.Replace(at, ".svc:", ".svc.cluster.local:", 1), "localhost:*", "127.0.0.1:*",
	}
	if origin := p.seen.Settings.origin(); origin != "" {
		out = append(out, origin)
	}
	for _, extra := range p.spec.ExtraAllowedOrigins {
		if usableOrigin(extra) {
			out = append(out, strings.TrimSpace(extra))
		}
	}
	return out
}

// usableOrigin is false for what would break the list, of which admission warns.
func usableOrigin(origin string) bool {
	return strings.TrimSpace(origin) != "" && !strings.Contains(origin, ",")
}

// putTrust says whom the server trusts, and how others come to trust it.
func (p *planner) putTrust(set values) {
	const below = "/etc/pki/tls/certs/"
	var bundles []map[string]any
	if p.seen.HasPlatformCA {
		bundles = append(bundles, map[string]any{"name": platformCA, "mountPath": below + "platform"})
	}
	if p.spec.CABundleConfigMap != nil {
		bundles = append(bundles, map[string]any{"name": p.spec.CABundleConfigMap.Name, "mountPath": below + "custom"})
		if p.opensPostgres() {
			set.put("verify-full", "caBundle", "pgSSLMode")
		}
	}
	some(set, bundles, "caBundle", "configMaps")
	set.put(p.seen.HasMonitors, "metrics", "enabled")
	switch {
	case p.seen.OpenShift:
		set.put(416, "tls", "defaultMode")
		set.put(map[string]any{"configMapName": serviceCA, "secretName": "", "key": serviceCAKey}, "tls", "ca")
		set.put(p.scrape(map[string]any{"configMap": map[string]any{"name": serviceCA, "key": serviceCAKey}}), "metrics", "tlsConfig")
	case p.seen.TLS.HasCA:
		set.put(map[string]any{"configMapName": "", "secretName": tlsSecret, "key": caKey}, "tls", "ca")
		set.put(p.scrape(map[string]any{"secret": map[string]any{"name": tlsSecret, "key": caKey}}), "metrics", "tlsConfig")
	}
}

// scrape is how Prometheus trusts the server.
func (p *planner) scrape(ca map[string]any) map[string]any {
	return map[string]any{"ca": ca, "serverName": host(p.seen.Settings.Namespace)}
}

// opensPostgres tells whether a database is a PostgreSQL whose address does not say how to connect. The user's bundle
// then means that it is reached over TLS, and verified; the platform's bundle, which is in every namespace, means nothing.
func (p *planner) opensPostgres() bool {
	return slices.ContainsFunc(storesOf(p.spec), func(s store) bool { return opensTLS(p.address(s)) })
}

func (p *planner) address(s store) string { return cmp.Or(s.uri, p.seen.Addresses[s.field]) }

// putJobs sets garbage collection and trace archival.
func (p *planner) putJobs(set values) {
	if gc := p.spec.GarbageCollection; gc != nil {
		set.put(true, "garbageCollection", "enabled")
		set.put(gc.Schedule, "garbageCollection", "schedule")
		set.put(ptr.Deref(gc.OlderThan, ""), "garbageCollection", "olderThan")
		given(set, gc.Resources, "garbageCollection", "resources")
	}
	if a := p.spec.TraceArchival; a != nil && ptr.Deref(a.Enabled, false) {
		set.put(true, "traceArchival", "enabled")
		given(set, a.Schedule, "traceArchival", "schedule")
		given(set, a.Location, "traceArchival", "location")
		given(set, a.Retention, "traceArchival", "retention")
		given(set, a.MaxTracesPerPass, "traceArchival", "maxTracesPerPass")
		some(set, a.LongRetentionAllowlist, "traceArchival", "longRetentionAllowlist")
		given(set, a.Resources, "traceArchival", "resources")
	}
}
