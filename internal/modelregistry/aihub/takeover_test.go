// SPDX-License-Identifier: Apache-2.0

package aihub_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/aihub/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/modelregistry/aihub"
	"github.com/modelplane/modelplane/internal/testkit"
)

// known makes objects as releases of the known operator leave them.
type known struct {
	*bench
	// owned are the objects that belong to what owner refers to.
	owned []client.Object
	owner metav1.OwnerReference
}

// make creates an object in the operator's name, with its labels and its last intent.
func (k *known) make(t *testing.T, obj client.Object, name string, labels map[string]string) {
	t.Helper()
	all := map[string]string{"app": "model-catalog", "app.kubernetes.io/created-by": "model-registry-operator", "app.kubernetes.io/managed-by": "model-registry-operator"}
	maps.Copy(all, labels)
	obj.SetName(name)
	obj.SetLabels(all)
	obj.SetAnnotations(map[string]string{"banzaicloud.com/last-applied": "UEsDBBQACAAIAAAAAAA="})
	namespaced, err := k.C.IsObjectNamespaced(obj)
	if err != nil {
		t.Fatal(err)
	}
	if namespaced {
		obj.SetNamespace(k.NS)
	}
	if namespaced && k.owner.UID != "" {
		obj.SetOwnerReferences([]metav1.OwnerReference{k.owner})
		k.owned = append(k.owned, obj)
	}
	if err := k.C.Create(t.Context(), obj, client.FieldOwner("manager")); err != nil {
		t.Fatal(err)
	}
}

func (k *known) deployment(pods map[string]string, container string, volumes ...corev1.Volume) *appsv1.Deployment {
	return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](1), RevisionHistoryLimit: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: pods},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pods}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: container, Image: container + ":old"}}, Volumes: volumes,
		}},
	}}
}

// install makes a catalog with its database. Earlier releases had a volume for it, and sources of another name.
func (k *known) install(t *testing.T) {
	t.Helper()
	component := map[string]string{"component": "model-catalog"}
	server := k.deployment(map[string]string{"app": "model-catalog", "component": "model-catalog"}, "catalog", corev1.Volume{
		Name: "default-sources", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "model-catalog-default-sources"}}}})
	k.make(t, server, "model-catalog", component)
	if k.owner.Kind == "ModelRegistry" { // and all else went with the Deployment
		k.owner = *metav1.NewControllerRef(server, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	}
	k.make(t, k.deployment(map[string]string{"app": "model-catalog", "component": "model-catalog", "app.kubernetes.io/name": "model-catalog-postgres"},
		"postgresql", corev1.Volume{Name: "postgres-data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "model-catalog-postgres"}}}), "model-catalog-postgres", nil)
	k.make(t, &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
	}}, "model-catalog-postgres", nil)
	k.make(t, &corev1.Secret{StringData: map[string]string{"database-password": "old"}}, "model-catalog-postgres", nil)
	port := []corev1.ServicePort{{Name: "https-api", Port: 8443}}
	k.make(t, &corev1.Service{Spec: corev1.ServiceSpec{Selector: component, Ports: port}}, "model-catalog", component)
	k.make(t, &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432}}}}, "model-catalog-postgres", nil)
	k.make(t, &corev1.ServiceAccount{}, "model-catalog", nil)
	k.make(t, &networkingv1.NetworkPolicy{}, "model-catalog-https-route", nil)
	k.make(t, &rbacv1.Role{}, "model-catalog", nil)
	k.make(t, &corev1.ConfigMap{Data: map[string]string{"config-file.yaml": "x"}}, "model-catalog-kube-rbac-proxy-config", nil)
	for _, sources := range []string{"default-catalog-sources", "model-catalog-default-sources"} {
		k.make(t, &corev1.ConfigMap{Data: map[string]string{"sources.yaml": "catalogs: [] # " + sources}}, sources, nil)
	}
	k.make(t, &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"}},
		"model-catalog-auth-delegator", map[string]string{"modelregistry.opendatahub.io/namespace": k.NS})
}

