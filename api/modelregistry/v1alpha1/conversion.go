// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
)

// What one version cannot say is carried in an annotation of the other. Both names belong to conversion alone: each
// direction consumes one, writes the other and drops what it cannot read, because a conversion that fails on one
// object would make lists of all of them fail.
const (
	// KeptFromV1beta1 stands on v1alpha1 objects and holds what only v1beta1 can say.
	KeptFromV1beta1 = "modelregistry.opendatahub.io/kept-from-v1beta1"

	// KeptFromV1alpha1 stands on v1beta1 objects and holds what only v1alpha1 can say.
	KeptFromV1alpha1 = "modelregistry.opendatahub.io/kept-from-v1alpha1"
)

// keptBeta is what v1alpha1 cannot say.
type keptBeta struct {
	// ProxyIsKubeRBAC tells that what v1alpha1 shows as its proxy is the kubeRBACProxy.
	ProxyIsKubeRBAC bool `json:"proxyIsKubeRBAC,omitempty"`
	// KubeRBACProxy is set when there was an oauthProxy too, so that it could not be shown.
	KubeRBACProxy *v1beta1.KubeRBACProxy `json:"kubeRBACProxy,omitempty"`
	// NoGrpc tells that grpc, which v1alpha1 requires, was absent.
	NoGrpc bool `json:"noGrpc,omitempty"`
	// Postgres is set when the database is generated here or has an image.
	Postgres *keptPostgres `json:"postgres,omitempty"`
}

// keptPostgres keeps the hosts too: when they change, somebody chose another database.
type keptPostgres struct {
	GenerateDeployment *bool  `json:"generateDeployment,omitempty"`
	Image              string `json:"image,omitempty"`
	Host               string `json:"host,omitempty"`
	HostAddress        string `json:"hostAddress,omitempty"`
}

// keptAlpha is what v1beta1 cannot say.
type keptAlpha struct {
	// Istio is the mesh settings as they were given.
	Istio *Istio `json:"istio,omitempty"`
	// StandIn is the proxy that replaced them; nil when there was an oauthProxy beside them.
	StandIn *OAuthProxy `json:"standIn,omitempty"`
}

// ConvertTo writes the registry in the hub version.
func (r *ModelRegistry) ConvertTo(hub conversion.Hub) error {
	dst, ok := hub.(*v1beta1.ModelRegistry)
	if !ok {
		return fmt.Errorf("convert ModelRegistry v1alpha1 to %T: only v1beta1 is known", hub)
	}
	src := r.DeepCopy()
	kept := take[keptBeta](&src.ObjectMeta, KeptFromV1beta1)
	delete(src.Annotations, KeptFromV1alpha1)

	dst.ObjectMeta = src.ObjectMeta
	dst.Status = v1beta1.ModelRegistryStatus(src.Status)
	dst.Spec = specToBeta(&src.Spec)
	proxy := src.Spec.OAuthProxy
	if src.Spec.Istio != nil {
		aside := keptAlpha{Istio: src.Spec.Istio}
		if proxy == nil {
			proxy = standInFor(src.Spec.Istio)
			aside.StandIn = proxy
		}
		if err := put(&dst.ObjectMeta, KeptFromV1alpha1, aside); err != nil {
			return err
		}
	}
	kept.restore(&dst.Spec, proxy)
	return nil
}

// restore fills in the proxy and what v1alpha1 could not say. What somebody changed through v1alpha1 in the meantime
// goes before what was kept.
func (k *keptBeta) restore(spec *v1beta1.ModelRegistrySpec, proxy *OAuthProxy) {
	if k.ProxyIsKubeRBAC {
		spec.KubeRBACProxy = kubeRBACFrom(proxy)
	} else {
		spec.OAuthProxy = oauthToBeta(proxy)
		spec.KubeRBACProxy = k.KubeRBACProxy
	}
	if k.NoGrpc && grpcIsDefault(spec.Grpc) {
		spec.Grpc = nil
	}
	if k.Postgres == nil || spec.Postgres == nil {
		return
	}
	spec.Postgres.Image = k.Postgres.Image
	if spec.Postgres.Host == k.Postgres.Host && spec.Postgres.HostAddress == k.Postgres.HostAddress {
		spec.Postgres.GenerateDeployment = k.Postgres.GenerateDeployment
	}
}

// ConvertFrom reads the registry from the hub version.
func (r *ModelRegistry) ConvertFrom(hub conversion.Hub) error {
	from, ok := hub.(*v1beta1.ModelRegistry)
	if !ok {
		return fmt.Errorf("convert ModelRegistry v1alpha1 from %T: only v1beta1 is known", hub)
	}
	src := from.DeepCopy()
	kept := take[keptAlpha](&src.ObjectMeta, KeptFromV1alpha1)
	delete(src.Annotations, KeptFromV1beta1)

	r.ObjectMeta = src.ObjectMeta
	r.Status = ModelRegistryStatus(src.Status)
	r.Spec = specFromBeta(&src.Spec)
	kept.restore(&r.Spec)
	if aside := keepFor(&src.Spec); aside != (keptBeta{}) {
		return put(&r.ObjectMeta, KeptFromV1beta1, aside)
	}
	return nil
}

// restore brings the mesh settings back in place of the proxy that stood in for them, unless somebody changed that
// proxy through v1beta1: then the mesh settings no longer say what runs.
func (k *keptAlpha) restore(spec *ModelRegistrySpec) {
	switch {
	case k.Istio == nil:
	case k.StandIn == nil:
		spec.Istio = k.Istio
	case equality.Semantic.DeepEqual(spec.OAuthProxy, k.StandIn):
		spec.Istio, spec.OAuthProxy = k.Istio, nil
	}
}

// keepFor collects what v1alpha1 cannot say.
func keepFor(spec *v1beta1.ModelRegistrySpec) keptBeta {
	kept := keptBeta{NoGrpc: spec.Grpc == nil}
	if spec.OAuthProxy == nil {
		kept.ProxyIsKubeRBAC = spec.KubeRBACProxy != nil
	} else {
		kept.KubeRBACProxy = spec.KubeRBACProxy
	}
	if p := spec.Postgres; p != nil && (p.GenerateDeployment != nil || p.Image != "") {
		kept.Postgres = &keptPostgres{GenerateDeployment: p.GenerateDeployment, Image: p.Image, Host: p.Host, HostAddress: p.HostAddress}
	}
	return kept
}

// grpcIsDefault tells whether grpc holds no more than the API server fills in for an empty one.
func grpcIsDefault(grpc *v1beta1.Grpc) bool {
	return grpc == nil || (grpc.Image == "" && grpc.Resources == nil && (grpc.Port == nil || *grpc.Port == defaultGrpcPort))
}

// take removes an annotation and returns what it holds: nothing when it is absent or cannot be read.
func take[T any](meta *metav1.ObjectMeta, name string) T {
	var kept, nothing T
	if err := json.Unmarshal([]byte(meta.Annotations[name]), &kept); err != nil {
		kept = nothing
	}
	delete(meta.Annotations, name)
	return kept
}

func put(meta *metav1.ObjectMeta, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write annotation %s: %w", name, err)
	}
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[name] = string(text)
	return nil
}
