// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/modelmesh/client/meshtest"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/etcd"
)

// meshHouse is a house in which models are served by a mesh as well.
type meshHouse struct {
	*house
	mesh    *meshtest.Mesh
	counter *testkit.Counter
}

// mesh runs a manager with these domains, and a mesh for the test's namespace.
func mesh(t *testing.T, domains ...string) *meshHouse {
	t.Helper()
	h := &meshHouse{house: install(t, testkit.Start(t), domains...), counter: testkit.NewCounter()}
	kv := etcd.Start(t)
	h.mesh = meshtest.Start(t, kv.Client, "/root/mm_ns/"+h.NS+"/mm/modelmesh-serving")
	h.Create(t,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.Platform, Name: "model-serving-etcd"}, Data: kv.Secret("root")},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Platform, Name: "model-serving-config"}, Data: map[string]string{
			"config.yaml": "modelMeshEndpoint: " + h.mesh.Address(),
		}})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.NS}}
	h.Change(t, ns, func() { ns.Labels = map[string]string{"modelmesh-enabled": "true"} })
	h.run(t, h.counter.Wrap(h.Manager), h.options(t))
	h.Create(t, h.Runtime("sklearn"))
	return h
}

// service is one whose predictor is the mesh's.
func (h *meshHouse) service(name string) *v1beta1.InferenceService {
	isvc := h.Service(name, "sklearn")
	isvc.Annotations = map[string]string{v1beta1.AnnotationDeploymentMode: config.ModeModelMesh}
	return isvc
}

// quiet waits until nothing is written and the mesh is asked nothing for a while.
func (h *meshHouse) quiet(t *testing.T, when string) {
	t.Helper()
	const long = 1200 * time.Millisecond
	before, calls, since := h.counter.Snapshot(), h.mesh.Total(), time.Now()
	testkit.Eventually(t, patience, "silence "+when, func() error {
		fresh := h.counter.Since(before)
		events := fresh.Of("create", "events.k8s.io/events") + fresh.Of("patch", "events.k8s.io/events")
		if now := h.mesh.Total(); fresh.Writes() > events || now != calls {
			before, calls, since = h.counter.Snapshot(), now, time.Now()
			return fmt.Errorf("%d calls of the mesh, and the writes\n%s", now, fresh)
		}
		if time.Since(since) < long {
			return errors.New("not long enough")
		}
		return nil
	})
}

// forgets waits until the mesh has no such name.
func (h *meshHouse) forgets(t *testing.T, name string) {
	t.Helper()
	testkit.Eventually(t, patience, "the mesh to forget "+name, func() error {
		if names := h.mesh.Names(); slices.Contains(names, name) {
			return fmt.Errorf("it knows %v", names)
		}
		return nil
	})
}

// unguarded takes admission away, as where somebody has it not installed.
func (h *meshHouse) unguarded(t *testing.T) {
	t.Helper()
	for _, list := range []client.ObjectList{&admissionregistrationv1.ValidatingWebhookConfigurationList{}, &admissionregistrationv1.MutatingWebhookConfigurationList{}} {
		if err := h.C.List(t.Context(), list, client.MatchingLabels{"app.kubernetes.io/instance": h.release}); err != nil {
			t.Fatal(err)
		}
		switch l := list.(type) {
		case *admissionregistrationv1.ValidatingWebhookConfigurationList:
			for i := range l.Items {
				h.Delete(t, &l.Items[i])
			}
		case *admissionregistrationv1.MutatingWebhookConfigurationList:
			for i := range l.Items {
				h.Delete(t, &l.Items[i])
			}
		}
	}
}

func said(isvc *v1beta1.InferenceService, typ string) *v1beta1.Condition {
	i := slices.IndexFunc(isvc.Status.Conditions, func(c v1beta1.Condition) bool { return c.Type == typ })
	if i < 0 {
		return nil
	}
	return &isvc.Status.Conditions[i]
}

