// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/maas/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/maas/kuadrant"
	"github.com/modelplane/modelplane/internal/maas/naming"
)

// Mode is who enforces the policies and subscriptions of a tenant.
type Mode string

// The modes, as naming.AnnotationEnforcement names them.
const (
	Kuadrant Mode = "kuadrant"
	BuiltIn  Mode = "built-in"
)

// ConditionEnforcedBy says on policies and subscriptions who enforces them, and on the MaasTenantConfig who enforces those of the
// tenant just now. Its reasons are these.
const (
	ConditionEnforcedBy = "EnforcedBy"
	ByKuadrant          = "Kuadrant"
	ByProcessor         = "BuiltIn"
)

// Enforcement is the mode of a tenant, and why.
type Enforcement struct {
	Mode Mode
	// Asked is what the tenant's switch says; empty if nothing.
	Asked string
	// Missing are the kinds of Kuadrant that the cluster does not serve.
	Missing []string
	// Interim says that the payload processor checks requests until Kuadrant enforces the policies of the gateway.
	Interim bool
	// Switching says that the payload processor is to check requests, and does not yet: what Kuadrant enforces must stay.
	Switching bool
}

// Processed tells whether the payload processor checks requests, be it for the time being.
func (e Enforcement) Processed() bool { return e.Mode == BuiltIn || e.Interim }

// ObserveEnforcement decides who enforces what is in a tenant's namespace.
func ObserveEnforcement(ctx context.Context, r engine.Reader, namespace string) (Enforcement, error) {
	config := &v1alpha1.MaasTenantConfig{}
	key := types.NamespacedName{Namespace: namespace, Name: v1alpha1.MaasTenantConfigName}
	err := r.Get(ctx, key, config)
	if client.IgnoreNotFound(err) != nil {
		return Enforcement{}, err
	}
	var missing []string
	for _, gvk := range kuadrant.Kinds() {
		if !r.HasAPI(gvk.GroupKind()) {
			missing = append(missing, gvk.Kind)
		}
	}
	e := decide(config.Annotations[naming.AnnotationEnforcement], missing)
	if err == nil {
		processed := meta.FindStatusCondition(config.Status.Conditions, ConditionEnforcedBy)
		does := processed != nil && processed.Status == metav1.ConditionTrue && processed.Reason == ByProcessor
		e.Interim, e.Switching = e.Mode == Kuadrant && does, e.Mode == BuiltIn && !does
	}
	return e, nil
}

func decide(asked string, missing []string) Enforcement {
	e := Enforcement{Asked: asked, Missing: missing, Mode: Kuadrant}
	if asked == string(BuiltIn) || asked != string(Kuadrant) && len(missing) > 0 {
		e.Mode = BuiltIn
	}
	return e
}

// Problem is why nothing can be enforced as asked; nil if it can.
func (e Enforcement) Problem() *engine.Problem {
	switch {
	case e.Asked != "" && e.Asked != string(Kuadrant) && e.Asked != string(BuiltIn):
		return engine.MustChange("InvalidEnforcement",
			"The annotation %s of the tenant's MaasTenantConfig is %q. Set it to %q or %q, or remove it.", naming.AnnotationEnforcement, e.Asked, Kuadrant, BuiltIn)
	case e.Mode == Kuadrant && len(e.Missing) > 0 && !e.Interim:
		return engine.WaitFor("KuadrantMissing",
			"The tenant asks for Kuadrant, but the cluster does not serve %s (kuadrant.io), so that nothing is enforced. Install Kuadrant, or take the annotation %s off the tenant's MaasTenantConfig.",
			strings.Join(e.Missing, " and "), naming.AnnotationEnforcement)
	}
	return nil
}

// Condition says who enforces.
func (e Enforcement) Condition() metav1.Condition {
	c := metav1.Condition{Type: ConditionEnforcedBy, Status: metav1.ConditionTrue, Reason: ByKuadrant, Message: "Kuadrant enforces it at the gateway."}
	if p := e.Problem(); p != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, p.Reason, p.Message
		return c
	}
	if e.Interim {
		c.Reason, c.Message = ByProcessor, "The payload processor of the gateway enforces it until Kuadrant enforces the policies of the gateway. The tenant's MaasTenantConfig says what that waits for."
	}
	if e.Mode == BuiltIn {
		c.Reason, c.Message = ByProcessor, "The payload processor of the gateway enforces it: the tenant asks for that."
		if e.Asked == "" {
			c.Message = fmt.Sprintf("The payload processor of the gateway checks keys, access and token limits itself, because the cluster does not serve %s (kuadrant.io). Install Kuadrant to let it enforce them.",
				strings.Join(e.Missing, " and "))
		}
	}
	return c
}
