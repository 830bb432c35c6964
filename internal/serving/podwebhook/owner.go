// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// errUnowned is the same for every pod that nobody can have sent who may see the namespace, so that it tells nothing of it.
var errUnowned = fmt.Errorf("the pod has label %s, but is none that a ReplicaSet or StatefulSet of its namespace makes from its template; "+
	"what an InferenceService needs is given to these only: let the Deployment of the service make the pod, or remove the label",
	v1beta1.LabelInferenceService)

// fromTemplate refuses a pod that was not made from the template of its owner, before anything in its namespace is read.
// Whoever reaches the webhook may claim to create a pod anywhere, and what is added to it shows which Secrets there are and
// what they hold. The UID of an owner is known to those only who may look into the namespace, and they see the same in the
// pods that it has made. Most pods come from a ReplicaSet that is known; of the others the owner is read.
func (m *Mutator) fromTemplate(ctx context.Context, pod *corev1.Pod, namespace string, cfg *config.Config) error {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.UID == "" {
		return errUnowned
	}
	if m.sets.made(ctx, pod, namespace, *owner, cfg) {
		return nil
	}
	template, err := m.Template(ctx, namespace, *owner)
	switch {
	case apierrors.IsNotFound(err), errors.Is(err, errUnowned):
		return errUnowned
	case err != nil:
		return fmt.Errorf("read the owner of the pod: %w", err)
	case !compared(&pod.ObjectMeta, &pod.Spec).same(compared(&template.ObjectMeta, &template.Spec), cfg):
		return errUnowned
	}
	return nil
}

// origin is what decides which Secrets are read. Other webhooks may have changed the rest of a pod.
type origin struct {
	account, service string
	annotations      map[string]string
}

// compared is the part of a pod, or of a template, that is compared.
func compared(meta *metav1.ObjectMeta, spec *corev1.PodSpec) origin {
	return origin{account: cmp.Or(spec.ServiceAccountName, "default"), service: meta.Labels[v1beta1.LabelInferenceService], annotations: meta.Annotations}
}

func (o origin) same(other origin, cfg *config.Config) bool {
	if o.account != other.account || o.service != other.service {
		return false
	}
	for _, key := range []string{
		v1beta1.AnnotationStorageSpec, v1beta1.AnnotationStorageSpecKey, v1beta1.AnnotationStorageSpecParam,
		cfg.Credentials.StorageSecretNameAnnotation,
	} {
		if o.annotations[key] != other.annotations[key] {
			return false
		}
	}
	return true
}

// size is how much the annotations take.
func (o origin) size() int {
	n := 0
	for key, value := range o.annotations {
		n += len(key) + len(value)
	}
	return n
}

// templates reads the template of a pod's owner.
func templates(live client.Reader) func(context.Context, string, metav1.OwnerReference) (*corev1.PodTemplateSpec, error) {
	return func(ctx context.Context, namespace string, owner metav1.OwnerReference) (*corev1.PodTemplateSpec, error) {
		key := client.ObjectKey{Namespace: namespace, Name: owner.Name}
		var object client.Object
		var template *corev1.PodTemplateSpec
		switch owner.Kind {
		case "ReplicaSet":
			set := &appsv1.ReplicaSet{}
			object, template = set, &set.Spec.Template
		case "StatefulSet":
			set := &appsv1.StatefulSet{}
			object, template = set, &set.Spec.Template
		default:
			return nil, errUnowned
		}
		if err := live.Get(ctx, key, object); err != nil {
			return nil, err
		}
		if object.GetUID() != owner.UID {
			return nil, errUnowned
		}
		return template, nil
	}
}
