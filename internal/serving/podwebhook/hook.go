// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
)

// Credentials are read one by one when a pod needs them: a cache would hold every
// Secret of the cluster. The owner that proves where the pod comes from is mostly a
// ReplicaSet that is followed; otherwise it is read as well.
// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get
// +kubebuilder:rbac:groups="",resources=serviceaccounts;secrets,verbs=get
// +kubebuilder:rbac:groups=serving.kserve.io,resources=clusterstoragecontainers,verbs=list;watch
// +kubebuilder:rbac:groups=serving.kserve.io,resources=inferenceservices,verbs=get

// Path and name under which the webhook is known.
const (
	Path = "/mutate-pods"
	Name = "inferenceservice.kserve-webhook-server.pod-mutator"
)

// Connect gives a mutator its sources: live reads single objects from the API
// server, and cached lists what is few and asked for often. It is called before
// the first pod comes.
func (m *Mutator) Connect(source config.Source, namespace string, live, cached client.Reader) {
	m.Config, m.ConfigNamespace, m.Reader = source, namespace, admission.FromClient(live)
	m.Containers = func(ctx context.Context) ([]v1alpha1.ClusterStorageContainer, error) {
		var list v1alpha1.ClusterStorageContainerList
		err := cached.List(ctx, &list)
		if meta.IsNoMatchError(err) {
			return nil, nil // a cluster without the definition has none
		}
		return list.Items, err
	}
	m.Template = templates(live)
	m.Service = func(ctx context.Context, namespace, name string) (*v1beta1.InferenceService, error) {
		isvc := &v1beta1.InferenceService{}
		return isvc, live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, isvc)
	}
}

// Follow lets the mutator know the ReplicaSets of some namespaces, or of all, as long as the manager runs.
func (m *Mutator) Follow(mgr manager.Manager, namespaces []string) error {
	api, err := client.NewWithWatch(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make a client for ReplicaSets: %w", err)
	}
	m.sets = followReplicaSets(api, namespaces)
	return mgr.Add(m.sets)
}

// Hook asks the mutator for every new pod of an InferenceService, and again when
// another webhook changed the pod after it. Namespaces can opt out with the label
// control-plane.
func Hook(m *Mutator) admission.Hook {
	exists := func(key string, op metav1.LabelSelectorOperator) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op}}}
	}
	return admission.Hook{
		Path: Path,
		Webhook: admissionregistrationv1.MutatingWebhook{
			Name: Name,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{corev1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
					Scope: new(admissionregistrationv1.NamespacedScope),
				},
			}},
			ObjectSelector:     exists(v1beta1.LabelInferenceService, metav1.LabelSelectorOpExists),
			NamespaceSelector:  exists("control-plane", metav1.LabelSelectorOpDoesNotExist),
			ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy),
		},
		New: func() client.Object { return &corev1.Pod{} },
		Mutate: func(ctx context.Context, obj client.Object) error {
			return m.Mutate(ctx, obj.(*corev1.Pod), obj.GetNamespace())
		},
	}
}
