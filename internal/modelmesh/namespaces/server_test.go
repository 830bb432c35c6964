// SPDX-License-Identifier: Apache-2.0

package namespaces_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/cli/explain"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/modelmesh/namespaces"
	"github.com/modelplane/modelplane/internal/modelmesh/runtimes"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), admission.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

// bench is a cluster with the kinds, the manager's namespace, and another one for models.
type bench struct {
	*domaintest.Bench
	home string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	cluster := testkit.Start(t)
	all, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var needed []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range all {
		switch crd.Spec.Names.Kind {
		case "ServingRuntime", "ClusterServingRuntime", "Predictor", "InferenceService":
			crd.Spec.Conversion = nil
			needed = append(needed, crd)
		}
	}
	cluster.InstallCRDs(t, needed...)
	b := &bench{Bench: domaintest.New(t, cluster, scheme)}
	b.home = cluster.Namespace(t)
	b.Manager = charttest.RBACWith(t, cluster, b.home, map[string]any{"enable": []any{"modelmesh"}})
	return b
}

func (b *bench) controllers() []engine.Controller {
	source := settings.NewSource().WithPlatform(settings.Platform{Namespace: b.home, PodImage: "modelplane-pod:test"})
	return append(runtimes.New(source).Controllers(), namespaces.Controller(source), source.Controller())
}

func (b *bench) run(ctx context.Context, cfg *rest.Config) error {
	return domaintest.RunIn(ctx, cfg, scheme, engine.Scope{Home: b.home}, nil, b.controllers()...)
}

func (b *bench) manage(t testing.TB, cfg *rest.Config) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, cfg) })
}

// enable sets the label of the namespace; an empty text takes it off.
func (b *bench) enable(t testing.TB, text string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.NS}}
	b.Change(t, ns, func() {
		delete(ns.Labels, settings.LabelEnabled)
		if text != "" {
			ns.Labels[settings.LabelEnabled] = text
		}
	})
}

func (b *bench) etcd(text string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.home, Name: "model-serving-etcd"},
		Data: map[string][]byte{"etcd_connection": []byte(text), "ca.crt": []byte("certificate")}}
}

func (b *bench) config(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.home, Name: settings.Name}, Data: map[string]string{settings.Key: text}}
}

func (b *bench) predictor(name, format string) *v1alpha1.Predictor {
	p := &v1alpha1.Predictor{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}}
	p.Spec.Type.Name, p.Spec.Path = format, "a/model"
	return p
}

func spec(format string) v1alpha1.ServingRuntimeSpec {
	s := v1alpha1.ServingRuntimeSpec{MultiModel: ptr.To(true), GrpcDataEndpoint: ptr.To("port:8001")}
	s.SupportedModelFormats = []v1alpha1.SupportedModelFormat{{Name: format, Version: ptr.To("1"), AutoSelect: ptr.To(true)}}
	s.Containers = []corev1.Container{{Name: "server", Image: "server:1"}}
	return s
}

func (b *bench) runtime(name, format string) *v1alpha1.ServingRuntime {
	return &v1alpha1.ServingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}, Spec: spec(format)}
}

// shared is a runtime of the cluster, which goes with the test.
func (b *bench) shared(t testing.TB, name, format string) *v1alpha1.ClusterServingRuntime {
	t.Helper()
	rt := &v1alpha1.ClusterServingRuntime{ObjectMeta: metav1.ObjectMeta{Name: b.NS + "-" + name}, Spec: spec(format)}
	t.Cleanup(func() { b.Delete(t, rt) })
	return rt
}

// until waits for a Deployment of a runtime that is as wanted.
func (b *bench) until(t testing.TB, name, what string, good func(*appsv1.Deployment) bool) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	testkit.Eventually(t, domaintest.Patience, what, func() error {
		if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: "modelmesh-serving-" + name}, d); err != nil {
			return err
		}
		if !good(d) {
			return fmt.Errorf("it has %d replicas, %v", ptr.Deref(d.Spec.Replicas, 1), d.Annotations)
		}
		return nil
	})
	return d
}

func replicas(n int32) func(*appsv1.Deployment) bool {
	return func(d *appsv1.Deployment) bool { return ptr.Deref(d.Spec.Replicas, 1) == n }
}

