// SPDX-License-Identifier: Apache-2.0

package platform_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/maas/gateways"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
	"github.com/modelplane/modelplane/internal/maas/pass"
	"github.com/modelplane/modelplane/internal/testkit"
)

// kuadrant makes the object beside which Kuadrant's own are, in a namespace of its own.
func (b *bench) kuadrant(t testing.TB) (home string) {
	t.Helper()
	home = b.Namespace(t)
	k := kuadrant.New(kuadrant.Kuadrant)
	k.SetNamespace(home)
	k.SetName("kuadrant")
	b.Create(t, k)
	return home
}

// policiesOf are the policies of the gateway, without content.
func (b *bench) policiesOf() (auth, deny *unstructured.Unstructured) {
	auth, deny = kuadrant.New(kuadrant.AuthPolicy), kuadrant.New(kuadrant.TokenRateLimitPolicy)
	auth.SetName(naming.GatewayAuthPolicy("door", true))
	deny.SetName(naming.GatewayDeny(naming.DefaultTenant))
	for _, p := range []*unstructured.Unstructured{auth, deny} {
		p.SetNamespace(b.NS)
		p.Object["spec"] = map[string]any{"targetRef": map[string]any{"group": gateways.Gateway.Group, "kind": "Gateway", "name": "door"}}
	}
	return auth, deny
}

// kuadrantSays whether it enforces policies as they are now.
func (b *bench) kuadrantSays(t testing.TB, enforced string, policies ...*unstructured.Unstructured) {
	t.Helper()
	for _, p := range policies {
		testkit.Eventually(t, domaintest.Patience, "the status of "+p.GetName(), func() error {
			if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			condition := func(typ, status string) map[string]any {
				return map[string]any{"type": typ, "status": status, "reason": "R", "message": "m", "observedGeneration": p.GetGeneration(), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}
			}
			p.Object["status"] = map[string]any{"conditions": []any{condition("Accepted", "True"), condition("Enforced", enforced)}}
			return b.C.Status().Update(context.Background(), p)
		})
	}
}

// refuses has Envoy Gateway say that it does not take a policy beside another; what is empty takes that back.
func (b *bench) refuses(t testing.TB, policy *unstructured.Unstructured, reason string) {
	t.Helper()
	testkit.Eventually(t, domaintest.Patience, "the status of "+policy.GetName(), func() error {
		if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		status := map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted"}
		if reason != "" {
			status["status"], status["reason"] = "False", reason
		}
		policy.Object["status"] = map[string]any{"ancestors": []any{map[string]any{
			"ancestorRef": map[string]any{"group": gateways.Gateway.Group, "kind": "Gateway", "namespace": b.NS, "name": "door"}, "conditions": []any{status}}}}
		return b.C.Status().Update(context.Background(), policy)
	})
}

// tells waits until a condition is as wanted.
func (b *bench) tells(t testing.TB, obj *v1alpha1.MaasTenantConfig, typ string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	testkit.Eventually(t, domaintest.Patience, fmt.Sprintf("%s to be %s (%s)", typ, status, reason), func() error { return b.told(obj, typ, status, reason) })
}

func (b *bench) told(obj *v1alpha1.MaasTenantConfig, typ string, status metav1.ConditionStatus, reason string) error {
	if err := b.C.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	if c := meta.FindStatusCondition(obj.Status.Conditions, typ); c == nil || c.Status != status || c.Reason != reason {
		return fmt.Errorf("conditions %+v", obj.Status.Conditions)
	}
	return nil
}

// does tells by whom the pods of the payload processor let requests be checked.
func (b *bench) does(mode string) error {
	d := &appsv1.Deployment{}
	if err := b.C.Get(context.Background(), client.ObjectKey{Namespace: b.NS, Name: "payload-processing"}, d); err != nil {
		return err
	}
	checks := strings.Contains(strings.Join(d.Spec.Template.Spec.Containers[0].Args, " "), "--maas-api-ca-file")
	if have := d.Annotations[naming.AnnotationEnforcement]; have != mode || checks != (mode == "built-in") {
		return fmt.Errorf("it does %s", have)
	}
	return nil
}

