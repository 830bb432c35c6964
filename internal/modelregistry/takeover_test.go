// SPDX-License-Identifier: Apache-2.0

package modelregistry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/modelregistry/v1beta1"
	"github.com/modelplane/modelplane/internal/modelregistry/registrytest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// known makes objects as the model registry operator leaves them.
type known struct {
	*registrytest.Bench
	owner *v1beta1.ModelRegistry
	// made is what it renders, and would write again.
	made []client.Object
}

// make creates an object in the operator's name, with its labels and its last intent.
func (k *known) make(t *testing.T, obj client.Object, labels map[string]string, owned bool) {
	t.Helper()
	all := map[string]string{
		"app": k.owner.Name, "component": "model-registry", "app.kubernetes.io/created-by": "model-registry-operator",
		"app.kubernetes.io/managed-by": "model-registry-operator",
	}
	maps.Copy(all, labels)
	obj.SetLabels(all)
	obj.SetAnnotations(map[string]string{"banzaicloud.com/last-applied": "UEsDBBQACAAIAAAAAAA="})
	if namespaced, err := k.C.IsObjectNamespaced(obj); err != nil {
		t.Fatal(err)
	} else if namespaced {
		obj.SetNamespace(k.NS)
	}
	if owned {
		obj.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(k.owner, v1beta1.GroupVersion.WithKind("ModelRegistry"))})
	}
	k.made = append(k.made, obj.DeepCopyObject().(client.Object))
	if err := k.C.Create(t.Context(), obj, client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}
}

func (k *known) deployment(name, image string, labels map[string]string, args ...string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), RevisionHistoryLimit: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "rest-container", Image: image, Args: args}},
			}},
		},
	}
}

// install makes a registry with a generated database and a proxy, all of it in the operator's hands.
func (k *known) install(t *testing.T) {
	t.Helper()
	name := k.owner.Name
	meta := func(suffix string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name + suffix} }
	// An older release of it, whose pods have no name of their own.
	pods, database := map[string]string{"app": name, "component": "model-registry"}, map[string]string{"app": name + "-postgres"}
	ofDatabase := map[string]string{"app": name + "-postgres", "component": "model-registry-postgres"}
	k.make(t, k.deployment(name, "model-registry:old", pods, "--hostname=0.0.0.0"), nil, true)
	k.make(t, k.deployment(name+"-postgres", "postgresql:old", database), ofDatabase, true)
	k.make(t, &corev1.Service{ObjectMeta: meta(""), Spec: corev1.ServiceSpec{
		Selector: pods, Ports: []corev1.ServicePort{{Name: "https-api", Port: 8443, TargetPort: intstr.FromInt32(8443)}}}}, nil, true)
	k.make(t, &corev1.ServiceAccount{ObjectMeta: meta("")}, nil, true)
	k.make(t, &networkingv1.NetworkPolicy{ObjectMeta: meta("-https-route")}, nil, true)
	k.make(t, &corev1.ConfigMap{ObjectMeta: meta("-kube-rbac-proxy-config"), Data: map[string]string{"config-file.yaml": "x"}}, nil, true)
	k.make(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("-auth-delegator"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
	}, map[string]string{"modelregistry.opendatahub.io/namespace": k.NS}, false)
	k.make(t, &corev1.Secret{ObjectMeta: meta("-postgres-credentials"), StringData: map[string]string{"username": "modelregistry", "password": "old"}}, nil, true)
	k.make(t, &corev1.PersistentVolumeClaim{ObjectMeta: meta("-postgres-storage"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
	}}, ofDatabase, true)
}

// installCatalog makes the catalog that earlier releases ran beside each registry.
func (k *known) installCatalog(t *testing.T) {
	t.Helper()
	name, labels := k.owner.Name+"-catalog", map[string]string{"component": "model-catalog"}
	k.make(t, k.deployment(name, "model-registry:old", map[string]string{"app": name}), labels, true)
	k.make(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8443}}}}, labels, true)
	// Somebody else's, in spite of its name.
	k.make(t, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name + "-https-route"}}, labels, false)
}

