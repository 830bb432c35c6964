// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/testkit"
)

func foreign(group, version, kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return u
}

func knativeService() *unstructured.Unstructured {
	return foreign("serving.knative.dev", "v1", "Service")
}

// revise plays Knative: a first revision takes all requests.
func (h *house) revise(t testing.TB, name string) {
	t.Helper()
	service := knativeService()
	h.follows(t, service, name, "the revision of "+name, func() error {
		h.reviseStatus(service)
		return h.C.Status().Update(t.Context(), service)
	})
}

func (h *house) reviseStatus(service *unstructured.Unstructured) {
	name := service.GetName()
	service.Object["status"] = map[string]any{
		"observedGeneration": service.GetGeneration(),
		"conditions": []any{
			map[string]any{"type": "Ready", "status": "True"},
			map[string]any{"type": "RoutesReady", "status": "True"},
			map[string]any{"type": "ConfigurationsReady", "status": "True"},
		},
		"latestCreatedRevisionName": name + "-00001",
		"latestReadyRevisionName":   name + "-00001",
		"url":                       "http://" + name + "." + h.NS + ".example.com",
		"address":                   map[string]any{"url": "http://" + name + "." + h.NS + ".svc.cluster.local"},
		"traffic":                   []any{map[string]any{"revisionName": name + "-00001", "latestRevision": true, "percent": int64(100)}},
	}
}

// TestKnativeComesLater: a service that waits for Knative gets what it waited for from the manager that told it so.
func TestKnativeComesLater(t *testing.T) {
	h := serve(t)
	isvc := h.Service("iris", "sklearn")
	isvc.Annotations = map[string]string{v1beta1.AnnotationDeploymentMode: config.ModeKnative}
	h.Create(t, isvc)
	h.Status(t, "iris", "PredictorReady", corev1.ConditionFalse, "ServerlessModeRejected")
	h.Install(t, testkit.Knative)
	h.Exists(t, knativeService(), "iris-predictor")
	h.revise(t, "iris-predictor")
	ready := h.readyService(t, "iris")
	if ready.Status.ModelStatus.LastFailureInfo != nil {
		t.Errorf("a failure that is over is still told: %+v", ready.Status.ModelStatus.LastFailureInfo)
	}
	h.Install(t, testkit.Istio)
	h.Exists(t, foreign("networking.istio.io", "v1beta1", "VirtualService"), "iris")
	h.readyService(t, "iris")
}

// multiNode is a runtime that spreads a model over nodes.
func (h *house) multiNode() *v1alpha1.ServingRuntime {
	rt := h.Runtime("huggingface")
	rt.Spec.WorkerSpec = &v1alpha1.WorkerSpec{PipelineParallelSize: ptr.To(2), TensorParallelSize: ptr.To(1)}
	rt.Spec.WorkerSpec.Containers = []corev1.Container{{Name: "worker-container", Image: "worker:1"}}
	return rt
}