// TestHandover: the payload processor goes on checking until Kuadrant enforces the policies of the gateway, and these stay until it
// checks again. Where Envoy Gateway refuses the policy of either, that is told.
func TestHandover(t *testing.T) {
	b := newBenchWith(t, true)
	b.Install(t, testkit.GatewayAPI, testkit.EnvoyGateway)
	b.gateway(t)
	config := &v1alpha1.Config{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConfigName}}
	obj := &v1alpha1.MaasTenantConfig{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: v1alpha1.MaasTenantConfigName}}
	b.Create(t, config, b.database(), obj)
	t.Cleanup(func() { b.Delete(t, config) })
	counter := testkit.NewCounter()
	testkit.Manage(t, func(ctx context.Context) error { return b.run(ctx, counter.Wrap(b.Manager)) })
	b.RollOut(t, "maas-api", "payload-processing")
	b.tells(t, obj, "EnforcedBy", metav1.ConditionTrue, "BuiltIn")
	b.says(t, obj, "Reconciled")

	b.Install(t, testkit.Kuadrant)
	home := b.kuadrant(t)
	auth, deny := b.policiesOf()
	b.Exists(t, auth, auth.GetName())
	b.Exists(t, deny, deny.GetName())
	b.shows(t, auth, home)
	b.kuadrantSays(t, "False", auth, deny)
	still := func() error {
		return errors.Join(b.told(obj, "EnforcedBy", metav1.ConditionTrue, "BuiltIn"), b.does("built-in"))
	}
	testkit.Quiet(t, time.Second, "checking while Kuadrant does not enforce", still)
	b.refusals(t, obj)
	b.kuadrantSays(t, "True", auth)
	testkit.Quiet(t, time.Second, "checking while Kuadrant enforces one policy of two", still)
	b.kuadrantSays(t, "True", deny)
	b.tells(t, obj, "EnforcedBy", metav1.ConditionTrue, "Kuadrant")
	testkit.Eventually(t, domaintest.Patience, "to leave it to Kuadrant", func() error { return b.does("kuadrant") })
	b.RollOut(t, "payload-pre-processing", "payload-processing")
	b.says(t, obj, "Reconciled")
	b.kuadrantSays(t, "False", auth) // for a moment, as when a route comes
	testkit.Quiet(t, time.Second, "leaving it to Kuadrant", func() error { return b.does("kuadrant") })
	b.kuadrantSays(t, "True", auth)
	testkit.NoWrites(t, counter, 2*time.Second, "when nothing changes")

	b.Change(t, obj, func() { metav1.SetMetaDataAnnotation(&obj.ObjectMeta, naming.AnnotationEnforcement, "built-in") })
	testkit.Eventually(t, domaintest.Patience, "to check again", func() error { return b.does("built-in") })
	b.tells(t, obj, "EnforcedBy", metav1.ConditionUnknown, "Switching")
	testkit.Quiet(t, time.Second, "what Kuadrant enforces, while no pod checks", func() error {
		return errors.Join(b.C.Get(t.Context(), client.ObjectKeyFromObject(auth), auth), b.C.Get(t.Context(), client.ObjectKeyFromObject(deny), deny))
	})
	b.RollOut(t, "payload-processing")
	b.tells(t, obj, "EnforcedBy", metav1.ConditionTrue, "BuiltIn")
	b.Gone(t, auth, auth.GetName())
	b.Gone(t, deny, deny.GetName())
	testkit.Eventually(t, domaintest.Patience, "the passes to go", func() error {
		if shown := b.passes(home); len(shown) > 0 {
			return fmt.Errorf("%d are there", len(shown))
		}
		return nil
	})
	b.says(t, obj, "Reconciled")
}

func (b *bench) passes(home string) []corev1.Secret {
	list := &corev1.SecretList{}
	if err := b.C.List(context.Background(), list, client.InNamespace(home), client.HasLabels{naming.LabelPass}); err != nil {
		return []corev1.Secret{{}}
	}
	return list.Items
}

// shows waits until the policy names a Secret beside Kuadrant's objects with a pass that maas-api takes, and replaces the key.
func (b *bench) shows(t testing.TB, auth *unstructured.Unstructured, home string) {
	t.Helper()
	ctx := context.Background()
	key, named := &corev1.Secret{}, ""
	good := func() error {
		if err := b.C.Get(ctx, client.ObjectKeyFromObject(auth), auth); err != nil {
			return err
		}
		for _, rule := range []string{"apiKeyValidation", "subscription-info"} {
			named, _, _ = unstructured.NestedString(auth.Object, "spec", "defaults", "rules", "metadata", rule, "http", "sharedSecretRef", "name")
			shown := &corev1.Secret{}
			if err := errors.Join(b.C.Get(ctx, client.ObjectKey{Namespace: home, Name: named}, shown), b.C.Get(ctx, client.ObjectKey{Namespace: b.NS, Name: "maas-api-pass-key"}, key)); err != nil {
				return err
			}
			known, err := pass.ParseKeys(string(key.Data["key"]))
			if err != nil {
				return err
			}
			period, _ := pass.Now(time.Now())
			if string(shown.Data["pass"]) != known[0].Of(naming.DefaultTenant, period) {
				return fmt.Errorf("%s is not the newest pass", named)
			}
		}
		return nil
	}
	testkit.Eventually(t, domaintest.Patience, "the policy to name a pass", good)
	if n := len(b.passes(home)); n != 2 {
		t.Errorf("%d passes are there", n)
	}
	former, trusted := named, &corev1.ConfigMap{}
	if err := b.C.Get(ctx, client.ObjectKey{Namespace: home, Name: "maas-api-ca"}, trusted); err != nil || !strings.Contains(trusted.Data["maas-api.crt"], "BEGIN CERTIFICATE") {
		t.Errorf("what to trust of maas-api: %v", err)
	}
	b.Delete(t, key)
	testkit.Eventually(t, domaintest.Patience, "the policy to name a pass of another key", func() error {
		if err := good(); err != nil || named == former {
			return errors.Join(err, errors.New("not yet"))
		}
		return nil
	})
}

// refusals plays Envoy Gateway, which takes one of two policies.
func (b *bench) refusals(t testing.TB, obj *v1alpha1.MaasTenantConfig) {
	t.Helper()
	theirs := gateways.Object(gateways.EnvoyExtensionPolicy, metav1.ObjectMeta{Namespace: b.NS, Name: "kuadrant-door", Labels: map[string]string{"kuadrant.io/managed": "true"}}, map[string]any{})
	b.Create(t, theirs)
	b.refuses(t, theirs, "Conflicted")
	b.tells(t, obj, "Degraded", metav1.ConditionTrue, "ExtensionPolicyRefused")
	b.says(t, obj, "Reconciled") // it works nevertheless
	b.refuses(t, theirs, "")
	ours := gateways.Foreign(gateways.EnvoyExtensionPolicy)
	b.Exists(t, ours, "payload-processing")
	b.refuses(t, ours, "Conflicted")
	b.says(t, obj, "ExtensionPolicyRefused")
	b.refuses(t, ours, "")
	b.says(t, obj, "Reconciled")
	b.Delete(t, theirs)
}