// explains fails the test unless `modelplane explain` says all of it.
func (b *bench) explains(t *testing.T, what string, want ...string) {
	t.Helper()
	commands := map[string][]string{"NamespaceNotEnabled": {"label namespace NAMESPACE " + settings.LabelEnabled + "=true"}}
	about := []explain.About{{Kind: v1alpha1.GroupVersion.WithKind("ServingRuntime").GroupKind(), Commands: commands}}
	c := cli.NewExplainCommand(func() (*cli.Known, error) {
		return &cli.Known{Scheme: scheme, About: about, Controllers: b.controllers()}, nil
	})
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{what, "--kubeconfig", b.KubeconfigFor(t, b.Config()), "-n", b.NS})
	err := c.ExecuteContext(t.Context())
	var verdict *cli.Verdict
	if err != nil && !errors.As(err, &verdict) {
		t.Errorf("explain %s: %v", what, err)
	}
	for _, w := range want {
		if !strings.Contains(out.String(), w) {
			t.Errorf("explain %s does not say %q:\n%s", what, w, out.String())
		}
	}
}

// TestLife: runtimes of the cluster and of a namespace run where the namespace is enabled, follow the configuration, the
// storage Secret and the connection to etcd, cost nothing at rest and after a restart, and leave nothing where it is
// disabled.
func TestLife(t *testing.T) {
	b := newBench(t)
	counter := testkit.NewCounter()
	shared, own := b.shared(t, "shared", "sklearn"), b.runtime("own", "onnx")
	b.Create(t, shared, own, b.predictor("one", "sklearn"))
	stop := b.manage(t, counter.Wrap(b.Manager))
	if note := b.Told(t, own, "NamespaceNotEnabled"); !strings.Contains(note, "modelmesh-enabled=true") {
		t.Errorf("the runtime says %q", note)
	}
	b.explains(t, "servingruntime/own", "NamespaceNotEnabled", "label namespace "+b.NS)
	b.enable(t, "true")
	ns := &corev1.Namespace{}
	b.Exists(t, ns, b.NS)
	b.Told(t, ns, "EtcdSecretMissing")
	b.Told(t, own, "EtcdSecretMissing")
	etcd := b.etcd(`{"endpoints":"http://etcd:2379","root_prefix":"root"}`)
	b.Create(t, etcd)
	b.until(t, b.NS+"-shared", "pods for the model", replicas(2))
	b.until(t, "own", "no pods without a model", replicas(0))
	service, types, copied := &corev1.Service{}, &corev1.ConfigMap{}, &corev1.Secret{}
	b.Exists(t, service, "modelmesh-serving")
	b.Exists(t, types, "tc-config")
	b.Exists(t, copied, "model-serving-etcd")
	var connection map[string]string
	if err := json.Unmarshal(copied.Data["etcd_connection"], &connection); err != nil {
		t.Fatal(err)
	}
	if service.Spec.ClusterIP != "None" || connection["root_prefix"] != "root/mm_ns/"+b.NS || connection["endpoints"] != "http://etcd."+b.home+":2379" || string(copied.Data["ca.crt"]) != "certificate" {
		t.Errorf("the Service has the address %s, the connection is %v", service.Spec.ClusterIP, connection)
	}
	for _, typ := range []string{"rt:own", "rt:" + b.NS + "-shared", "mt:onnx:1", "mt:sklearn", "_default"} {
		if !strings.Contains(string(types.BinaryData["type_constraints"]), `"`+typ+`"`) {
			t.Errorf("the constraints do not speak of %s: %s", typ, types.BinaryData["type_constraints"])
		}
	}
	b.explains(t, "clusterservingruntime/"+shared.Name, "Deployment", "modelmesh-serving-"+shared.Name)
	b.changes(t, etcd)
	testkit.NoWrites(t, counter, 2*time.Second, "when nothing changes")
	stop()
	quiet := counter.Snapshot()
	b.manage(t, counter.Wrap(b.Manager))
	testkit.Quiet(t, 3*time.Second, "the rest after a restart", func() error {
		if since := counter.Since(quiet); since.Writes() > 0 {
			return fmt.Errorf("writes:\n%s", since)
		}
		return nil
	})
	b.ends(t, own)
}

