// SPDX-License-Identifier: Apache-2.0

package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// Deployment runs a component. Its pod template carries the Deployment's own name and namespace, which means nothing
// to Kubernetes but is what existing Deployments have.
func Deployment(p Part, cfg *config.Config) *appsv1.Deployment {
	d := deployment(p.meta(), p.app(), p.Pod)
	d.Spec.Replicas = p.replicas()
	setStrategy(&d.Spec, p.Scale.DeploymentStrategy, cfg)
	return d
}

// WorkerDeployment runs the other nodes of a multi-node predictor; nil if there are none. A rolling update brings up
// a whole new group before it takes the old one down, because half a group serves nobody.
func WorkerDeployment(p Part, cfg *config.Config) *appsv1.Deployment {
	if p.Worker == nil {
		return nil
	}
	d := deployment(p.workerMeta(), p.workerApp(), p.Worker.Pod)
	d.Spec.Replicas = ptr.To(p.Worker.Replicas)
	setStrategy(&d.Spec, p.Scale.DeploymentStrategy, cfg)
	if d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
			MaxUnavailable: ptr.To(intstr.FromString("0%")),
			MaxSurge:       ptr.To(intstr.FromString("100%")),
		}
	}
	return d
}

func deployment(meta metav1.ObjectMeta, app string, pod corev1.PodSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{v1beta1.LabelApp: app}},
			Template: corev1.PodTemplateSpec{ObjectMeta: *meta.DeepCopy(), Spec: completePod(pod)},
		},
	}
}

// replicas is what the Deployment asks for. What an autoscaler owns afterwards starts at its lower bound, so that a
// service does not begin with one pod and wait for the autoscaler to find out.
func (p Part) replicas() *int32 {
	switch {
	case p.Replicas != nil:
		return p.Replicas
	case p.autoscaled():
		return ptr.To(p.leastReplicas())
	case Class(p.Annotations) == ClassNone && p.Scale.MinReplicas != nil:
		return ptr.To(*p.Scale.MinReplicas)
	}
	return nil
}

// autoscaled tells whether an autoscaler of ours looks after the number of pods. A multi-node group has the size that
// its model needs.
func (p Part) autoscaled() bool {
	if p.Replicas != nil || p.Worker != nil {
		return false
	}
	class := Class(p.Annotations)
	return p.Activation != nil || class == ClassHPA || class == ClassKEDA
}

// held tells that an HPA keeps the number of pods where it is.
func (p Part) held() bool {
	return p.Replicas != nil && *p.Replicas > 0 && p.Worker == nil && Class(p.Annotations) == ClassHPA
}

// InitialReplicas tells that the number of pods in the Deployment is only where it starts: an autoscaler owns it from
// then on, and it must be written at creation only.
func InitialReplicas(p Part) bool { return p.autoscaled() }

// setStrategy takes the user's strategy as it is. The configured one holds only where Standard is how the platform
// runs its services.
func setStrategy(spec *appsv1.DeploymentSpec, wanted *appsv1.DeploymentStrategy, cfg *config.Config) {
	if wanted != nil {
		spec.Strategy = *wanted.DeepCopy()
		completeStrategy(&spec.Strategy)
		return
	}
	if cfg.Deploy.DefaultDeploymentMode == config.ModeStandard {
		rollout := cfg.Deploy.DeploymentRolloutStrategy.DefaultRollout
		spec.Strategy.RollingUpdate = (&appsv1.RollingUpdateDeployment{
			MaxSurge: rollout.MaxSurge, MaxUnavailable: rollout.MaxUnavailable,
		}).DeepCopy()
	}
	completeStrategy(&spec.Strategy)
	spec.RevisionHistoryLimit = ptr.To[int32](10)
	spec.ProgressDeadlineSeconds = ptr.To[int32](600)
}

// completeStrategy says what the API server would fill in for a rolling update: only what is said is taken back when
// the strategy becomes another one, and the API server refuses what is left over.
func completeStrategy(s *appsv1.DeploymentStrategy) {
	if s.Type == "" {
		s.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return
	}
	if s.RollingUpdate == nil {
		s.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	if s.RollingUpdate.MaxUnavailable == nil {
		s.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("25%"))
	}
	if s.RollingUpdate.MaxSurge == nil {
		s.RollingUpdate.MaxSurge = ptr.To(intstr.FromString("25%"))
	}
}
