// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
)

const (
	// stoppedAnnotation marks a server that ran before it was stopped, so that it
	// can be started again as it was.
	stoppedAnnotation = "mlflow.opendatahub.io/stopped-for-migration"
	// specAnnotation tells a Deployment that is as planned from an earlier one.
	specAnnotation = "mlflow.opendatahub.io/planned-spec"
)

// shape is the server in one of its states, and whether it takes requests in it.
type shape struct {
	child   engine.Child
	serving bool
}

func (m *machine) planned() engine.Child {
	d := m.server.DeepCopy()
	annotate(d, specAnnotation, digestOf(m.server))
	return engine.Child{Object: d}
}

// untouched leaves a server that is there as it is.
func (m *machine) untouched() shape {
	if m.o.Deployment == nil {
		return m.stopped()
	}
	return shape{child: engine.Child{Object: m.server.DeepCopy(), Unmanaged: true}, serving: m.replicas() > 0}
}

// stopped is the server without pods. One that ran before keeps its pod
// template, so that it can come back should the migration fail.
func (m *machine) stopped() shape {
	d := m.server.DeepCopy()
	d.Spec.Replicas = ptr.To[int32](0)
	if m.ran() {
		d.Spec.Template = *m.o.Template.DeepCopy()
		annotate(d, stoppedAnnotation, "true")
	}
	return shape{child: engine.Child{Object: d}}
}

// afterwards is the server after a failure: back as it was if the database is.
func (m *machine) afterwards(r result) shape {
	switch {
	case !r.unchanged || !m.ran():
		return m.stopped()
	case m.replicas() > 0:
		return m.untouched()
	}
	d := m.server.DeepCopy()
	d.Spec.Template = *m.o.Template.DeepCopy()
	return shape{child: engine.Child{Object: d}, serving: true}
}

// ran tells whether there is a server that had the database before.
func (m *machine) ran() bool {
	d := m.o.Deployment
	return d != nil && m.o.Template != nil && (m.replicas() > 0 || d.Annotations[stoppedAnnotation] != "")
}

func (m *machine) replicas() int32 { return ptr.Deref(m.o.Deployment.Spec.Replicas, 1) }

// ready tells whether the server that is planned has taken over.
func (m *machine) ready() bool {
	d, want := m.o.Deployment, ptr.Deref(m.server.Spec.Replicas, 1)
	return d != nil && d.Annotations[specAnnotation] == digestOf(m.server) && d.Status.ObservedGeneration >= d.Generation &&
		m.replicas() == want && d.Status.Replicas == want && d.Status.UpdatedReplicas == want && d.Status.AvailableReplicas == want
}

func digestOf(d *appsv1.Deployment) string {
	raw, err := json.Marshal(d.Spec)
	if err != nil {
		return "" // never: it is plain data
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:12])
}

func annotate(d *appsv1.Deployment, name, value string) {
	annotations := map[string]string{}
	maps.Copy(annotations, d.Annotations)
	annotations[name] = value
	d.Annotations = annotations
}

// keep names all Jobs, so that they stay; but a look at the database that serves
// no purpose any more is ended.
func (m *machine) keep() []engine.Child { return m.keepBut() }

func (m *machine) keepBut(without ...*attempt) []engine.Child {
	var out []engine.Child
next:
	for i := range m.o.Jobs {
		a := m.o.attempt(&m.o.Jobs[i])
		for _, w := range without {
			if w != nil && w.Name == a.Name {
				continue next
			}
		}
		if m.obsolete(a) {
			continue
		}
		out = append(out, engine.Child{Object: &batchv1.Job{
			TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
			ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name},
		}, Unmanaged: true})
	}
	return out
}

func (m *machine) obsolete(a attempt) bool {
	return a.Labels[PreflightLabel] != "" && !a.finished() && (m.preflight == nil || m.preflight.Name != a.Name)
}

// drop removes a Job by not naming it. One that another controller left must
// become ours first.
func (m *machine) drop(job *batchv1.Job) []engine.Child {
	if job.Labels[engine.LabelOwner] == string(m.o.MLflow.UID) {
		return nil
	}
	return []engine.Child{{Object: liveJob(job)}}
}

// liveJob is a Job as it is, as something to plan.
func liveJob(job *batchv1.Job) *batchv1.Job {
	out := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name, Labels: maps.Clone(job.Labels), Annotations: maps.Clone(job.Annotations)},
		Spec:       *job.Spec.DeepCopy(),
	}
	delete(out.Labels, engine.LabelOwner)
	delete(out.Labels, engine.LabelIntent)
	return out
}
