// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func ownedChild(uid string) *appsv1.Deployment {
	now := metav1.NewTime(time.Unix(1, 0))
	entry := func(manager, sub, raw string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Subresource: sub,
			Time: &now, APIVersion: "apps/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(raw)}
	}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{LabelOwner: uid}, Annotations: map[string]string{lastAppliedByUser: "{}", "kept": "yes"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			entry("modelplane-x", "", `{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"`+uid+`\"}":{}}},"f:spec":{"f:paused":{}}}`),
			entry("kubectl", "", `{"f:spec":{}}`), entry("kubelet", "status", `{"f:status":{}}`),
		},
	}}
}

func TestTrimChild(t *testing.T) {
	s := newShapes()
	const one, two = "11111111-2222-3333-4444-555555555555", "66666666-2222-3333-4444-555555555555"
	a, b := ownedChild(one), ownedChild(two)
	for _, d := range []*appsv1.Deployment{a, b} {
		if _, err := s.trimChild(d); err != nil {
			t.Fatal(err)
		}
		if len(d.ManagedFields) != 2 || d.ManagedFields[1].FieldsV1 != nil || d.ManagedFields[1].Manager != "kubectl" {
			t.Errorf("kept %+v", d.ManagedFields)
		}
		if len(d.Annotations) != 1 {
			t.Errorf("kept %v", d.Annotations)
		}
	}
	if a.ManagedFields[0].FieldsV1 != b.ManagedFields[0].FieldsV1 {
		t.Error("children of the same shape do not share it")
	}
	intent := func(uid string) map[string]any {
		return map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{"uid": uid}}}, "spec": map[string]any{"paused": true}}
	}
	fields := ownedFields(a.ManagedFields, "modelplane-x")
	if !covers(withHolder(fields, one), intent(one)) || covers(withHolder(fields, one), intent(two)) {
		t.Error("the owner is not told apart")
	}
	for i := range 2 * mostShapes {
		s.share(metav1.NewFieldsV1(fmt.Sprintf(`{"f:%d":{}}`, i)), one)
	}
	if len(s.by) > mostShapes {
		t.Errorf("%d shapes are kept", len(s.by))
	}
}

func TestAlike(t *testing.T) {
	state := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := ownedChild("uid")
		d.ResourceVersion = "1"
		if change != nil {
			change(d)
		}
		return d
	}
	for _, tc := range []struct {
		name   string
		change func(*appsv1.Deployment)
		want   bool
	}{
		{"only the version", func(d *appsv1.Deployment) { d.ResourceVersion = "2" }, true},
		{"a later time", func(d *appsv1.Deployment) { d.ManagedFields[1].Time = nil }, true},
		{"label", func(d *appsv1.Deployment) { d.Labels["a"] = "b" }, false},
		{"annotation", func(d *appsv1.Deployment) { d.Annotations["a"] = "b" }, false},
		{"generation", func(d *appsv1.Deployment) { d.Generation++ }, false},
		{"owner", func(d *appsv1.Deployment) { d.OwnerReferences = []metav1.OwnerReference{{UID: "x"}} }, false},
		{"finalizer", func(d *appsv1.Deployment) { d.Finalizers = []string{"x"} }, false},
		{"deletion", func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{} }, false},
		{"our fields", func(d *appsv1.Deployment) { d.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1("{}") }, false},
		{"another manager", func(d *appsv1.Deployment) { d.ManagedFields[1].Manager = "manager" }, false},
		{"status", func(d *appsv1.Deployment) { d.Status.Replicas = 1 }, false},
	} {
		before, after := state(nil), state(tc.change)
		if got := alike(before, after); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
		heads := [2]client.Object{&metav1.PartialObjectMetadata{ObjectMeta: before.ObjectMeta}, &metav1.PartialObjectMetadata{ObjectMeta: after.ObjectMeta}}
		if got := alike(heads[0], heads[1]); got != (tc.want || tc.name == "status") {
			t.Errorf("%s, metadata only: %v", tc.name, got)
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "status": int64(1)}}
	v := u.DeepCopy()
	v.SetResourceVersion("2")
	if !alike(u, v) {
		t.Error("unstructured: the version alone counts")
	}
	v.Object["status"] = int64(2)
	if alike(u, v) || u.GetResourceVersion() != "1" {
		t.Error("unstructured: the status does not count")
	}
}

