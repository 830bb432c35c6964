// SPDX-License-Identifier: Apache-2.0

package modelregistry

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
)

// defaultSize is that of a claim whose registry does not say it.
const defaultSize = "5Gi"

// claimName is the name of the claim of a database that a registry has for itself.
func claimName(m *v1beta1.ModelRegistry) string {
	if d := databaseOf(m); d != nil && d.kind == sqlite {
		return m.Name + "-data"
	}
	return m.Name + "-postgres-storage"
}

// keepsData is true unless the user wants the data to go with the registry.
func (p *planner) keepsData() bool { return p.registry.Annotations[AnnotationDeleteData] != "true" }

// data is what a registry knows its past by: the claim of its own database, and the password of it. They outlive the
// registry, and one of the same name finds them again. They are kept also when a registry is given another database.
func (p *planner) data() []engine.Child {
	var out []engine.Child
	switch {
	case p.database == nil:
	case p.database.generated:
		out = append(out, engine.Child{Object: p.credentials(), Stage: stageNeeds, CreateOnly: true, Retain: p.keepsData()})
		out = append(out, p.claimChild(p.databaseMeta(claimName(p.registry))))
	case p.database.kind == sqlite:
		out = append(out, p.claimChild(p.meta(claimName(p.registry))))
	}
	return out
}

func (p *planner) claimChild(meta metav1.ObjectMeta) engine.Child {
	spec, _ := p.claim()
	// One that was restored from a backup has no owner.
	return engine.Child{Stage: stageServer, Retain: p.keepsData(), Adopt: true, Object: &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: meta, Spec: spec,
	}}
}

// credentials are made once, and then belong to whoever changes them. They are complete also where there are some already:
// these may be deleted before the plan is carried out.
func (p *planner) credentials() *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: p.databaseMeta(p.name() + credentialsSuffix),
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{keyUsername: []byte(p.seen.Credentials.User), keyPassword: []byte(p.seen.Credentials.New)},
	}
}

// claim is what is asked for, but for what Kubernetes does not let anybody change once the claim exists. The notes say what
// could not be honoured.
func (p *planner) claim() (corev1.PersistentVolumeClaimSpec, []string) {
	size, err := resource.ParseQuantity(cmp.Or(p.registry.Annotations[AnnotationStorageSize], defaultSize))
	if err != nil { // refused at admission
		size = resource.MustParse(defaultSize)
	}
	claim := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
	}
	class := p.registry.Annotations[AnnotationStorageClass]
	if class != "" {
		claim.StorageClassName = &class
	}
	if p.seen.Claim == nil {
		return claim, nil
	}
	var notes []string
	live := p.seen.Claim.Spec.DeepCopy()
	if class != "" && class != ptr.Deref(live.StorageClassName, "") {
		notes = append(notes, AnnotationStorageClass)
	}
	have := live.Resources.Requests[corev1.ResourceStorage]
	shrinks := size.Cmp(have) < 0
	if shrinks && p.registry.Annotations[AnnotationStorageSize] != "" {
		notes = append(notes, AnnotationStorageSize)
	}
	if shrinks || p.seen.Claim.Status.Phase != corev1.ClaimBound { // which alone may grow
		claim.Resources.Requests[corev1.ResourceStorage] = have
	}
	claim.AccessModes, claim.StorageClassName = live.AccessModes, live.StorageClassName
	return claim, notes
}

// claimNote says what could not be honoured, empty if everything was.
func (p *planner) claimNote() string {
	if p.database == nil || !p.database.generated && p.database.kind != sqlite {
		return ""
	}
	_, notes := p.claim()
	if len(notes) == 0 {
		return ""
	}
	return fmt.Sprintf("The PersistentVolumeClaim %s/%s exists already, and Kubernetes lets it neither shrink nor change its class, as %s asks. "+
		"The claim stays as it is; set the annotation to what it has, or move the data to a new claim.",
		p.registry.Namespace, claimName(p.registry), strings.Join(notes, " and "))
}
