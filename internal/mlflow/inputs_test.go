// SPDX-License-Identifier: Apache-2.0

package mlflow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlflowv1 "github.com/modelplane/modelplane/api/mlflow/v1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/mlflow"
	"github.com/modelplane/modelplane/internal/mlflow/mlflowtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestChangedInputsRollTheServer: what the server reads when it starts makes it start again when it changes, and
// nothing else does.
func TestChangedInputsRollTheServer(t *testing.T) {
	b := mlflowtest.New(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "database"}, StringData: map[string]string{"uri": "postgresql://user:one@db/mlflow", "other": "1"}}
	bucket := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bucket"}, StringData: map[string]string{"AWS_ACCESS_KEY_ID": "one"}}
	place := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "place"}, Data: map[string]string{"region": "one"}}
	bundle := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "our-ca"}, Data: map[string]string{"ca.crt": "one"}}
	b.Create(t, secret, bucket, place, bundle)
	m := mlflowtest.Server()
	m.Spec.BackendStoreURI, m.Spec.BackendStoreURIFrom = nil, &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "database"}, Key: "uri"}
	m.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "bucket"}}}}
	m.Spec.Env = []corev1.EnvVar{{Name: "REGION", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "place"}, Key: "region"}}}}
	m.Spec.CABundleConfigMap = &mlflowv1.ConfigMapRef{Name: "our-ca"}
	available(t, b, m)
	for _, c := range []struct {
		what string
		edit func()
	}{
		{"the address of the database", func() {
			b.Change(t, secret, func() { secret.Data["uri"] = []byte("postgresql://user:two@db/mlflow") })
		}},
		{"the credentials of the bucket", func() { b.Change(t, bucket, func() { bucket.Data["AWS_ACCESS_KEY_ID"] = []byte("two") }) }},
		{"the environment", func() { b.Change(t, place, func() { place.Data["region"] = "two" }) }},
		{"the certificates of the user", func() { b.Change(t, bundle, func() { bundle.Data["ca.crt"] = "two" }) }},
		{"the certificates of the platform", func() {
			b.Create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "odh-trusted-ca-bundle"}, Data: map[string]string{"ca.crt": "one"}})
		}},
		{"the server's own certificate", func() {
			pair := &corev1.Secret{}
			b.Exists(t, pair, "mlflow-tls")
			if err := b.C.Delete(t.Context(), pair); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		before := generation(t, b)
		c.edit()
		testkit.Eventually(t, mlflowtest.Patience, c.what+" to reach the server", func() error {
			if generation(t, b) == before {
				return errors.New("the Deployment is as it was")
			}
			return nil
		})
		b.RollOut(t)
		b.Status(t, "Available", metav1.ConditionTrue, "")
	}
	before := generation(t, b)
	b.Change(t, secret, func() { secret.Data["other"], secret.Labels = []byte("2"), map[string]string{"new": "label"} })
	b.Change(t, m, func() { m.Annotations = map[string]string{"example.com/note": "x"} })
	b.Status(t, "Available", metav1.ConditionTrue, "")
	if now := generation(t, b); now != before {
		t.Error("a key that the server does not read restarts it")
	}
}

func generation(t *testing.T, b *mlflowtest.Bench) int64 {
	t.Helper()
	d := &appsv1.Deployment{}
	b.Exists(t, d, "mlflow")
	return d.Generation
}

func TestBundleComesLater(t *testing.T) {
	b := mlflowtest.New(t)
	watched(t, b)
	m := mlflowtest.Server()
	m.Spec.CABundleConfigMap = &mlflowv1.ConfigMapRef{Name: "our-ca"}
	b.Create(t, m)
	b.Manage(t, b.Manager)
	b.Status(t, "Available", metav1.ConditionFalse, "CABundleConfigMapError")
	b.Status(t, "Progressing", metav1.ConditionFalse, "CABundleConfigMapError")
	b.Create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "our-ca"}, Data: map[string]string{"ca.crt": "one"}})
	b.RollOut(t)
	b.Status(t, "Available", metav1.ConditionTrue, "")
}

func TestSecretComesLater(t *testing.T) {
	b := mlflowtest.New(t)
	m := mlflowtest.Server()
	m.Spec.BackendStoreURI, m.Spec.BackendStoreURIFrom = nil, &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "database"}, Key: "uri"}
	b.Create(t, m)
	b.Manage(t, b.Manager)
	b.Status(t, "Degraded", metav1.ConditionTrue, "InputMissing")
	b.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "database"}, StringData: map[string]string{"uri": "sqlite:////tmp/x.db"}})
	b.Status(t, "Available", metav1.ConditionFalse, "StorageRefused") // it leads to a file, for which there is no volume
}