// TestTakenOver: what releases of the known operator left goes on running, pod by pod, and belongs to the Catalog alone. It is then
// changed, which takes along what only the pods of before needed, but for what a person changed, and deleted.
func TestTakenOver(t *testing.T) {
	for name, owner := range map[string]func(c *v1alpha1.Catalog) metav1.OwnerReference{
		"of the platform's component": func(*v1alpha1.Catalog) metav1.OwnerReference {
			return metav1.OwnerReference{APIVersion: "components.platform.opendatahub.io/v1alpha1", Kind: "ModelRegistry", Name: "default-modelregistry",
				UID: "5f2b", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
		},
		"of the Catalog": func(c *v1alpha1.Catalog) metav1.OwnerReference {
			return *metav1.NewControllerRef(c, v1alpha1.GroupVersion.WithKind("Catalog"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			c := b.catalog()
			c.Finalizers = []string{"catalog.aihub.opendatahub.io/finalizer"}
			b.Create(t, c)
			k := &known{bench: b, owner: owner(c)}
			k.install(t)
			b.rollOut(t)
			b.RollOut(t, "model-catalog-postgres")
			k.takenOver(t, c)
			k.changed(t, c)
			b.Delete(t, c)
			testkit.Eventually(t, domaintest.Patience, "the end", func() error {
				return b.Ended([]client.Object{c}, aihub.New().Controllers())
			})
			b.Gone(t, &rbacv1.ClusterRoleBinding{}, "model-catalog-auth-delegator")
			kept := &corev1.ConfigMap{}
			if b.Exists(t, kept, "model-catalog-default-sources"); !strings.Contains(kept.Data["sources.yaml"], "of mine") || len(kept.OwnerReferences) > 0 {
				t.Errorf("what a person wrote goes with the catalog: %v %v", kept.Data, kept.OwnerReferences)
			}
		})
	}
}

// takenOver starts a manager: everything becomes the Catalog's, and the pods stay.
func (k *known) takenOver(t *testing.T, c *v1alpha1.Catalog) {
	t.Helper()
	counter := testkit.NewCounter()
	k.manage(t, counter.Wrap(k.Manager))
	k.available(t, metav1.ConditionTrue, "DeploymentAvailable")
	k.says(t, "UpdatesHeld", "TakenOver", "made by another operator")
	for _, was := range k.owned {
		is := was.DeepCopyObject().(client.Object)
		testkit.Eventually(t, domaintest.Patience, fmt.Sprintf("%T %s to belong to the Catalog alone", was, was.GetName()), func() error {
			k.Exists(t, is, was.GetName())
			if refs := is.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != c.UID || is.GetLabels()["modelplane.dev/owner-uid"] != string(c.UID) {
				return fmt.Errorf("%v %v", refs, is.GetLabels())
			}
			return nil
		})
		if is.GetUID() != was.GetUID() {
			t.Errorf("%T %s was made anew", was, was.GetName())
		}
		switch is := is.(type) {
		case *appsv1.Deployment:
			if spec := was.(*appsv1.Deployment).Spec; !equality.Semantic.DeepEqual(is.Spec.Template, spec.Template) || !equality.Semantic.DeepEqual(is.Spec.Selector, spec.Selector) {
				t.Errorf("the pods of %s are made anew", is.Name)
			}
		case *corev1.Secret:
			if string(is.Data["database-password"]) != "old" {
				t.Error("the password was changed")
			}
		case *corev1.ConfigMap:
			if pods := strings.HasSuffix(is.Name, "sources"); pods != equality.Semantic.DeepEqual(is.Data, was.(*corev1.ConfigMap).Data) {
				t.Errorf("%s has %v", is.Name, is.Data)
			}
		}
	}
	service := &corev1.Service{}
	if k.Exists(t, service, "model-catalog-postgres"); service.Spec.Selector["app.kubernetes.io/name"] != "model-catalog-postgres" {
		t.Errorf("the database is not found by %v", service.Spec.Selector)
	}
	testkit.NoWrites(t, counter, time.Second, "when everything is taken over")
}

// changed asks for other resources, so that the pods are made anew: what those of before needed stays until then.
func (k *known) changed(t *testing.T, c *v1alpha1.Catalog) {
	t.Helper()
	sources := &corev1.ConfigMap{}
	k.Exists(t, sources, "model-catalog-default-sources")
	sources.Data["sources.yaml"] = "catalogs: [] # of mine"
	if err := k.C.Update(t.Context(), sources, client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	k.Change(t, c, func() {
		c.Spec.Resources = &v1alpha1.CatalogResources{Catalog: &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}}
	})
	d, claim := &appsv1.Deployment{}, &corev1.PersistentVolumeClaim{}
	testkit.Eventually(t, domaintest.Patience, "pods of ours", func() error {
		if k.Exists(t, d, "model-catalog"); d.Spec.Template.Spec.Containers[0].Image != "modelplane:test" {
			return errors.New("not yet")
		}
		return nil
	})
	if uid := k.owned[0].GetUID(); d.UID != uid {
		t.Error("the Deployment was made anew, and its pods were gone in between")
	}
	k.available(t, metav1.ConditionTrue, "DeploymentAvailable")
	k.Exists(t, &appsv1.Deployment{}, "model-catalog-postgres") // the pods of before still need it
	if k.Exists(t, claim, "model-catalog-postgres"); claim.DeletionTimestamp != nil {
		t.Error("the volume goes while pods need it")
	}
	k.rollOut(t)
	k.Gone(t, &appsv1.Deployment{}, "model-catalog-postgres")
	k.Gone(t, &corev1.Secret{}, "model-catalog-postgres")
	testkit.Eventually(t, domaintest.Patience, "the volume to go", func() error {
		err := k.C.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
		if err == nil && claim.DeletionTimestamp == nil {
			return errors.New("it stays")
		}
		return client.IgnoreNotFound(err)
	})
	k.says(t, "LeftoversKept", "ChangedByPeople", "model-catalog-default-sources (changed by kubectl-edit)")
}

// says waits for a condition that is there only when it has something to tell.
func (b *bench) says(t *testing.T, condition, reason, words string) {
	t.Helper()
	c := b.catalog()
	testkit.Eventually(t, domaintest.Patience, "the condition "+condition, func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		said := apimeta.FindStatusCondition(c.Status.Conditions, condition)
		if said == nil || said.Reason != reason || !strings.Contains(said.Message, words) {
			return fmt.Errorf("conditions: %+v", c.Status.Conditions)
		}
		return nil
	})
	if slices.ContainsFunc(c.Status.Conditions, func(s metav1.Condition) bool { return s.Type == "Stalled" || s.Type == "Contested" }) {
		t.Errorf("something is wrong: %+v", c.Status.Conditions)
	}
}
