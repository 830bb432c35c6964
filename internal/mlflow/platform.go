// SPDX-License-Identifier: Apache-2.0

package mlflow

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelplane/modelplane/api/components/v1alpha1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/mlflow/module"
)

// saidBy are the settings with what the module says instead.
func (s Settings) saidBy(m *v1alpha1.MLflowOperator) Settings {
	s.GatewayName = cmp.Or(m.Spec.GatewayName, s.GatewayName)
	s.SectionTitle = cmp.Or(m.Spec.SectionTitle, s.SectionTitle)
	s.URL = cmp.Or(module.Domain(m), s.URL)
	return s
}

// closed is the plan while the platform's module is not ready: what runs goes on. It is nil when the way is free.
func (p *planner) closed() *engine.Plan {
	if !p.seen.Settings.Module {
		return nil
	}
	gate, open, serving := module.Gate(p.seen.Module)
	if open {
		return nil
	}
	s := p.newStatus()
	var said kube.Conditions
	if serving {
		p.judge(&said)
	} else {
		said.False(conditionAvailable, gate.Reason, gate.Message)
		said.True(conditionProgressing, gate.Reason, gate.Message)
	}
	s.Conditions = append(said.Standard(), p.kept()...)
	return &engine.Plan{KeepChildren: true, Children: p.rescued(), Status: s, RequeueAfter: p.lookAgain(0)}
}

// ofPlatform is the condition of the platform's module, where it is asked for.
func (p *planner) ofPlatform() []metav1.Condition {
	var out []metav1.Condition
	if p.seen.Settings.Module {
		c, _, _ := module.Gate(p.seen.Module)
		out = append(out, c)
	}
	return out
}