// TestReplicasAreRefused where one pod only can have the data; what runs goes on.
func TestReplicasAreRefused(t *testing.T) {
	b := mlflowtest.New(t)
	m := mlflowtest.OnFiles()
	available(t, b, m)
	before := generation(t, b)
	b.Change(t, m, func() { m.Spec.Replicas = ptr.To[int32](2) })
	m = b.Status(t, "Available", metav1.ConditionFalse, "StorageRefused")
	testkit.LintConditions(t, m, mlflowtest.Lint...)
	if generation(t, b) != before {
		t.Error("the Deployment was changed")
	}
	// One that ran like this before there was anybody to refuse it goes on.
	d := &appsv1.Deployment{}
	b.Exists(t, d, "mlflow")
	b.Change(t, d, func() { d.Spec.Replicas = ptr.To[int32](2) })
	b.Status(t, "Degraded", metav1.ConditionTrue, "StorageRefused")
	b.RollOut(t)
	m = b.Status(t, "Available", metav1.ConditionTrue, "DeploymentReady")
	testkit.LintConditions(t, m, mlflowtest.Lint...)
	b.Change(t, m, func() { m.Spec.Replicas = ptr.To[int32](1) })
	b.Status(t, "Progressing", metav1.ConditionTrue, "DeploymentProgressing")
	testkit.Eventually(t, mlflowtest.Patience, "one replica to be planned", func() error {
		b.Exists(t, d, "mlflow")
		if *d.Spec.Replicas != 1 {
			return fmt.Errorf("%d replicas", *d.Spec.Replicas)
		}
		return nil
	})
	b.RollOut(t)
	b.Status(t, "Available", metav1.ConditionTrue, "")
}

// TestClaim runs with the controllers of Kubernetes, of which the garbage collector matters.
func TestClaim(t *testing.T) {
	for _, deletes := range []bool{false, true} {
		t.Run(fmt.Sprintf("deletes=%v", deletes), func(t *testing.T) {
			b := mlflowtest.New(t)
			b.ControllerManager(t)
			m := mlflowtest.OnFiles()
			b.Create(t, m)
			b.Manage(t, b.Manager)
			claim := &corev1.PersistentVolumeClaim{}
			b.Exists(t, claim, "mlflow-pvc")
			if deletes {
				b.Change(t, m, func() { m.Annotations = map[string]string{mlflow.DeleteDataAnnotation: "true"} })
				testkit.Eventually(t, mlflowtest.Patience, "the claim to belong to the object", func() error {
					if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
						return err
					}
					if metav1.GetControllerOf(claim) == nil || claim.Annotations[engine.AnnotationRetained] != "" {
						return fmt.Errorf("owners %v, annotations %v", claim.OwnerReferences, claim.Annotations)
					}
					return nil
				})
			}
			if err := b.C.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			b.Gone(t, &mlflowv1.MLflow{}, "mlflow")
			b.Gone(t, &appsv1.Deployment{}, "mlflow")
			if deletes {
				gone(t, b, claim)
				return
			}
			uid := claim.UID
			b.Exists(t, claim, "mlflow-pvc")
			if claim.DeletionTimestamp != nil || claim.UID != uid {
				t.Errorf("the claim goes with the object: %+v", claim.ObjectMeta)
			}
			again := mlflowtest.OnFiles()
			b.Create(t, again)
			testkit.Eventually(t, mlflowtest.Patience, "the claim to be taken over by the new object", func() error {
				if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
					return err
				}
				if claim.UID != uid || claim.Labels[engine.LabelOwner] != string(again.UID) {
					return fmt.Errorf("it belongs to %s", claim.Labels[engine.LabelOwner])
				}
				return nil
			})
		})
	}
}