// TestMesh: one manager looks after what is around the predictor of a service and after its model in the mesh. Each says
// its own part, and both fall silent.
func TestMesh(t *testing.T) {
	h := mesh(t, admission.Serving, admission.ModelMesh)
	kind := v1beta1.GroupVersion.WithKind("InferenceService")
	conditions := h.WatchConditions(t, kind, h.NS, testkit.KnativeConditions(),
		testkit.AllowUnready("Stopped", "LatestDeploymentReady"), testkit.AllowFlap("Stopped", "LeftToModelMesh", "PredictorNotReady"))

	t.Run("a predictor", func(t *testing.T) {
		h.Create(t, h.service("plain"))
		ready := h.readyService(t, "plain")
		s := ready.Status
		if s.URL == nil || !strings.HasPrefix(*s.URL, "grpc://modelmesh-serving."+h.NS) || s.DeploymentMode != config.ModeModelMesh || s.ModelStatus == nil ||
			s.ModelStatus.ModelRevisionStates.ActiveModelState != v1beta1.Loaded {
			t.Errorf("%+v", s)
		}
		h.quiet(t, "when it is ready")
	})
	t.Run("a transformer beside it", func(t *testing.T) {
		isvc := h.service("both")
		isvc.Spec.Transformer = &v1beta1.TransformerSpec{}
		isvc.Spec.Transformer.Containers = []corev1.Container{{Name: "kserve-container", Image: "transform:1"}}
		h.Create(t, isvc)
		h.Status(t, "both", "PredictorReady", corev1.ConditionTrue, "")
		h.RollOut(t, "both-transformer")
		h.readyService(t, "both")
		h.quiet(t, "when both are ready")

		h.Change(t, isvc, func() { isvc.Spec.Predictor.Model.StorageURI = new("s3://models/" + meshtest.Missing) })
		h.follows(t, isvc, "both", "the new model to fail", func() error {
			if c := said(isvc, "LatestDeploymentReady"); c == nil || c.Status != corev1.ConditionFalse {
				return fmt.Errorf("%+v", isvc.Status)
			}
			return nil
		})
		if tr := said(isvc, "TransformerReady"); tr == nil || tr.Status != corev1.ConditionTrue || isvc.Status.ObservedGeneration == isvc.Generation {
			t.Errorf("a model that does not load takes the transformer along, or counts as what was asked for: %+v", isvc.Status)
		}
		h.quiet(t, "when the new model has failed")

		h.Change(t, isvc, func() {
			isvc.Spec.Predictor.Model.StorageURI = new("s3://models/other")
			isvc.Spec.Transformer = nil
		})
		h.readyService(t, "both")
		h.follows(t, isvc, "both", "the transformer to go from the status", func() error {
			if _, has := isvc.Status.Components[v1beta1.TransformerComponent]; has || said(isvc, "TransformerReady") != nil {
				return fmt.Errorf("%+v", isvc.Status)
			}
			return nil
		})
		h.Gone(t, &appsv1.Deployment{}, "both-transformer")
		h.quiet(t, "when the transformer is gone")
	})
	t.Run("stopped and started", func(t *testing.T) {
		isvc := h.service("plain")
		h.Change(t, isvc, func() { isvc.Annotations[v1beta1.AnnotationStop] = "true" })
		stopped := h.Status(t, "plain", "PredictorReady", corev1.ConditionFalse, "Stopped")
		h.forgets(t, "plain")
		if s := stopped.Status; s.URL != nil || s.ModelStatus != nil {
			t.Errorf("something is left of the model: %+v", s)
		}
		h.quiet(t, "when it is stopped")
		h.Change(t, isvc, func() { delete(isvc.Annotations, v1beta1.AnnotationStop) })
		h.readyService(t, "plain")
		h.quiet(t, "when it is started again")
	})
	t.Run("deleted and made anew in another mode, and back", func(t *testing.T) {
		isvc := h.service("plain")
		h.Delete(t, isvc)
		h.Gone(t, isvc, "plain")
		h.forgets(t, "plain")
		h.Create(t, h.Service("plain", "sklearn"))
		h.RollOut(t, "plain-predictor")
		ready := h.Status(t, "plain", "PredictorReady", corev1.ConditionTrue, "")
		if len(ready.Finalizers) > 0 || slices.Contains(h.mesh.Names(), "plain") {
			t.Errorf("the mesh has to do with a service that is none of its own: %v, %v", ready.Finalizers, h.mesh.Names())
		}
		h.Delete(t, ready)
		h.Gone(t, isvc, "plain")
		h.Create(t, h.service("plain"))
		h.readyService(t, "plain")
		h.quiet(t, "when it is back")
	})
	conditions.Stop(t)
}

