// SPDX-License-Identifier: Apache-2.0

package sample

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelplane/modelplane/internal/engine"
)

// Plan implements engine.Kind.
func (Kind) Plan(s *Sample, seen Seen) engine.Plan {
	if p := missing(s, seen); p != nil {
		return engine.Plan{KeepChildren: true, Problem: p, Status: status(s, seen, 0, p)}
	}
	children := []engine.Child{
		{Object: configMapFor(s, s.Name, seen)},
		{Object: deploymentFor(s), Stage: 1},
	}
	if !s.Spec.Headless {
		children = append(children, engine.Child{Object: serviceFor(s)})
	}
	children = append(children, extras(s)...)
	return engine.Plan{Children: children, Status: status(s, seen, len(children), nil)}
}

func missing(s *Sample, seen Seen) *engine.Problem {
	if s.Spec.From != "" && seen.From == nil {
		return engine.WaitFor("ConfigMapMissing", "ConfigMap %s does not exist in namespace %s. Create it.", s.Spec.From, s.Namespace)
	}
	if s.Spec.SecretFrom != "" && seen.Secret == nil {
		return engine.WaitFor("SecretMissing", "Secret %s does not exist in namespace %s. Create it.", s.Spec.SecretFrom, s.Namespace)
	}
	if s.Spec.Message == "forbidden" {
		return engine.MustChange("MessageRefused", "The message %q is refused. Choose another in spec.message.", s.Spec.Message)
	}
	return nil
}

func extras(s *Sample) []engine.Child {
	var out []engine.Child
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: s.Namespace, Name: name} }
	switch s.Spec.Extra {
	case "ConfigMap":
		out = append(out, engine.Child{Object: &corev1.ConfigMap{ObjectMeta: meta(s.Name + "-extra")}})
	case "Secret":
		out = append(out, engine.Child{Object: &corev1.Secret{ObjectMeta: meta(s.Name + "-extra")}})
	}
	if s.Spec.Keep {
		out = append(out, engine.Child{Object: &corev1.ConfigMap{ObjectMeta: meta(s.Name + "-kept")}, Retain: true})
	}
	if s.Spec.Far != "" {
		far := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Spec.Far, Name: s.Namespace + "-" + s.Name}}
		out = append(out, engine.Child{Object: far})
	}
	if s.Spec.Route {
		out = append(out, engine.Child{Object: routeFor(s), Stage: 2})
	}
	if s.Spec.Job != "" {
		out = append(out, engine.Child{Object: jobFor(s), Replace: true})
	}
	return out
}

func labels(s *Sample) map[string]string { return map[string]string{"app": s.Name} }

func configMapFor(s *Sample, name string, seen Seen) *corev1.ConfigMap {
	data := map[string]string{"message": s.Spec.Message}
	if seen.From != nil {
		data["from"] = *seen.From
	}
	if seen.Secret != nil {
		data["length"] = string(rune('0' + len(*seen.Secret)%10)) // never the secret itself
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: labels(s)}, Data: data,
	}
}

func serviceFor(s *Sample) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: labels(s)},
		Spec: corev1.ServiceSpec{
			Selector: labels(s),
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

func deploymentFor(s *Sample) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: labels(s)},
		Spec: appsv1.DeploymentSpec{
			Replicas: &s.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels(s)},
			Template: podFor(s),
		},
	}
}

func podFor(s *Sample) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels(s)},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "main", Image: "sample:1", Args: []string{"serve", "--port=8080"},
				Env:          []corev1.EnvVar{{Name: "PORT", Value: "8080"}},
				Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
					TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}},
			}},
			Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

func jobFor(s *Sample) *batchv1.Job {
	pod := podFor(s)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Args = []string{s.Spec.Job}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name + "-job"},
		Spec:       batchv1.JobSpec{Template: pod},
	}
}

func routeFor(s *Sample) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"parentRefs": []any{map[string]any{"name": "gateway"}},
		"rules": []any{map[string]any{"backendRefs": []any{
			map[string]any{"name": s.Name, "port": int64(80)},
		}}},
	}}}
	u.SetGroupVersionKind(RouteKind)
	u.SetNamespace(s.Namespace)
	u.SetName(s.Name)
	return u
}