// TestClaimGoesWithItsStorage: where the data may go, the claim does when spec.storage is removed, also when that was before.
func TestClaimGoesWithItsStorage(t *testing.T) {
	b := mlflowtest.New(t)
	m := mlflowtest.OnFiles()
	b.Create(t, m)
	b.Manage(t, b.Manager)
	claim := &corev1.PersistentVolumeClaim{}
	b.Exists(t, claim, "mlflow-pvc")
	b.Change(t, m, func() { m.Spec = mlflowtest.Server().Spec })
	testkit.Eventually(t, mlflowtest.Patience, "the change to be seen", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(m.Status.Conditions, "Progressing"); c == nil || c.ObservedGeneration != m.Generation {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	b.Exists(t, claim, "mlflow-pvc")
	if claim.DeletionTimestamp != nil {
		t.Fatal("the data went without being asked for")
	}
	b.Change(t, m, func() { metav1.SetMetaDataAnnotation(&m.ObjectMeta, mlflow.DeleteDataAnnotation, "true") })
	gone(t, b, claim)
}

// TestClaimOfAnotherOperatorStays: it made the claim with a reference to the MLflow, with which it would be collected. The
// reference goes, also while the server is held back, when spec.storage was removed, and when an earlier release of ours
// left it; and the annotation that lets the data go still does.
func TestClaimOfAnotherOperatorStays(t *testing.T) {
	b := mlflowtest.New(t)
	b.ControllerManager(t)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	for name, tc := range map[string]struct {
		set     func(*mlflowv1.MLflow, *corev1.PersistentVolumeClaim)
		deletes bool
	}{
		"planned": {},
		"held back": {set: func(m *mlflowv1.MLflow, _ *corev1.PersistentVolumeClaim) {
			m.Spec.CABundleConfigMap = &mlflowv1.ConfigMapRef{Name: "missing"}
		}},
		"without storage": {set: func(m *mlflowv1.MLflow, _ *corev1.PersistentVolumeClaim) { m.Spec = mlflowtest.Server().Spec }},
		"taken over by an earlier release": {set: func(m *mlflowv1.MLflow, claim *corev1.PersistentVolumeClaim) {
			claim.Labels[engine.LabelOwner], claim.Annotations = string(m.UID), map[string]string{engine.AnnotationRetained: "true"}
		}},
		"to be deleted": {deletes: true, set: func(m *mlflowv1.MLflow, _ *corev1.PersistentVolumeClaim) {
			m.Annotations = map[string]string{mlflow.DeleteDataAnnotation: "true"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := mlflowtest.OnFiles()
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "mlflow-pvc",
				Labels: map[string]string{"app": "mlflow", "component": "mlflow"}}}
			claim.Spec = corev1.PersistentVolumeClaimSpec{AccessModes: m.Spec.Storage.AccessModes, Resources: corev1.VolumeResourceRequirements{Requests: size}}
			if tc.set != nil {
				tc.set(m, claim)
			}
			b.Create(t, m)
			if tc.set != nil {
				tc.set(m, claim) // with its UID
			}
			claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(m, mlflowv1.GroupVersion.WithKind("MLflow"))}
			witness := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "witness", OwnerReferences: claim.OwnerReferences}}
			b.Create(t, witness)
			uid := applied(t, b, claim)
			stop := b.Manage(t, b.Manager)
			testkit.Eventually(t, mlflowtest.Patience, "the claim to be taken over", func() error {
				if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
					return err
				}
				if claim.Labels[engine.LabelIntent] == "" || tc.deletes != (len(claim.OwnerReferences) > 0) {
					return fmt.Errorf("labels %v, owners %v", claim.Labels, claim.OwnerReferences)
				}
				return nil
			})
			b.Delete(t, m)
			b.Gone(t, &mlflowv1.MLflow{}, "mlflow")
			b.Gone(t, witness, "witness") // the collector has been here
			if tc.deletes {
				stop()
				b.Gone(t, claim, "mlflow-pvc")
				return
			}
			err := b.C.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
			if err != nil || claim.UID != uid || claim.DeletionTimestamp != nil {
				t.Errorf("the data goes with the object: %v %+v", err, claim.ObjectMeta)
			}
			stop()
			b.Delete(t, claim)
			b.Gone(t, claim, "mlflow-pvc")
		})
	}
}

// applied makes a claim as the other operator does.
func applied(t *testing.T, b *mlflowtest.Bench, claim *corev1.PersistentVolumeClaim) types.UID {
	t.Helper()
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(claim)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: raw}
	delete(u.Object, "status")
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	if err := b.C.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("mlflow-operator"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	return u.GetUID()
}

// gone accepts a claim that only waits for its pods, which no kubelet ends here.
func gone(t *testing.T, b *mlflowtest.Bench, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	testkit.Eventually(t, mlflowtest.Patience, "the claim to go", func() error {
		err := b.C.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
		if err == nil && claim.DeletionTimestamp == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
}

func TestClaimGrows(t *testing.T) {
	b := mlflowtest.New(t)
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, Provisioner: "test.dev/disks", AllowVolumeExpansion: ptr.To(true)}
	if err := b.C.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.C.Delete(context.Background(), class) })
	m := mlflowtest.OnFiles()
	m.Spec.Storage.StorageClassName = ptr.To(class.Name)
	available(t, b, m)
	claim := &corev1.PersistentVolumeClaim{}
	b.Exists(t, claim, "mlflow-pvc")
	// As if a volume had been found for it.
	b.Change(t, claim, func() { claim.Spec.VolumeName = "disk" })
	claim.Status.Phase = corev1.ClaimBound
	if err := b.C.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	size := func(want string) {
		t.Helper()
		testkit.Eventually(t, mlflowtest.Patience, "the claim to ask for "+want, func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
				return err
			}
			if got := claim.Spec.Resources.Requests.Storage().String(); got != want {
				return fmt.Errorf("it asks for %s", got)
			}
			return nil
		})
	}
	size("2Gi")
	ask := func(n string) {
		b.Change(t, m, func() {
			m.Spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(n)}
		})
	}
	ask("20Gi")
	size("20Gi")
	b.Status(t, "Available", metav1.ConditionTrue, "")
	ask("10Gi")
	m = b.Status(t, "Degraded", metav1.ConditionTrue, "StorageNotAsAsked")
	testkit.LintConditions(t, m, mlflowtest.Lint...)
	size("20Gi")
	ask("20Gi")
	testkit.Eventually(t, mlflowtest.Patience, "all to be well again", func() error {
		if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(m.Status.Conditions, "Degraded"); c != nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}