// takeBack is what the operator does with a registry that is handed back to it: it finds what it has made by its names and
// labels, and writes its own rendering over each. Nothing that we left there may refuse that, or outlive it.
func (k *known) takeBack(t *testing.T) {
	t.Helper()
	for _, rendered := range k.made {
		live, want := rendered.DeepCopyObject().(client.Object), rendered.DeepCopyObject().(client.Object)
		what := fmt.Sprintf("%T %s", live, live.GetName())
		if err := k.C.Get(t.Context(), client.ObjectKeyFromObject(rendered), live); err != nil {
			t.Errorf("%s is not found: %v", what, err)
			continue
		}
		if left := slices.DeleteFunc(live.GetFinalizers(), func(f string) bool { return f == "kubernetes.io/pvc-protection" }); len(left) > 0 {
			t.Errorf("%s waits for %v, which the operator does not know", what, left)
		}
		for key, value := range rendered.GetLabels() { // by which its cache finds it
			if live.GetLabels()[key] != value {
				t.Errorf("the label %s of %s is %q; it was %q", key, what, live.GetLabels()[key], value)
			}
		}
		_, claim := live.(*corev1.PersistentVolumeClaim)
		_, secret := live.(*corev1.Secret)
		if !claim && !secret && metav1.IsControlledBy(rendered, k.owner) && !metav1.IsControlledBy(live, k.owner) {
			t.Errorf("%s has no longer the registry for its owner, so that the operator does not look when it changes", what)
		}
		want.SetResourceVersion(live.GetResourceVersion())
		if err := k.C.Update(t.Context(), want, client.FieldOwner("manager")); err != nil {
			t.Errorf("%s cannot be written by the operator: %v", what, err)
		}
		for key := range want.GetLabels() {
			if strings.Contains(key, "modelplane") {
				t.Errorf("%s keeps the label %s", what, key)
			}
		}
	}
}

// finds are the things that the operator and other tools look for in what we make of a registry with a generated database
// and a proxy.
func (k *known) finds(t *testing.T) {
	t.Helper()
	name := k.owner.Name
	server, service, database := deployment(t, k.Bench, name), &corev1.Service{}, &corev1.Service{}
	secret, role, binding, config := &corev1.Secret{}, &rbacv1.Role{}, &rbacv1.ClusterRoleBinding{}, &corev1.ConfigMap{}
	for obj, at := range map[client.Object]string{
		service: name, database: name + "-postgres", role: "registry-user-" + name, binding: name + "-auth-delegator", config: name + "-kube-rbac-proxy-config",
		secret: name + "-postgres-credentials", &corev1.PersistentVolumeClaim{}: name + "-postgres-storage", &corev1.ServiceAccount{}: name,
		&networkingv1.NetworkPolicy{}: name + "-https-route", &networkingv1.NetworkPolicy{}: name + "-postgres", &appsv1.Deployment{}: name + "-postgres",
	} {
		k.Exists(t, obj, at)
		if _, unlabelled := obj.(*corev1.Secret); !unlabelled && obj.GetLabels()["app.kubernetes.io/created-by"] != "model-registry-operator" {
			t.Errorf("the operator would not see %T %s: its labels are %v", obj, at, obj.GetLabels())
		}
	}
	var containers, ports []string
	for _, c := range server.Spec.Template.Spec.Containers {
		containers = append(containers, c.Name)
	}
	for _, p := range append(slices.Clone(service.Spec.Ports), database.Spec.Ports...) {
		ports = append(ports, fmt.Sprintf("%s:%d", p.Name, p.Port))
	}
	got := map[string]any{
		"containers": containers, "ports": ports, "account": server.Spec.Template.Spec.ServiceAccountName, "config": slices.Sorted(maps.Keys(config.Data)),
		"secret": slices.Sorted(maps.Keys(secret.Data)), "user": string(secret.Data["username"]), "subject": binding.Subjects, "namespace": binding.Labels["modelregistry.opendatahub.io/namespace"],
		"role": role.Rules, "selector": service.Spec.Selector,
	}
	rule := func(resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: []string{name}, Verbs: []string{"get"}}
	}
	want := map[string]any{
		"containers": []string{"rest-container", "kube-rbac-proxy"}, "ports": []string{"https-api:8443", "postgresql:5432"}, "account": name, "config": []string{"config-file.yaml"},
		"secret": []string{"password", "username"}, "user": "modelregistry", "subject": []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: k.NS}}, "namespace": k.NS,
		"role": []rbacv1.PolicyRule{rule("services"), rule("endpoints")}, "selector": map[string]string{"app": name, "component": "model-registry", "app.kubernetes.io/name": name},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the operator expects and what is there:\n%s", diff)
	}
}

// again takes the registry over once more, as far as its data is concerned, too.
func again(t *testing.T, k *known) (stop func()) {
	t.Helper()
	stop = k.Manage(t, k.Manager)
	testkit.Eventually(t, registrytest.Patience, "another take-over", func() error {
		for _, name := range []string{"old", "old-postgres"} {
			if d := deployment(t, k.Bench, name); d.Labels["modelplane.dev/owner-uid"] != string(k.owner.UID) {
				return fmt.Errorf("%s is not taken over", name)
			}
		}
		return nil
	})
	ownerless(t, k.Bench)
	return stop
}