// changes are made by people while everything runs.
func (b *bench) changes(t *testing.T, etcd *corev1.Secret) {
	t.Helper()
	b.Change(t, etcd, func() {
		etcd.Data["etcd_connection"] = []byte(`{"endpoints":"http://elsewhere.org:2379","root_prefix":"other"}`)
	})
	testkit.Eventually(t, domaintest.Patience, "the new connection", func() error {
		copied := &corev1.Secret{}
		b.Exists(t, copied, "model-serving-etcd")
		if !strings.Contains(string(copied.Data["etcd_connection"]), "other/mm_ns/"+b.NS) {
			return errors.New("not yet")
		}
		return nil
	})
	storage := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "storage-config"}, StringData: map[string]string{"local": `{"type":"pvc","name":"models"}`}}
	b.Create(t, storage)
	claimed := func(d *appsv1.Deployment) bool {
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "models" {
				return true
			}
		}
		return false
	}
	b.until(t, "own", "the claim of the storage Secret", claimed)
	b.Delete(t, storage)
	b.until(t, "own", "no claim any more", func(d *appsv1.Deployment) bool { return !claimed(d) })

	config := b.config("podsPerRuntime: 3\nheadlessService: false")
	b.Create(t, config)
	b.until(t, b.NS+"-shared", "three pods", replicas(3))
	testkit.Eventually(t, domaintest.Patience, "a Service with an address", func() error {
		service := &corev1.Service{}
		b.Exists(t, service, "modelmesh-serving")
		if service.Spec.ClusterIP == "None" {
			return errors.New("it has none")
		}
		return nil
	})
	b.Change(t, config, func() { config.Data[settings.Key] = "podsPerRuntime: many" })
	if note := b.Told(t, config, "InvalidConfiguration"); !strings.Contains(note, "stays in force") {
		t.Errorf("the configuration says %q", note)
	}
	b.until(t, b.NS+"-shared", "what held before", replicas(3))
	b.Delete(t, config)
	b.until(t, b.NS+"-shared", "the default", replicas(2))

	later := b.predictor("later", "onnx")
	b.Create(t, later)
	b.until(t, "own", "pods for the first model", replicas(2))
	b.Delete(t, later)
	b.until(t, "own", "the time without models", func(d *appsv1.Deployment) bool {
		return d.Annotations["modelplane.dev/without-models-since"] != "" && replicas(2)(d)
	})
}

// ends removes one thing after the other.
func (b *bench) ends(t *testing.T, own *v1alpha1.ServingRuntime) {
	t.Helper()
	name := "modelmesh-serving-" + b.NS + "-shared"
	b.Change(t, own, func() { own.Spec.Disabled = ptr.To(true) })
	b.Gone(t, &appsv1.Deployment{}, "modelmesh-serving-own")
	over := b.runtime(b.NS+"-shared", "sklearn")
	over.Spec.Replicas = ptr.To[uint16](1)
	b.Create(t, over)
	b.until(t, b.NS+"-shared", "the one of the namespace instead", func(d *appsv1.Deployment) bool { return metav1.IsControlledBy(d, over) && replicas(1)(d) })
	b.enable(t, "false")
	b.Gone(t, &appsv1.Deployment{}, name)
	b.Gone(t, &corev1.Service{}, "modelmesh-serving")
	b.Gone(t, &corev1.ConfigMap{}, "tc-config")
	b.Gone(t, &corev1.Secret{}, "model-serving-etcd")
}

// TestAutoscaler: a new runtime with an autoscaler gets both at once, and both are left to it.
func TestAutoscaler(t *testing.T) {
	b := newBench(t)
	b.enable(t, "true")
	rt := b.runtime("scaled", "onnx")
	rt.Annotations = map[string]string{"serving.kserve.io/autoscalerClass": "hpa", "serving.kserve.io/min-scale": "2", "serving.kserve.io/max-scale": "4"}
	model := b.predictor("one", "onnx")
	b.Create(t, b.config("scaleToZero: {gracePeriodSeconds: 0}"), model, rt)
	b.manage(t, b.Manager)
	b.until(t, "scaled", "the least number of pods", replicas(2))
	b.Exists(t, &autoscalingv2.HorizontalPodAutoscaler{}, "modelmesh-serving-scaled")
	d := b.until(t, "scaled", "the Deployment", replicas(2))
	b.Change(t, d, func() { d.Spec.Replicas = ptr.To[int32](4) })
	b.Change(t, rt, func() { rt.Spec.Containers[0].Image = "server:2" })
	b.until(t, "scaled", "the new image", func(d *appsv1.Deployment) bool {
		return replicas(4)(d) && strings.Contains(fmt.Sprint(d.Spec.Template.Spec.Containers), "server:2")
	})
	b.Delete(t, model)
	b.until(t, "scaled", "no pods", replicas(0))
	b.Gone(t, &autoscalingv2.HorizontalPodAutoscaler{}, "modelmesh-serving-scaled")
	b.Create(t, b.predictor("two", "onnx"))
	b.until(t, "scaled", "pods again", replicas(2))
	b.Exists(t, &autoscalingv2.HorizontalPodAutoscaler{}, "modelmesh-serving-scaled")
}

