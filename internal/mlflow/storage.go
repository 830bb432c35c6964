// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
)

// defaultSize is that of a volume whose spec does not say it.
const defaultSize = "2Gi"

func (p *planner) putStorage(set values) {
	set.put(p.spec.Storage != nil, "storage", "enabled")
	set.put(false, "storage", "keep")
	if p.spec.Storage != nil {
		claim, _ := p.claim()
		set.put(claim, "storage", "spec")
	}
}

// claim is the spec of the volume's claim: what is asked for, but for what Kubernetes does not let anybody change once
// the claim exists. The notes say what could not be honoured.
func (p *planner) claim() (corev1.PersistentVolumeClaimSpec, []string) {
	claim := *p.spec.Storage.DeepCopy()
	if len(claim.AccessModes) == 0 {
		claim.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	if claim.StorageClassName != nil && *claim.StorageClassName == "" && p.seen.Claim == nil {
		claim.StorageClassName = nil // an empty class has always meant the default one here
	}
	if _, ok := claim.Resources.Requests[corev1.ResourceStorage]; !ok {
		claim.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(defaultSize)}
	}
	if p.seen.Claim == nil {
		return claim, nil
	}
	var notes []string
	live := p.seen.Claim.Spec.DeepCopy()
	keep := func(field string, asked bool, want, have any) {
		if asked && !equality.Semantic.DeepEqual(want, have) {
			notes = append(notes, field)
		}
	}
	keep("accessModes", len(p.spec.Storage.AccessModes) > 0, modes(claim.AccessModes), modes(live.AccessModes))
	keep("storageClassName", ptr.Deref(claim.StorageClassName, "") != "", claim.StorageClassName, live.StorageClassName)
	keep("volumeMode", claim.VolumeMode != nil, claim.VolumeMode, live.VolumeMode)
	keep("volumeName", claim.VolumeName != "", claim.VolumeName, live.VolumeName)
	keep("selector", claim.Selector != nil, claim.Selector, live.Selector)
	keep("dataSource", claim.DataSource != nil, claim.DataSource, live.DataSource)
	keep("dataSourceRef", claim.DataSourceRef != nil, claim.DataSourceRef, live.DataSourceRef)
	want, have := claim.Resources.Requests[corev1.ResourceStorage], live.Resources.Requests[corev1.ResourceStorage]
	if want.Cmp(have) < 0 {
		notes = append(notes, "resources.requests.storage")
		claim.Resources.Requests[corev1.ResourceStorage] = have
	}
	claim.AccessModes, claim.StorageClassName, claim.VolumeMode = live.AccessModes, live.StorageClassName, live.VolumeMode
	claim.VolumeName, claim.Selector, claim.DataSource, claim.DataSourceRef = live.VolumeName, live.Selector, live.DataSource, live.DataSourceRef
	if claim.VolumeAttributesClassName == nil {
		claim.VolumeAttributesClassName = live.VolumeAttributesClassName
	}
	return claim, notes
}

// modes are in no order.
func modes(in []corev1.PersistentVolumeAccessMode) []corev1.PersistentVolumeAccessMode {
	return slices.Sorted(slices.Values(in))
}

// claimNote says what could not be honoured, empty if everything was.
func (p *planner) claimNote() string {
	if p.spec.Storage == nil {
		return ""
	}
	_, notes := p.claim()
	if len(notes) == 0 {
		return ""
	}
	return fmt.Sprintf("The PersistentVolumeClaim %s/%s exists already, and Kubernetes does not allow %s to be changed as spec.storage asks. "+
		"The claim stays as it is; set spec.storage to what it has, or move the data to a new claim.",
		p.seen.Settings.Namespace, claimName, strings.Join(notes, ", "))
}

// ranLikeThis tells whether the server runs already in a way that is refused, because it was made before there was
// anybody to refuse it: then it goes on. One that is stopped, for a migration, counts as running.
func (p *planner) ranLikeThis() bool {
	d := p.seen.Deployment
	if d == nil {
		return false
	}
	stopped := ptr.Deref(d.Spec.Replicas, 1) == 0
	if ptr.Deref(p.spec.Replicas, 1) > 1 {
		return stopped || ptr.Deref(d.Spec.Replicas, 1) > 1
	}
	return (stopped || d.Status.AvailableReplicas > 0) && p.seen.Template != nil &&
		!slices.ContainsFunc(p.seen.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
}

// risk says which rule the server breaks that runs nevertheless, empty if it breaks none.
func (p *planner) risk() string {
	errs := examineStorage(p.spec, p.address)
	if len(errs) == 0 {
		return ""
	}
	return fmt.Sprintf("The server runs as it did before, although this would be refused today: %s.", told(errs[0]))
}

// unwanted is the claim that is left of a spec.storage that was removed, where the data may go. It may be marked as one that
// is retained, from before the annotation was set.
func (p *planner) unwanted() []engine.Child {
	claim := p.seen.Claim
	if claim == nil || p.keepsData() {
		return nil
	}
	if of := claim.Labels[engine.LabelOwner]; (of == "" || of != string(p.mlflow.UID)) && !metav1.IsControlledBy(claim, p.mlflow) {
		return nil // somebody else's
	}
	gone := foreign(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	gone.SetNamespace(claim.Namespace)
	gone.SetName(claim.Name)
	gone.SetUID(claim.UID)
	return []engine.Child{{Object: gone, Delete: true}}
}

// rescued is the claim that another operator made, where the plan does not name it otherwise: because the server is held
// back, or because spec.storage was removed. It would go with the MLflow, and the data with it. Nothing of it is changed
// but whom it belongs to.
func (p *planner) rescued() []engine.Child {
	if p.seen.Claim == nil || !p.keepsData() || !metav1.IsControlledBy(p.seen.Claim, p.mlflow) {
		return nil
	}
	claim := foreign(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	claim.SetNamespace(p.seen.Claim.Namespace)
	claim.SetName(p.seen.Claim.Name)
	claim.SetLabels(ownLabels())
	return []engine.Child{{Object: claim, Stage: stageServer, Retain: true}}
}

// keepsData is true unless the user wants the data to go with the object.
func (p *planner) keepsData() bool { return p.mlflow.Annotations[DeleteDataAnnotation] != "true" }
