// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/kube/cause"
	"github.com/modelplane/modelplane/internal/modelregistry/platform"
)

// formerOwners are those of what earlier releases of the known operator left: the component of the platform, and the Deployment of
// the catalog, which everything else went with.
var formerOwners = []engine.FormerOwner{
	{Group: "components.platform.opendatahub.io", Kind: "ModelRegistry", Name: "default-modelregistry"},
	{Group: appsv1.GroupName, Kind: "Deployment", Name: name},
}

// legacySources and legacyClaim are what its pods mounted that ours do not: sources that have another name now, and the volume of
// the database, which is read from the sources again.
const (
	legacySources = "model-catalog-default-sources"
	legacyClaim   = databaseName
)

// hold keeps pods that another operator made for the catalog, as long as neither the spec nor the list of sources changes, for
// which that operator would have made them anew as well.
func (p *planner) hold(w platform.Workload) platform.Held {
	digest := platform.Digest(map[string]any{"spec": p.catalog.Spec, "sources": p.seen.Sources})
	return platform.Hold(p.catalog, digest, w, func(d *appsv1.Deployment) bool {
		return metav1.IsControlledBy(d, p.catalog) ||
			slices.ContainsFunc(d.OwnerReferences, func(ref metav1.OwnerReference) bool { return engine.IsFormer(formerOwners, ref) })
	})
}

// Legacy is something that earlier releases left and that we look after until nothing needs it.
type Legacy struct {
	// There is set once it is ours.
	There bool
	// Editors are people who changed it.
	Editors []string
}

// legacy is what such an object is like.
type legacy struct {
	object  func(p *planner) client.Object
	mounted func(v *corev1.Volume) bool
	words   string
}

// legacies are all of them, in the order of Seen.Legacy.
var legacies = []legacy{
	{
		object:  func(p *planner) client.Object { return p.configMap(legacySources, "catalogs: []\n") },
		mounted: func(v *corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == legacySources },
		words:   "ConfigMap " + legacySources,
	},
	{
		object: (*planner).claim,
		mounted: func(v *corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == legacyClaim
		},
		words: "PersistentVolumeClaim " + legacyClaim,
	},
}

// claim is the volume that the database had, in the words of the operator that made it.
func (p *planner) claim() client.Object {
	return &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: p.databaseMeta(),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
		},
	}
}

// readLegacy looks at what is ours by now, and who changed it.
func (o *observer) readLegacy(ctx context.Context) error {
	sources, claim := &metav1.PartialObjectMetadata{}, &corev1.PersistentVolumeClaim{}
	sources.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	sources.Namespace, sources.Name = o.catalog.Namespace, legacySources
	claim.Namespace, claim.Name = o.catalog.Namespace, legacyClaim
	for _, obj := range []client.Object{sources, claim} {
		found, err := platform.Exists(o.Child(ctx, obj))
		if err != nil {
			return err
		}
		o.seen.Legacy = append(o.seen.Legacy, Legacy{There: found, Editors: editors(obj)})
	}
	return nil
}

// editors are those who changed an object besides operators and Kubernetes itself.
func editors(obj client.Object) []string {
	var out []string
	for _, m := range obj.GetManagedFields() {
		programs := []string{oldManager, "kube-controller-manager", "kube-scheduler"}
		if !slices.Contains(programs, m.Manager) && !engine.IsOurs(m.Manager) && !slices.Contains(out, m.Manager) {
			out = append(out, m.Manager)
		}
	}
	return out
}

// legacies stay while pods may need them, and for good where a person changed them. Then they go.
func (p *planner) legacies() []engine.Child {
	var out []engine.Child
	for i, l := range legacies {
		child := engine.Child{Object: l.object(p), Stage: stageNeeds, CreateOnly: true}
		switch left := p.seen.Legacy[i]; {
		case len(left.Editors) > 0:
			child.Retain = true
		case p.mounted(l), left.There && !p.settled():
		default:
			continue
		}
		out = append(out, child)
	}
	return out
}

// mounted tells whether pods that are there mount it.
func (p *planner) mounted(l legacy) bool {
	for _, w := range []platform.Workload{p.seen.Server, p.seen.Database} {
		if w.Whole != nil && slices.ContainsFunc(w.Whole.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return l.mounted(&v) }) {
			return true
		}
	}
	return false
}

// settled tells whether the pods of before have gone.
func (p *planner) settled() bool {
	return p.seen.Server.Live() != nil && rolledOut(p.seen.Server) && rolledOut(p.seen.Database)
}

// rolledOut tells whether the newest pods have taken over; so it is where there is no Deployment.
func rolledOut(w platform.Workload) bool {
	d := w.Live()
	return d == nil || cause.Observed(d) && kube.RolledOut(d)
}

// kept says in words what was changed by people and is of no use any more; empty if there is nothing.
func (p *planner) kept() string {
	var out []string
	for i, left := range p.seen.Legacy {
		if len(left.Editors) > 0 && !p.mounted(legacies[i]) {
			out = append(out, legacies[i].words+" (changed by "+strings.Join(left.Editors, ", ")+")")
		}
	}
	return strings.Join(out, "; ")
}