// TestTakenOver: what the known controller left runs on, pod by pod, until somebody changes something.
func TestTakenOver(t *testing.T) {
	b := newBench(t)
	b.enable(t, "true")
	ns, rt := &corev1.Namespace{}, b.runtime("old", "onnx")
	b.Exists(t, ns, b.NS)
	b.Create(t, rt, b.predictor("one", "onnx"), b.etcd(`{"endpoints":"http://etcd:2379","root_prefix":"root"}`))
	labels := runtimes.ServiceLabels("modelmesh-serving")
	left := func(obj client.Object, owner metav1.Object, kind string) {
		t.Helper()
		obj.SetNamespace(b.NS)
		obj.SetLabels(labels)
		if owner != nil {
			gv := v1alpha1.GroupVersion
			if kind == "Namespace" {
				gv = corev1.SchemeGroupVersion
			}
			obj.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, gv.WithKind(kind))})
		}
		if err := b.C.Create(t.Context(), obj, client.FieldOwner("manager")); err != nil {
			t.Fatal(err)
		}
	}
	selector := map[string]string{"modelmesh-service": "modelmesh-serving", "name": "modelmesh-serving-old"}
	before := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "modelmesh-serving-old"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: selector},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "server", Image: "server:1"}, {Name: "mm", Image: "kserve/modelmesh:v0.11.0"}}}},
	}}
	left(before, rt, "ServingRuntime")
	port := corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{runtimes.LabelService: "modelmesh-serving"}, Ports: []corev1.ServicePort{{Name: "grpc", Port: 8033}}}
	left(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "modelmesh-serving"}, Spec: port}, ns, "Namespace")
	left(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "former-name"}, Spec: port}, ns, "Namespace")
	left(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tc-config"}, Data: map[string]string{"old": "x"}}, nil, "")
	left(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "model-serving-etcd"}, Data: map[string][]byte{"etcd_connection": []byte("{}")}}, nil, "")

	stop := b.manage(t, b.Manager)
	ours := func(d *appsv1.Deployment) bool { return d.Labels[engine.LabelOwner] == string(rt.UID) }
	after := b.until(t, "old", "the take-over", ours)
	b.Told(t, rt, "PodsKept")
	b.Gone(t, &corev1.Service{}, "former-name")
	testkit.Eventually(t, domaintest.Patience, "the rest to be taken over", func() error {
		types, copied := &corev1.ConfigMap{}, &corev1.Secret{}
		b.Exists(t, types, "tc-config")
		b.Exists(t, copied, "model-serving-etcd")
		if len(types.BinaryData) != 2 || !strings.Contains(string(copied.Data["etcd_connection"]), "mm_ns") {
			return fmt.Errorf("the constraints are %d texts; the connection is %s", len(types.BinaryData), copied.Data["etcd_connection"])
		}
		return nil
	})
	same := func(when string) {
		t.Helper()
		after = b.until(t, "old", "the Deployment", ours)
		if !equality.Semantic.DeepEqual(before.Spec.Template, after.Spec.Template) {
			t.Errorf("the pods are made anew %s", when)
		}
	}
	same("by the take-over")
	stop()
	stop = b.manage(t, b.Manager)
	b.Change(t, rt, func() { rt.Labels = map[string]string{"touched": "yes"} })
	testkit.Quiet(t, 2*time.Second, "the pods after a restart", func() error { same("after a restart"); return nil })
	b.Change(t, rt, func() { rt.Spec.Containers[0].Image = "server:2" })
	b.until(t, "old", "pods of ours", func(d *appsv1.Deployment) bool {
		return strings.Contains(fmt.Sprint(d.Spec.Template.Spec.Containers), "modelplane-pod:test") && d.Annotations["modelplane.dev/held-for"] == ""
	})
	theirs := b.theirs(t)
	b.enable(t, "false")
	b.Gone(t, &appsv1.Deployment{}, "modelmesh-serving-old")
	b.nothingBut(t, theirs, "when the namespace is disabled")
	b.enable(t, "true")
	b.until(t, "old", "pods again", func(d *appsv1.Deployment) bool { return ours(d) && replicas(2)(d) })
	b.Exists(t, &corev1.Service{}, "modelmesh-serving")
	b.enable(t, "")
	b.Gone(t, &appsv1.Deployment{}, "modelmesh-serving-old")
	b.Delete(t, rt)
	b.Gone(t, rt.DeepCopy(), rt.Name)
	b.nothingBut(t, theirs, "when the runtime is deleted")
	stop()
}

