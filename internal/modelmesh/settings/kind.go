// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/internal/engine"
)

// kind says of the ConfigMap what is wrong with it, in its events.
type kind struct{ *Source }

var _ engine.Kind[*corev1.ConfigMap, Current] = kind{}

// Controller tells people what is wrong with the configuration, once for each text.
func (s *Source) Controller() engine.Controller {
	return engine.For[*corev1.ConfigMap, Current](kind{s}, engine.Spec{
		Name: "modelmesh-config", HomeName: Name, NoStatus: true, Workers: 1,
		Inputs: []engine.Input{{Object: &corev1.ConfigMap{}, MetadataOnly: true}},
	})
}

// Observe implements engine.Kind.
func (k kind) Observe(ctx context.Context, r engine.Reader, _ *corev1.ConfigMap) (Current, error) {
	return k.Source.Observe(ctx, r)
}

// Plan implements engine.Kind.
func (k kind) Plan(_ *corev1.ConfigMap, now Current) engine.Plan {
	plan := engine.Plan{}
	if len(now.Faults) > 0 {
		holds := "What held before stays in force until it is mended."
		if now.InDoubt {
			holds = "What held before is not known, so that everything is left as it is until it is mended."
		}
		plan.Problem = engine.MustChange("InvalidConfiguration", "%s. %s", strings.Join(now.Faults, "; "), holds)
	}
	if len(now.Unknown) > 0 {
		plan.Events = append(plan.Events, engine.Event{Warning: true, Reason: "UnknownConfiguration",
			Message: fmt.Sprintf("Nobody knows these keys, which have no effect: %s. Correct or remove them.", strings.Join(now.Unknown, ", "))})
	}
	return plan
}

func sorted(faults []string) []string {
	slices.Sort(faults)
	return faults
}
