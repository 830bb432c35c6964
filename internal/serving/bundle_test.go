// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	platform "github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// TestBundleOutlivesServices: the certificates that models are fetched with are copied to the namespaces of services once for
// all of them, follow the platform's, and stay when the last service goes, as does what somebody else keeps beside them.
func TestBundleOutlivesServices(t *testing.T) {
	b := servingtest.New(t)
	b.Configure(t, map[string]string{platform.KeyStorageInitializer: `{"image": "fetch:1", "caBundleConfigMapName": "bundle"}`})
	counter := testkit.NewCounter()
	b.Manage(t, counter.Wrap(b.Manager))
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.Platform, Name: "bundle"}, Data: map[string]string{"cabundle.crt": "first"}}
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "global-ca-bundle"}, Data: map[string]string{"other.crt": "theirs"}}
	iris, rose := b.Service("iris", "sklearn"), b.Service("rose", "sklearn")
	b.Create(t, theirs, iris, rose)
	b.Status(t, "iris", "Ready", corev1.ConditionFalse, "CABundleMissing")
	b.Create(t, source)
	copied := &corev1.ConfigMap{}
	holds := func(text string) {
		t.Helper()
		testkit.Eventually(t, servingtest.Patience, "certificates "+text, func() error {
			if err := b.C.Get(t.Context(), client.ObjectKeyFromObject(theirs), copied); err != nil {
				return err
			}
			if copied.Data["cabundle.crt"] != text || copied.Data["other.crt"] != "theirs" || len(copied.OwnerReferences) > 0 {
				return fmt.Errorf("it has %v and belongs to %v", copied.Data, copied.OwnerReferences)
			}
			return nil
		})
	}
	holds("first")
	if copied.UID != theirs.UID || copied.Labels[engine.LabelOwner] != engine.OwnerShared {
		t.Errorf("it was made anew, or is not everybody's: %v", copied.Labels)
	}
	b.Change(t, source, func() { source.Data["cabundle.crt"] = "second" })
	holds("second")
	b.Delete(t, iris, rose)
	b.Gone(t, iris.DeepCopy(), "iris")
	b.Gone(t, rose.DeepCopy(), "rose")
	testkit.NoWrites(t, counter, 2*time.Second, "when the last service is gone")
	holds("second")
}