// TestMeshModeStays: the mode of a service does not change with its annotation, whether or not admission is asked, and
// both controllers know it.
func TestMeshModeStays(t *testing.T) {
	h := mesh(t, admission.Serving, admission.ModelMesh)
	inMesh, standard := h.service("in-mesh"), h.Service("standard", "sklearn")
	h.Create(t, inMesh, standard)
	h.readyService(t, "in-mesh")
	h.RollOut(t, "standard-predictor")
	h.Status(t, "standard", "PredictorReady", corev1.ConditionTrue, "")
	h.quiet(t, "when both are made")

	change := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1beta1.AnnotationDeploymentMode, config.ModeStandard)
	if err := h.C.Patch(t.Context(), inMesh, client.RawPatch(types.MergePatchType, []byte(change))); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("admission says %v", err)
	}
	h.unguarded(t)
	flip := func(name, mode string) {
		t.Helper()
		isvc := h.Service(name, "sklearn")
		testkit.Eventually(t, patience, "the annotation of "+name, func() error { // until admission is no longer asked
			if err := h.C.Get(t.Context(), client.ObjectKeyFromObject(isvc), isvc); err != nil {
				return err
			}
			isvc.Annotations = map[string]string{v1beta1.AnnotationDeploymentMode: mode}
			return h.C.Update(t.Context(), isvc)
		})
	}
	flip("in-mesh", config.ModeStandard)
	flip("standard", config.ModeModelMesh)
	for _, name := range []string{"in-mesh", "standard"} {
		h.Status(t, name, "SettingsIgnored", corev1.ConditionTrue, "NoEffect")
	}
	if ready := h.readyService(t, "in-mesh"); !strings.HasPrefix(*ready.Status.URL, "grpc://") {
		t.Errorf("%+v", ready.Status)
	}
	if names := h.mesh.Names(); !slices.Equal(names, []string{"in-mesh"}) {
		t.Errorf("the mesh knows %v", names)
	}
	left := &appsv1.DeploymentList{}
	if err := h.C.List(t.Context(), left, client.InNamespace(h.NS)); err != nil || len(left.Items) != 1 {
		t.Errorf("%d Deployments, %v", len(left.Items), err)
	}
	h.quiet(t, "when the annotations are ignored")
	flip("in-mesh", config.ModeModelMesh)
	flip("standard", config.ModeStandard)
	for _, name := range []string{"in-mesh", "standard"} {
		isvc := h.service(name)
		h.follows(t, isvc, name, "nothing to be ignored", func() error {
			if said(isvc, "SettingsIgnored") != nil {
				return fmt.Errorf("%+v", isvc.Status)
			}
			return nil
		})
	}
	h.quiet(t, "when they are back")
}

// TestMeshAlone: where nobody looks after the rest of a service, the mesh says whether it is ready, and takes all that it
// said away when the service leaves it.
func TestMeshAlone(t *testing.T) {
	h := mesh(t, admission.ModelMesh)
	isvc := h.service("plain")
	h.Create(t, isvc)
	h.readyService(t, "plain")
	h.quiet(t, "when it is ready")
	h.Change(t, isvc, func() { isvc.Annotations[v1beta1.AnnotationDeploymentMode] = config.ModeStandard })
	h.forgets(t, "plain")
	h.follows(t, isvc, "plain", "nothing to be left of the model", func() error {
		if s := isvc.Status; len(isvc.Finalizers) > 0 || len(s.Conditions) > 0 || s.URL != nil || s.ModelStatus != nil || len(s.Components) > 0 {
			return fmt.Errorf("%v, %+v", isvc.Finalizers, s)
		}
		return nil
	})
	h.quiet(t, "when it has left")
	predictor := &v1alpha1.Predictor{ObjectMeta: metav1.ObjectMeta{Namespace: h.NS, Name: "plain"}}
	predictor.Spec.Type.Name = "onnx"
	predictor.Spec.Storage = &v1alpha1.PredictorStorage{StorageSpec: v1beta1.StorageSpec{Path: new("a")}}
	h.Create(t, predictor) // its name is free again
	h.follows(t, predictor, "plain", "a Predictor of the name to load", func() error {
		if !predictor.Status.Available || predictor.Status.ActiveModelState != v1beta1.Loaded {
			return fmt.Errorf("%+v", predictor.Status)
		}
		return nil
	})
	h.Change(t, isvc, func() { isvc.Annotations[v1beta1.AnnotationDeploymentMode] = config.ModeModelMesh })
	h.Status(t, "plain", "PredictorReady", corev1.ConditionFalse, "InvalidPredictorSpec") // which has it now
	h.Delete(t, predictor)
	h.readyService(t, "plain")
	h.quiet(t, "when it is back")
}