// theirs makes what looks like ours and is not.
func (b *bench) theirs(t *testing.T) []client.Object {
	t.Helper()
	labels := runtimes.ServiceLabels("modelmesh-serving")
	labels["app.kubernetes.io/managed-by"] = "somebody"
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: b.NS, Name: name, Labels: labels}
	}
	selector := map[string]string{"modelmesh-service": "modelmesh-serving"}
	out := []client.Object{
		&appsv1.Deployment{ObjectMeta: named("modelmesh-serving-theirs"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "mm", Image: "x"}}}}}},
		&corev1.Service{ObjectMeta: named("modelmesh-theirs"), Spec: corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 1}}}},
		&corev1.ConfigMap{ObjectMeta: named("tc-config-theirs")},
		&corev1.Secret{ObjectMeta: named("storage-config")},
	}
	b.Create(t, out...)
	return out
}

// nothingBut waits until the namespace has nothing else of the kinds that we make.
func (b *bench) nothingBut(t *testing.T, theirs []client.Object, when string) {
	t.Helper()
	expected := map[string]bool{"ConfigMap kube-root-ca.crt": true}
	for _, obj := range theirs {
		expected[strings.TrimPrefix(fmt.Sprintf("%T ", obj), "*v1.")+obj.GetName()] = true
	}
	testkit.Eventually(t, domaintest.Patience, "nothing but what is not ours "+when, func() error {
		var left []string
		found := 0
		for _, list := range []client.ObjectList{
			&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}, &autoscalingv2.HorizontalPodAutoscalerList{},
		} {
			if err := b.C.List(t.Context(), list, client.InNamespace(b.NS)); err != nil {
				return err
			}
			err := meta.EachListItem(list, func(obj runtime.Object) error {
				name := strings.TrimPrefix(fmt.Sprintf("%T ", obj), "*v1.") + obj.(client.Object).GetName()
				if found++; !expected[name] {
					left = append(left, name)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if found -= len(left); len(left) > 0 || found < len(theirs) {
			return fmt.Errorf("there is %v, and %d of what is not ours", left, found)
		}
		return nil
	})
}

// TestOwnEtcd: a namespace that brought the Secret with the connection to its etcd keeps it, whatever the platform's says, and
// when it is disabled.
func TestOwnEtcd(t *testing.T) {
	b := newBench(t)
	own := b.etcd(`{"endpoints":"http://mine:2379","root_prefix":"mine"}`)
	own.Namespace = b.NS
	platform := b.etcd(`{"endpoints":"http://etcd:2379","root_prefix":"root"}`)
	b.Create(t, own, platform, b.runtime("own", "onnx"), b.predictor("one", "onnx"))
	b.enable(t, "true")
	b.manage(t, b.Manager)
	b.until(t, "own", "pods for the model", replicas(2))
	b.Exists(t, &corev1.ConfigMap{}, "tc-config")
	b.Change(t, platform, func() { platform.Data["etcd_connection"] = []byte(`{"endpoints":"http://else:2379"}`) })
	kept := func() error {
		now := &corev1.Secret{}
		b.Exists(t, now, own.Name)
		if now.UID != own.UID || string(now.Data["etcd_connection"]) != string(own.Data["etcd_connection"]) || now.Labels[engine.LabelOwner] != "" {
			return fmt.Errorf("it is %s with %v", now.Data["etcd_connection"], now.Labels)
		}
		return nil
	}
	testkit.Quiet(t, 2*time.Second, "the namespace's own connection", kept)
	b.enable(t, "false")
	b.Gone(t, &appsv1.Deployment{}, "modelmesh-serving-own")
	b.Gone(t, &corev1.ConfigMap{}, "tc-config")
	if err := kept(); err != nil {
		t.Error(err)
	}
}

func TestFaultsDelayButDoNotPrevent(t *testing.T) {
	b := newBench(t)
	b.enable(t, "true")
	faults := testkit.NewFaults(7).Add(
		testkit.Rule{Fault: testkit.Unavailable, Probability: 0.04},
		testkit.Rule{Fault: testkit.Conflict, Probability: 0.03},
		testkit.Rule{Fault: testkit.ClosedAfter, Probability: 0.03},
	)
	rt, config := b.runtime("faulty", "onnx"), b.config("podsPerRuntime: 1")
	b.Create(t, rt, config, b.predictor("one", "onnx"), b.etcd(`{"endpoints":"http://etcd:2379"}`))
	testkit.Insist(t, func(ctx context.Context) error { return b.run(ctx, faults.Wrap(b.Manager)) })
	for n := int32(2); n <= 5; n++ {
		b.Change(t, config, func() { config.Data[settings.Key] = fmt.Sprintf("podsPerRuntime: %d", n) })
		b.until(t, "faulty", "the number of pods", replicas(n))
	}
	b.Exists(t, &corev1.Secret{}, "model-serving-etcd")
	b.enable(t, "false")
	b.Gone(t, &appsv1.Deployment{}, "modelmesh-serving-faulty")
	b.Gone(t, &corev1.Secret{}, "model-serving-etcd")
	if faults.Injected() == 0 {
		t.Error("no fault was injected")
	}
}

// TestKilledAnywhere: killed after any write, the next manager makes the same of it, also of the end.
func TestKilledAnywhere(t *testing.T) {
	b := newBench(t)
	var rt *v1alpha1.ServingRuntime
	children := func() map[string]client.Object {
		return map[string]client.Object{
			"modelmesh-serving-killed": &appsv1.Deployment{}, "modelmesh-serving": &corev1.Service{}, "tc-config": &corev1.ConfigMap{}, "model-serving-etcd": &corev1.Secret{},
		}
	}
	missing := func(want bool) error {
		for name, obj := range children() {
			err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: name}, obj)
			if client.IgnoreNotFound(err) != nil || (err == nil) != want {
				return fmt.Errorf("%T %s: %w", obj, name, errors.Join(err, errors.New("it is there, or not, as it should not be")))
			}
		}
		return nil
	}
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager,
		Reset: func(t testing.TB) {
			b.NS = b.Namespace(t)
			rt = b.runtime("killed", "onnx")
			if err := b.C.Create(context.Background(), b.etcd(`{"endpoints":"http://etcd:2379"}`)); client.IgnoreAlreadyExists(err) != nil {
				t.Fatal(err)
			}
			b.Create(t, rt, b.predictor("one", "onnx"))
			b.enable(t, "true")
		},
		Run:       b.run,
		Converged: func() error { return missing(true) },
		Verify: func(t testing.TB) {
			d := &appsv1.Deployment{}
			if b.Exists(t, d, "modelmesh-serving-killed"); !replicas(2)(d) || !metav1.IsControlledBy(d, rt) {
				t.Errorf("the Deployment has %d replicas and the owners %v", *d.Spec.Replicas, d.OwnerReferences)
			}
		},
		Delete: func(t testing.TB) { b.enable(t, "false") },
		Gone:   func() error { return missing(false) },
	})
}

