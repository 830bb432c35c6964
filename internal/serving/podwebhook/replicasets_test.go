// SPDX-License-Identifier: Apache-2.0

package podwebhook

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
)

// setOf is a ReplicaSet that makes a pod.
func setOf(pod *corev1.Pod, namespace string) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: owned()[0].Name, UID: owned()[0].UID}}
	set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Spec: *pod.Spec.DeepCopy()}
	return set
}

// TestKnownReplicaSets: without a server and without waiting, except for what may still come.
func TestKnownReplicaSets(t *testing.T) {
	pod, owner, cfg := podOf("s3://mine/iris"), owned()[0], config.Default()
	const here = "models"
	for name, c := range map[string]struct {
		followed []string
		unsynced bool
		do       func(*setsOf)
		namespace,
		account string
		want bool
	}{
		"listed":           {want: true},
		"came later":       {do: func(s *setsOf) { must(t, s.Replace(nil, "2")); must(t, s.Update(setOf(pod, here))) }, want: true},
		"of one namespace": {followed: []string{here, "other"}, want: true},
		"too large": {do: func(s *setsOf) {
			set := setOf(pod, here)
			set.Spec.Template.Annotations = map[string]string{"large": string(make([]byte, mostKept))}
			must(t, s.Update(set))
		}},
		"changed since": {do: func(s *setsOf) {
			set := setOf(pod, here)
			set.Spec.Template.Annotations[v1beta1.AnnotationStorageSpec] = "true"
			must(t, s.Update(set))
		}},
		"of another namespace":     {namespace: "other"},
		"of one that nobody knows": {followed: []string{"other"}, namespace: here},
		"of another account":       {account: "other"},
		"listed by nobody yet":     {unsynced: true, do: func(s *setsOf) { must(t, s.Delete(setOf(pod, here))) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := followReplicaSets(nil, c.followed)
			for namespace, sets := range r.of {
				switch {
				case c.unsynced:
					must(t, sets.Add(setOf(pod, here)))
				case namespace != "other":
					must(t, sets.Replace([]any{trimmed(t, sets, setOf(pod, here))}, "1"))
				default:
					must(t, sets.Replace(nil, "1"))
				}
				if c.do != nil {
					c.do(sets)
				}
			}
			asked, namespace := pod.DeepCopy(), c.namespace
			if namespace == "" {
				namespace = here
			}
			asked.Spec.ServiceAccountName = c.account
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if got := r.made(ctx, asked, namespace, owner, cfg); got != c.want {
				t.Errorf("known: %t, want %t", got, c.want)
			}
		})
	}
}

func trimmed(t *testing.T, s *setsOf, set *appsv1.ReplicaSet) any {
	t.Helper()
	out, err := s.Transformer()(set)
	must(t, err)
	return out
}

// TestPodsWaitForTheirReplicaSet: it may be seen after the pod, and what makes no pods is not kept.
func TestPodsWaitForTheirReplicaSet(t *testing.T) {
	pod, owner := podOf("s3://mine/iris"), owned()[0]
	r := followReplicaSets(nil, nil)
	sets := r.of[metav1.NamespaceAll]
	idle := setOf(pod, "models")
	idle.Spec.Replicas = new(int32)
	must(t, sets.Replace([]any{idle}, "1"))
	if len(sets.by) != 0 {
		t.Errorf("one without replicas is kept: %v", sets.by)
	}
	known := make(chan bool)
	go func() { known <- r.made(t.Context(), pod, "models", owner, config.Default()) }()
	for _, name := range []string{"another", owner.Name} {
		set := setOf(pod, "models")
		if name != owner.Name {
			set.Name, set.UID = name, "1"
		}
		must(t, sets.Add(set))
	}
	if !<-known {
		t.Error("the pod did not wait")
	}
	must(t, sets.Delete(setOf(pod, "models")))
	ended, end := context.WithCancel(t.Context())
	end()
	if r.made(ended, pod, "models", owner, config.Default()) {
		t.Error("one that has gone is still known")
	}
}