// TestWorkersSurvive: head and workers stay the same objects, with the same numbers of pods, whatever is decided anew.
func TestWorkersSurvive(t *testing.T) {
	h := serve(t)
	h.Create(t, h.multiNode())
	isvc := h.Service("big", "huggingface")
	isvc.Annotations = map[string]string{v1beta1.AnnotationAutoscalerClass: "none"}
	isvc.Spec.Predictor.Model.StorageURI = ptr.To("pvc://claim/model")
	isvc.Spec.Predictor.WorkerSpec = &v1beta1.WorkerSpec{PipelineParallelSize: ptr.To(3)}
	h.Create(t, isvc)
	names := []string{"big-predictor", "big-predictor-worker"}
	h.RollOut(t, names...)
	h.readyService(t, "big")
	before := h.deployments(t, names)
	if want := map[string]int32{"big-predictor": 1, "big-predictor-worker": 2}; !cmp.Equal(want, before.replicas) {
		t.Errorf("pods (-want +have):\n%s", cmp.Diff(want, before.replicas))
	}
	for i := range 4 {
		mark := fmt.Sprint("round-", i)
		h.Change(t, isvc, func() { isvc.Annotations["example.com/mark"] = mark })
		h.Configure(t, map[string]string{config.KeyIngress: fmt.Sprintf(`{"ingressGateway": "a/b", "ingressDomain": "r%d.test"}`, i)})
		for _, name := range names {
			h.marked(t, name, mark)
		}
		h.host(t, "big", fmt.Sprintf("big-%s.r%d.test", h.NS, i))
		h.RollOut(t, names...)
	}
	h.Change(t, isvc, func() { isvc.Spec.Predictor.Model.Args = []string{"--verbose"} })
	h.follows(t, isvc, "big", "the new pods to be waited for", func() error { // head and workers are made by then
		for _, c := range isvc.Status.Conditions {
			if c.Type == "LatestDeploymentReady" && strings.Contains(c.Message, fmt.Sprintf("generation %d ", isvc.Generation)) {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", isvc.Status.Conditions)
	})
	head := &appsv1.Deployment{}
	if h.Exists(t, head, names[0]); !slices.Contains(head.Spec.Template.Spec.Containers[0].Args, "--verbose") {
		t.Errorf("%s has the arguments %q", names[0], head.Spec.Template.Spec.Containers[0].Args)
	}
	h.RollOut(t, names...)
	h.readyService(t, "big")
	if after := h.deployments(t, names); !cmp.Equal(before, after, cmp.AllowUnexported(lot{})) {
		t.Errorf("Deployments were made anew or rescaled (-before +after):\n%s", cmp.Diff(before, after, cmp.AllowUnexported(lot{})))
	}
}

// lot says which Deployments there are, and how many pods each has.
type lot struct {
	uids     map[string]types.UID
	replicas map[string]int32
}

func (h *house) deployments(t testing.TB, names []string) lot {
	t.Helper()
	out := lot{uids: map[string]types.UID{}, replicas: map[string]int32{}}
	for _, name := range names {
		d := &appsv1.Deployment{}
		h.Exists(t, d, name)
		out.uids[name], out.replicas[name] = d.UID, *d.Spec.Replicas
	}
	return out
}

func (h *house) marked(t testing.TB, name, mark string) {
	t.Helper()
	d := &appsv1.Deployment{}
	h.follows(t, d, name, name+" to be marked "+mark, func() error {
		if got := d.Annotations["example.com/mark"]; got != mark {
			return fmt.Errorf("it is marked %q", got)
		}
		return nil
	})
}

// host waits until the first host of an Ingress is this one.
func (h *house) host(t testing.TB, name, want string) {
	t.Helper()
	ingress := &networkingv1.Ingress{}
	h.follows(t, ingress, name, "the host "+want, func() error {
		if got := ingress.Spec.Rules[0].Host; got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// TestConfigurationChanges: children follow the ConfigMap, one change after the other, and a mistake in it changes
// nothing.
func TestConfigurationChanges(t *testing.T) {
	h := serve(t)
	h.Create(t, h.Service("iris", "sklearn"))
	h.RollOut(t, "iris-predictor")
	h.readyService(t, "iris")
	h.host(t, "iris", fmt.Sprintf("iris-%s.example.com", h.NS))

	data := map[string]string{}
	change := func(more map[string]string) {
		t.Helper()
		maps.Copy(data, more)
		h.Configure(t, data)
	}
	change(map[string]string{config.KeyIngress: `{"ingressGateway": "a/b", "ingressDomain": "models.test"}`})
	h.host(t, "iris", fmt.Sprintf("iris-%s.models.test", h.NS))

	change(map[string]string{
		config.KeyDeploy: `{"defaultDeploymentMode": "Standard", "deploymentRolloutStrategy": {"defaultRollout": {"maxSurge": "1", "maxUnavailable": "0"}}}`,
	})
	d := &appsv1.Deployment{}
	h.follows(t, d, "iris-predictor", "the Deployment to follow", func() error {
		if surge := d.Spec.Strategy.RollingUpdate.MaxSurge.String(); surge != "1" {
			return fmt.Errorf("it starts %s more at once", surge)
		}
		return nil
	})

	// The address of a Service cannot be changed: it has to be made anew.
	change(map[string]string{config.KeyService: `{"serviceClusterIPNone": true}`})
	h.address(t, "iris-predictor", false)
	change(map[string]string{config.KeyService: `{}`})
	h.address(t, "iris-predictor", true)

	change(map[string]string{config.KeyIngress: `{"ingressDomain": 7`})
	h.complaint(t, config.KeyIngress)
	h.host(t, "iris", fmt.Sprintf("iris-%s.models.test", h.NS))
	h.RollOut(t, "iris-predictor")
	h.readyService(t, "iris")

	if err := h.C.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: objectMeta(h.Platform, config.Name)}); err != nil {
		t.Fatal(err)
	}
	h.host(t, "iris", fmt.Sprintf("iris-%s.example.com", h.NS))
}

// TestNewDownloaderRollsNothing: where the template has the container that fetches models, a release that brings another
// version of it does not replace the pods. The next change of the service brings it.
func TestNewDownloaderRollsNothing(t *testing.T) {
	h := serve(t)
	platform := func(image, command, domain string) {
		t.Helper()
		h.Configure(t, map[string]string{
			config.KeyStorageInitializer: fmt.Sprintf(`{"image": %q, "command": [%q, "storage-initializer"]}`, image, command),
			config.KeyIngress:            fmt.Sprintf(`{"ingressGateway": "a/b", "ingressDomain": %q}`, domain),
		})
	}
	platform("modelplane:v1", "/modelplane", "before.test")
	h.Create(t, h.Service("probe", "sklearn"))
	h.RollOut(t, "probe-predictor")
	h.host(t, "probe", fmt.Sprintf("probe-%s.before.test", h.NS)) // the manager has seen the configuration
	isvc := h.Service("iris", "sklearn")
	isvc.Spec.Predictor.Model.StorageURI = nil
	isvc.Spec.Predictor.StorageUris = []v1beta1.StorageUri{{Uri: "s3://b/m"}}
	h.Create(t, isvc)
	h.RollOut(t, "iris-predictor")
	before := &appsv1.Deployment{}
	h.Exists(t, before, "iris-predictor")
	if c := before.Spec.Template.Spec.InitContainers[0]; c.Image != "modelplane:v1" {
		t.Fatalf("the model is fetched with %s", c.Image)
	}

	platform("modelplane-pod:v2", "/modelplane-pod", "after.test")
	h.host(t, "iris", fmt.Sprintf("iris-%s.after.test", h.NS)) // the Deployment is written before the Ingress
	now := &appsv1.Deployment{}
	h.Exists(t, now, "iris-predictor")
	if diff := cmp.Diff(before.Spec, now.Spec); diff != "" || now.Generation != before.Generation {
		t.Errorf("a new downloader changed the Deployment (-before +now):\n%s", diff)
	}

	h.Change(t, isvc, func() { isvc.Spec.Predictor.Model.Args = []string{"--verbose"} })
	h.follows(t, now, "iris-predictor", "the new downloader", func() error {
		if c := now.Spec.Template.Spec.InitContainers[0]; c.Image != "modelplane-pod:v2" || c.Command[0] != "/modelplane-pod" {
			return fmt.Errorf("it is %s of %s", c.Command[0], c.Image)
		}
		return nil
	})
}

// address waits until a Service has an address of its own, or has none.
func (h *house) address(t testing.TB, name string, own bool) {
	t.Helper()
	service := &corev1.Service{}
	h.follows(t, service, name, "the other kind of Service", func() error {
		if (service.Spec.ClusterIP != corev1.ClusterIPNone) != own {
			return fmt.Errorf("its address is %s", service.Spec.ClusterIP)
		}
		return nil
	})
}

// complaint waits for an event that names a key of the configuration.
func (h *house) complaint(t testing.TB, key string) {
	t.Helper()
	testkit.Eventually(t, patience, "an event about "+key, func() error {
		events := &corev1.EventList{}
		if err := h.C.List(t.Context(), events, client.InNamespace(h.Platform)); err != nil {
			return err
		}
		return mentions(events, key)
	})
}

func mentions(events *corev1.EventList, key string) error {
	for i := range events.Items {
		e := &events.Items[i]
		if e.Type == corev1.EventTypeWarning && e.InvolvedObject.Name == config.Name && strings.Contains(e.Message, key) {
			return nil
		}
	}
	return fmt.Errorf("%d others", len(events.Items))
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