// TestOneNamespace: a manager of some namespaces looks after these only, with no more permissions there; the connection to
// etcd is then the namespace's own.
func TestOneNamespace(t *testing.T) {
	b := newBench(t)
	other := b.Namespace(t)
	values := map[string]any{"enable": []any{"modelmesh"}, "watchNamespaces": []any{b.NS}}
	b.Manager = charttest.RBACWith(t, b.Cluster, b.home, values)
	own, elsewhere := b.runtime("own", "onnx"), b.runtime("own", "onnx")
	elsewhere.Namespace = other
	connection := b.etcd(`{"endpoints":"http://etcd:2379"}`)
	connection.Namespace = b.NS
	b.Create(t, own, elsewhere, connection, b.predictor("one", "onnx"))
	b.enable(t, "true")
	scope := engine.Scope{Home: b.home, Namespaces: []string{b.NS}}
	source := settings.NewSource().WithPlatform(settings.Platform{Namespace: b.home, Watched: scope.Namespaces})
	testkit.Manage(t, func(ctx context.Context) error {
		return domaintest.RunIn(ctx, b.Manager, scheme, scope, nil,
			append(runtimes.New(source).Controllers(), namespaces.Controller(source), source.Controller())...)
	})
	b.until(t, "own", "pods for the model", replicas(2))
	b.Exists(t, &corev1.Service{}, "modelmesh-serving")
	b.Exists(t, connection, connection.Name)
	err := b.C.Get(t.Context(), client.ObjectKey{Namespace: other, Name: "modelmesh-serving-own"}, &appsv1.Deployment{})
	if client.IgnoreNotFound(err) != nil || err == nil || connection.Labels[engine.LabelOwner] != "" {
		t.Errorf("elsewhere: %v; the connection has the labels %v", err, connection.Labels)
	}
	b.enable(t, "")
	b.Gone(t, &appsv1.Deployment{}, "modelmesh-serving-own")
	b.Gone(t, &corev1.Service{}, "modelmesh-serving")
	b.Exists(t, connection, connection.Name)
}

