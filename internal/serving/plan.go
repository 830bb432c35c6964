// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"strings"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/modelmesh"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/resolve"
	"github.com/modelplane/modelplane/internal/serving/serverless"
	"github.com/modelplane/modelplane/internal/serving/standard"
	"github.com/modelplane/modelplane/internal/serving/status"
)

// Plan implements engine.Kind. The way is one: what the service asks for is resolved into components, the room of its
// mode plans how these run, and the status says how they are.
func (services) Plan(isvc *v1beta1.InferenceService, seen observed.State) engine.Plan {
	begun := configMaps(isvc, &seen)
	judge := status.Judge{Isvc: isvc, Seen: &seen}
	switch {
	case stopped(isvc):
		return engine.Plan{Children: begun.Children, Status: judge.Stopped()}
	case seen.ConfigProblem != nil:
		return heldByConfig(judge, begun)
	case seen.Mode == config.ModeModelMesh:
		return modelmesh.Plan(isvc, &seen, begun)
	case unwanted(isvc, &seen):
		return keep(judge)
	}
	run := standard.Plan
	if seen.Mode == config.ModeKnative {
		if f := serverless.Missing(&seen); f != nil {
			return judge.Fail(f)
		}
		run = serverless.Plan
	}
	parts, f := resolve.Service(isvc, &seen)
	if f != nil {
		return judge.Fail(f)
	}
	return run(isvc, &seen, parts, begun)
}

// modeOf decides how a service is run. A mode that was recorded once stays: its
// children, and the addresses that clients have, depend on it.
func modeOf(isvc *v1beta1.InferenceService, cfg *config.Config) string {
	return cfg.Mode(isvc.Status.DeploymentMode, isvc.Annotations[v1beta1.AnnotationDeploymentMode])
}

// stopped tells whether the user wants nothing to run.
func stopped(isvc *v1beta1.InferenceService) bool {
	return strings.EqualFold(isvc.Annotations[v1beta1.AnnotationStop], "true")
}