// ownerless waits until the data goes with nobody.
func ownerless(t *testing.T, b *registrytest.Bench) {
	t.Helper()
	secret, claim := &corev1.Secret{}, &corev1.PersistentVolumeClaim{}
	testkit.Eventually(t, registrytest.Patience, "the data to be nobody's", func() error {
		b.Exists(t, secret, "old-postgres-credentials")
		b.Exists(t, claim, "old-postgres-storage")
		if len(secret.OwnerReferences)+len(claim.OwnerReferences) > 0 || string(secret.Data["password"]) != "old" {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestTakenOver: what the known operator left goes on running, pod by pod, also when it is handed back and taken over again; the
// registry is then changed, handed back, taken over and deleted, with a real garbage collector: its database's claim and
// password stay, and nothing else does.
func TestTakenOver(t *testing.T) {
	b := registrytest.New(t)
	b.ControllerManager(t)
	m := b.Generated("old")
	m.Finalizers = []string{"modelregistry.opendatahub.io/finalizer"}
	m.Spec.KubeRBACProxy = &v1beta1.KubeRBACProxy{Image: "proxy:1"}
	b.Create(t, m)
	k := &known{Bench: b, owner: m}
	k.install(t)
	(&known{Bench: b, owner: m}).installCatalog(t)
	play(t, b)
	before := map[string]*appsv1.Deployment{"old": deployment(t, b, "old"), "old-postgres": deployment(t, b, "old-postgres")}
	stop := b.Manage(t, b.Manager)
	b.Status(t, "old", "Available", metav1.ConditionTrue, "")
	b.Status(t, "old", "UpdatesHeld", metav1.ConditionTrue, "TakenOver")
	same := func() {
		t.Helper()
		for name, was := range before {
			if is := deployment(t, b, name); !equality.Semantic.DeepEqual(is.Spec.Template, was.Spec.Template) {
				t.Errorf("the pods of %s are made anew", name)
			}
		}
	}
	for name := range before {
		if deployment(t, b, name).Labels["modelplane.dev/owner-uid"] != string(m.UID) {
			t.Errorf("%s is not taken over", name)
		}
	}
	same()
	ownerless(t, b)
	b.Gone(t, &appsv1.Deployment{}, "old-catalog")
	b.Gone(t, &corev1.Service{}, "old-catalog")
	b.Exists(t, &networkingv1.NetworkPolicy{}, "old-catalog-https-route")
	secret, claim, config := &corev1.Secret{}, &corev1.PersistentVolumeClaim{}, &corev1.ConfigMap{}
	b.Exists(t, config, "old-kube-rbac-proxy-config")
	if config.Data["config-file.yaml"] == "x" {
		t.Error("what the proxy goes by was not repaired")
	}
	stop()
	k.takeBack(t)
	same()
	stop = again(t, k)
	same()

	b.Change(t, m, func() { m.Spec.Rest.Port = ptr.To[int32](9000) })
	changed(t, b, "old", before["old"].Generation)
	testkit.Eventually(t, registrytest.Patience, "pods of ours", func() error {
		d := deployment(t, b, "old")
		if got := d.Spec.Template.Spec.Containers[0]; got.Image != "modelplane:test" || d.Spec.RevisionHistoryLimit != nil && *d.Spec.RevisionHistoryLimit == 0 {
			return fmt.Errorf("the image is %s", got.Image)
		}
		return nil
	})
	b.Status(t, "old", "Progressing", metav1.ConditionFalse, "CreatedDeployment")
	stop()
	k.finds(t)
	k.takeBack(t)
	again(t, k)
	b.Delete(t, m)
	testkit.Eventually(t, registrytest.Patience, "the end", func() error { return b.Ended(m) })
	for obj, name := range map[client.Object]string{
		&appsv1.Deployment{}: "old", &corev1.Service{}: "old", &corev1.ConfigMap{}: "old-kube-rbac-proxy-config", &rbacv1.ClusterRoleBinding{}: "old-auth-delegator",
		&networkingv1.NetworkPolicy{}: "old-https-route", &rbacv1.Role{}: "registry-user-old",
	} {
		b.Gone(t, obj, name)
	}
	b.Gone(t, &appsv1.Deployment{}, "old-postgres")
	b.Exists(t, claim, "old-postgres-storage")
	if b.Exists(t, secret, "old-postgres-credentials"); claim.DeletionTimestamp != nil || string(secret.Data["password"]) != "old" {
		t.Error("the data goes, or the password was changed")
	}
}

// play is all kubelets of the cluster: every pod of the namespace runs and is ready.
func play(t *testing.T, b *registrytest.Bench) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.NS}}
	b.Create(t, node)
	t.Cleanup(func() { b.Delete(t, node) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for next := 1; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				next = start(ctx, b, next)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// start makes the pods ready that are not, with addresses from next on.
func start(ctx context.Context, b *registrytest.Bench, next int) int {
	pods := &corev1.PodList{}
	if b.C.List(ctx, pods, client.InNamespace(b.NS)) != nil {
		return next
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase != corev1.PodPending {
			if p.DeletionTimestamp != nil {
				_ = b.C.Delete(ctx, p, client.GracePeriodSeconds(0)) // or with the next look
			}
			continue
		}
		if p.Spec.NodeName == "" { // or else nothing leads to it
			_ = b.C.SubResource("binding").Create(ctx, p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: b.NS}})
			continue
		}
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.9.0.%d", next)
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		for _, typ := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: typ, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
		}
		if b.C.Status().Update(ctx, p) == nil { // or with the next look
			next++
		}
	}
	return next
}