// TestWebhook: the API server asks about runtimes of both kinds at the path that is known, and takes no for an answer.
func TestWebhook(t *testing.T) {
	b := newBench(t)
	port := testkit.FreePort(t)
	dir, ca := b.ServingCert(t)
	server := webhook.NewServer(webhook.Options{Host: b.WebhookHost(), Port: port, CertDir: dir})
	rules := runtimes.NewRules(settings.NewSource().WithPlatform(settings.Platform{Namespace: b.home}))
	rules.Connect(b.C)
	if err := admission.RegisterGuards(server, scheme, rules.Guard()); err != nil {
		t.Fatal(err)
	}
	b.Serve(t, server, port)
	validating, _, err := admission.Webhooks(b.NS, admission.Service{Namespace: b.home, Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := admission.WithGuards(validating, admission.Service{Namespace: b.home, Name: "x"}, rules.Guard()); err != nil {
		t.Fatal(err)
	}
	hook := &validating.Webhooks[0]
	if len(validating.Webhooks) != 1 || *hook.ClientConfig.Service.Path != runtimes.WebhookPath || *hook.FailurePolicy != "Fail" || len(hook.Rules) != 2 {
		t.Fatalf("the webhook is %+v", hook)
	}
	b.PointWebhook(&hook.ClientConfig, port, ca)
	hook.NamespaceSelector = nil
	b.Create(t, validating)
	t.Cleanup(func() { b.Delete(t, validating) })

	good, bad, shared := b.runtime("good", "onnx"), b.runtime("bad", "onnx"), b.shared(t, "bad", "onnx")
	bad.Spec.Containers[0].Name, shared.Spec.Containers[0].Name = "mm", "puller"
	testkit.Eventually(t, domaintest.Patience, "the webhook to be asked", func() error {
		err := b.C.Create(t.Context(), bad.DeepCopy(), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "is the name of a container of the mesh") {
			return fmt.Errorf("a container mm: %w", errors.Join(err, errors.New("not refused")))
		}
		return nil
	})
	if err := b.C.Create(t.Context(), shared); err == nil || !strings.Contains(err.Error(), "container of the mesh") {
		t.Errorf("a container puller: %v", err)
	}
	b.Create(t, good)
	mine := b.runtime("mine", "onnx")
	mine.Spec.BuiltInAdapter = &v1alpha1.BuiltInAdapter{ServerType: "server"}
	if err := b.C.Create(t.Context(), mine.DeepCopy()); err == nil || !strings.Contains(err.Error(), "serverType") {
		t.Errorf("a server that nobody knows: %v", err)
	}
	b.Create(t, b.config("builtInServerTypes: [server]"), mine)
}
