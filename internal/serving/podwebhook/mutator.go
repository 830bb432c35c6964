// SPDX-License-Identifier: Apache-2.0

// Package podwebhook completes the pods of InferenceServices when they are created:
// it brings their model, the agent that logs, batches and pulls beside a model
// server, and what collectors of metrics look for. What it adds follows from the
// pod, the configuration and the credentials in the pod's namespace.
//
// It never changes a stored object, and a pod that is complete stays as it is,
// because the API server asks again after other webhooks.
package podwebhook

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/storage"
)

// Mutator completes pods.
type Mutator struct {
	// Config gives the configuration; what is broken in the ConfigMap does not
	// get this far.
	Config config.Source
	// ConfigNamespace is the one that the configuration is in.
	ConfigNamespace string
	// Reader reads ServiceAccounts and Secrets.
	Reader storage.Getter
	// Containers lists the ClusterStorageContainers.
	Containers func(ctx context.Context) ([]v1alpha1.ClusterStorageContainer, error)
	// Template reads what a pod was made from: the template of its owner, which has the UID of the reference.
	Template func(ctx context.Context, namespace string, owner metav1.OwnerReference) (*corev1.PodTemplateSpec, error)
	// Service reads the InferenceService of a pod.
	Service func(ctx context.Context, namespace, name string) (*v1beta1.InferenceService, error)
	// sets know most of what Template would read. Nil: nothing.
	sets *replicaSets
}

// Mutate completes a pod of an InferenceService and leaves others alone. An
// error refuses the pod; it says what a person must do, or wraps what the API
// server answered.
func (m *Mutator) Mutate(ctx context.Context, pod *corev1.Pod, namespace string) error {
	if _, ok := pod.Labels[v1beta1.LabelInferenceService]; !ok {
		return nil
	}
	cfg := m.Config.Current()
	source, err := storage.FromPod(pod.Labels, pod.Annotations)
	if err != nil {
		return err
	}
	if storage.NeedsSecrets(source, pod.Annotations, cfg) || wantsAgent(pod) {
		if err := m.fromTemplate(ctx, pod, namespace, cfg); err != nil {
			return err
		}
	}
	selectAccelerator(pod)
	// Images come last: the agent looks at the server as its owner described it.
	if !source.FromImage() {
		if err := m.bringModel(ctx, pod, namespace, source, cfg); err != nil {
			return err
		}
	}
	if err := m.addAgent(ctx, pod, namespace, cfg); err != nil {
		return err
	}
	aggregateMetrics(pod, cfg.MetricsAggregator)
	if source.FromImage() {
		if err := m.bringModel(ctx, pod, namespace, source, cfg); err != nil {
			return err
		}
	}
	keepLastWords(pod)
	return passSidecar(pod)
}

// keepLastWords makes the kubelet keep the end of a container's log where it
// failed without leaving a message, so that the service can say why. Pods get it
// here and not in their template, so that nothing that runs is restarted for it.
func keepLastWords(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.TerminationMessagePolicy == "" || c.TerminationMessagePolicy == corev1.TerminationMessageReadFile {
			c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}
	}
}

// bringModel adds what brings the model of the pod, if it has one of that kind.
func (m *Mutator) bringModel(ctx context.Context, pod *corev1.Pod, namespace string, source storage.Source, cfg *config.Config) error {
	if source.URI == "" {
		return nil
	}
	containers, err := m.Containers(ctx)
	if err != nil {
		return fmt.Errorf("list ClusterStorageContainers: %w", err)
	}
	secrets, err := storage.Gather(ctx, m.Reader, namespace, pod.Spec.ServiceAccountName, pod.Annotations, source, cfg)
	if err != nil {
		return err
	}
	if ignored := storage.Ignored(secrets, pod.Annotations, cfg); len(ignored) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[kube.AnnotationIgnoredSecrets] = strings.Join(ignored, ",")
	}
	return storage.Inject(&pod.Spec, storage.Injection{
		Source:          source,
		Namespace:       namespace,
		ConfigNamespace: m.ConfigNamespace,
		Annotations:     pod.Annotations,
		Containers:      containers,
		Secrets:         secrets,
		Config:          cfg,
	})
}

// service finds the InferenceService of a pod. A pod can do without: it may be
// gone already, and the platform's settings hold then.
func (m *Mutator) service(ctx context.Context, pod *corev1.Pod, namespace string) *v1beta1.InferenceService {
	name := pod.Labels[v1beta1.LabelInferenceService]
	isvc, err := m.Service(ctx, namespace, name)
	if err != nil {
		log.FromContext(ctx).Info("The InferenceService of a pod cannot be read; the platform's settings are used", "namespace", namespace,
			"name", name, "error", err.Error())
		return nil
	}
	return isvc
}

func container(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

func setEnv(c *corev1.Container, v corev1.EnvVar) {
	for i := range c.Env {
		if c.Env[i].Name == v.Name {
			c.Env[i] = v
			return
		}
	}
	c.Env = append(c.Env, v)
}
