// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/modelplane/modelplane/internal/serving"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
)

var (
	saidCondition  = regexp.MustCompile(`(?m)^# condition (\w+)=(\w+)`)
	saidTransition = regexp.MustCompile(`(?m)^#     transitionStatus: (\w+)`)
)

// verdict is what Argo CD's check makes of a status. Its releases differ in a service that is not blocked and has no
// condition that is Unknown: the strict ones call it degraded.
func verdict(plan string, strict bool) string {
	transition := "UpToDate"
	if m := saidTransition.FindStringSubmatch(plan); m != nil {
		transition = m[1]
	}
	unknown, failed := 0, 0
	for _, m := range saidCondition.FindAllStringSubmatch(plan, -1) {
		switch {
		case m[1] == "Stopped" && m[2] == "True":
			return "Suspended"
		case m[1] == "Stopped":
		case m[2] == "Unknown":
			unknown++
		case m[2] == "False":
			failed++
		}
	}
	blocked := transition != "UpToDate" && transition != "InProgress"
	switch {
	case transition == "UpToDate" && unknown+failed == 0:
		return "Healthy"
	case !blocked && (unknown > 0 || !strict):
		return "Progressing"
	}
	return "Degraded"
}

// TestVerdicts holds what GitOps tools show of a service in each of its states.
func TestVerdicts(t *testing.T) {
	cluster := kubernetes("1.36.0")
	room := serving.New().WithKubernetes(&cluster)
	planner := servingtest.Planner(t, room, room.Controllers()...)
	for want, cases := range map[string][]string{
		"Healthy": {"ready", "gateway-ready", "knative-ready", "rollout-mended", "rollout-lags", "healed", "frozen-while-ready", "frozen-by-another",
			"config-bad-while-ready", "deployment-without-generations"},
		"Progressing": {"rollout-in-progress", "downloading", "ingress-predictor", "knative-predictor", "gateway-silent", "canary-starting", "resumed", "config-bad-while-rolling-out"},
		"Suspended":   {"stopped", "stopped-knative"},
		"Degraded": {
			"cause-crash", "cause-image", "cause-oom", "cause-quota", "cause-secret", "cause-model-path", "rollout-broken",
			"rollout-over-quota", "rollout-too-late", "rollout-broken-too-late", "multi-node-worker-fails", "knative-missing",
			"knative-failing", "keda-missing", "ca-bundle-missing", "gateway-missing", "gateway-refuses", "runtime-missing", "runtime-none", "config-bad-new",
			"transformer-crash", "transformer-broken", "explainer-crash", "explainer-broken", "canary-crash", "canary-broken", "canary-invalid",
		},
	} {
		for _, name := range cases {
			in, err := os.ReadFile("testdata/plan/" + name + "/in.yaml")
			if err != nil {
				t.Fatal(err)
			}
			plan := string(servingtest.Plan(t, planner, in))
			for _, strict := range []bool{false, true} {
				if got := verdict(plan, strict); got != want {
					t.Errorf("%s is %s (strict %v) and should be %s", name, got, strict, want)
				}
			}
		}
	}
}