// BenchmarkChildInMemory tells what a Deployment with a pod template of a model
// server takes in the cache: as it comes, as children are kept, with a domain's
// Trim, and as metadata only.
func BenchmarkChildInMemory(b *testing.B) {
	raw, err := servedDeployment().Marshal()
	if err != nil {
		b.Fatal(err)
	}
	shapes := newShapes()
	for _, tc := range []struct {
		name string
		keep func(*appsv1.Deployment) client.Object
	}{
		{"whole", func(d *appsv1.Deployment) client.Object { return d }},
		{"child", func(d *appsv1.Deployment) client.Object { _, _ = shapes.trimChild(d); return d }},
		{"trimmed", func(d *appsv1.Deployment) client.Object {
			_, _ = shapes.trimChild(d)
			d.Spec = appsv1.DeploymentSpec{Replicas: d.Spec.Replicas}
			return d
		}},
		{"metadata", func(d *appsv1.Deployment) client.Object {
			head := &metav1.PartialObjectMetadata{ObjectMeta: d.ObjectMeta}
			_, _ = shapes.trimChild(head)
			return head
		}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			const many = 2000
			for range b.N {
				before := heap()
				kept := make([]client.Object, many)
				for i := range kept {
					d := &appsv1.Deployment{}
					if err := d.Unmarshal(raw); err != nil {
						b.Fatal(err)
					}
					kept[i] = tc.keep(d)
				}
				b.ReportMetric(float64(heap()-before)/many, "B/child")
				runtime.KeepAlive(kept)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func servedDeployment() *appsv1.Deployment {
	const fields = `{"f:metadata":{"f:annotations":{"f:internal.serving.kserve.io/storage-initializer-sourceuri":{},"f:serving.kserve.io/deploymentMode":{}},` +
		`"f:labels":{"f:app":{},"f:component":{},"f:modelplane.dev/intent":{},"f:modelplane.dev/owner-uid":{},"f:serving.kserve.io/inferenceservice":{}},` +
		`"f:ownerReferences":{"k:{\"uid\":\"0b5b9fd2-7c7f-4e7b-9a0e-0f6f5a1c2d3e\"}":{}}}`
	pod := corev1.PodSpec{}
	more := `"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:spec":{"f:containers":{`
	for c := range 2 {
		container := corev1.Container{Name: fmt.Sprintf("container-%d", c), Image: "example.com/server:v1.2.3", Args: []string{"--model_name=iris", "--http_port=8080"},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File", ImagePullPolicy: "IfNotPresent",
			LivenessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/live", Scheme: "HTTP"}}}}
		if c > 0 {
			more += ","
		}
		more += fmt.Sprintf(`"k:{\"name\":\"container-%d\"}":{".":{},"f:args":{},"f:image":{},"f:name":{},"f:livenessProbe":{"f:httpGet":{"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{}},"f:env":{`, c)
		for e := range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("OPTION_%d", e), Value: fmt.Sprintf("some-value-%d", e)})
			if e > 0 {
				more += ","
			}
			more += fmt.Sprintf(`"k:{\"name\":\"OPTION_%d\"}":{".":{},"f:name":{},"f:value":{}}`, e)
		}
		more += "}}"
		pod.Containers = append(pod.Containers, container)
	}
	d := ownedChild("0b5b9fd2-7c7f-4e7b-9a0e-0f6f5a1c2d3e")
	d.Namespace, d.Name, d.UID = "team", "iris-predictor", "aaaaaaaa-7c7f-4e7b-9a0e-0f6f5a1c2d3e"
	d.Labels["app"], d.Labels["component"], d.Labels["serving.kserve.io/inferenceservice"] = "isvc.iris-predictor", "predictor", "iris"
	d.Annotations = map[string]string{"serving.kserve.io/deploymentMode": "Standard", "internal.serving.kserve.io/storage-initializer-sourceuri": "s3://models/iris"}
	d.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(fields + "," + more + "}}}}}")
	d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "serving.kserve.io/v1beta1", Kind: "InferenceService", Name: "iris", UID: "0b5b9fd2-7c7f-4e7b-9a0e-0f6f5a1c2d3e"}}
	d.Spec.Template.Labels, d.Spec.Template.Spec = d.Labels, pod
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Available", Status: "True", Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability."}}
	return d
}

// TestForeignAnnotationsAreNotKept: of what is kept as metadata only, labels and owners stay, and what others wrote into
// annotations goes; an input that is kept whole has them.
func TestForeignAnnotationsAreNotKept(t *testing.T) {
	about := metav1.ObjectMeta{
		Name: "n", Labels: map[string]string{"l": "v"}, OwnerReferences: []metav1.OwnerReference{{UID: "u"}},
		Annotations: map[string]string{"example.com/note": "large"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}
	transform := CacheOptions(Scope{}).DefaultTransform
	head := &metav1.PartialObjectMetadata{ObjectMeta: *about.DeepCopy()}
	whole := &appsv1.Deployment{ObjectMeta: *about.DeepCopy()}
	for _, o := range []client.Object{head, whole} {
		if _, err := transform(o); err != nil {
			t.Fatal(err)
		}
	}
	if len(head.Annotations)+len(head.ManagedFields) > 0 || head.Labels["l"] != "v" || len(head.OwnerReferences) != 1 {
		t.Errorf("of metadata this is kept: %+v", head.ObjectMeta)
	}
	if whole.Annotations["example.com/note"] != "large" {
		t.Errorf("of an object this is kept: %+v", whole.ObjectMeta)
	}
}
