// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

const canaryV2 = `{"name":"v2","minReplicas":1,"model":{"modelFormat":{"name":"onnx"},"storageUri":"pvc://models/contrary"}}`

// canaryGetsItsShare counts 2,000 answers at each share of a canary, which takes over in the end; the next one turns out to be
// broken. Managers are killed meanwhile, and nobody who asks may notice more than which model answers.
func (c cluster) canaryGetsItsShare() {
	d := c.frontDoor()
	d.mustKubectl("apply", "-n", frontNamespace, "-f", "test/e2e/testdata/canary.yaml")
	d.Cleanup(func() { d.undo("delete", "-n", frontNamespace, "--wait=false", "-f", "test/e2e/testdata/canary.yaml") })
	d.ready("inferenceservice", "trial")
	trial := d.to("trial")
	load := d.startLoad(trial)
	for _, percent := range []int{0, 20, 60, 100} {
		d.change("trial", fmt.Sprintf(`{"spec":{"canary":[{"trafficPercent":%d,"predictor":%s}]}}`, percent, canaryV2))
		if percent == 60 {
			d.killManager()
		}
		d.waitForWeights(fmt.Sprintf("%d %d", 100-percent, percent))
		d.shareIs(trial, float64(percent)/100)
	}
	d.change("trial", `{"spec":{"canary":null,"predictor":`+canaryV2+`}}`)
	d.killManager()
	d.waitForWeights("")
	d.upToDateIn(frontNamespace, "trial")
	d.eventually("the predictor before is gone", func() error {
		if left := d.mustKubectl("get", "pods", "-n", frontNamespace, "-l", "app=isvc.trial-v1-predictor", "-o", "name"); left != "" {
			return errors.New(left)
		}
		return nil
	})
	load.next("contrary", 40)
	d.brokenCanaryIsTold()
	d.shareIs(trial, 1)
	d.change("trial", `{"spec":{"canary":null}}`)
	d.upToDateIn(frontNamespace, "trial")
	load.nothingLost("a canary that gets 0, 20, 60 and 100 % and takes over, a broken one, and two managers killed")
}

// brokenCanaryIsTold adds a canary that cannot start: the service says so and stays ready.
func (d door) brokenCanaryIsTold() {
	d.Helper()
	d.change("trial", `{"spec":{"canary":[{"trafficPercent":50,"predictor":{"name":"v3","model":{"modelFormat":{"name":"onnx"},"storageUri":"pvc://models/nothing"}}}]}}`)
	d.eventually("a condition that says what is wrong with the canary", func() error {
		if told := d.conditionIn(frontNamespace, "trial", "CanaryPredictorReady"); !strings.HasPrefix(told, "False") {
			return errors.New(told)
		}
		return nil
	})
	d.Log("the broken canary: ", d.conditionIn(frontNamespace, "trial", "CanaryPredictorReady"))
	if told := d.conditionIn(frontNamespace, "trial", "Ready"); !strings.HasPrefix(told, "True") {
		d.Errorf("a broken canary makes the service unready: %s", told)
	}
	if state := d.mustKubectl("get", "inferenceservice", "trial", "-n", frontNamespace, "-o", "jsonpath={.status.modelStatus.transitionStatus}"); state != "BlockedByFailedLoad" {
		d.Errorf("tools are told that the canary is %s", state)
	}
}

// shareIs wants the new model's part of 2,000 answers within three points of what was asked for.
func (d door) shareIs(t target, want float64) {
	d.Helper()
	const questions, points = 2000, 0.03
	d.count(t, 200) // the proxy hears of a change a moment after its controller has answered
	n := d.count(t, questions)
	got := float64(n.answers["contrary"]) / questions
	d.Logf("%.1f %% of %d answers come from the new model, %.0f %% wanted, %d failed", 100*got, questions, 100*want, len(n.failures))
	for _, failure := range n.failures[:min(len(n.failures), 5)] {
		d.Errorf("a request failed: %s", failure)
	}
	if math.Abs(got-want) > points {
		d.Errorf("%.1f %% of the answers come from the new model, want %.0f %%", 100*got, 100*want)
	}
}

// waitForWeights waits until the gateway has taken the route of the service trial with these weights.
func (d door) waitForWeights(want string) {
	d.Helper()
	d.eventually("the weights "+want, func() error {
		var route struct {
			Metadata struct{ Generation int64 }
			Spec     struct {
				Rules []struct {
					BackendRefs []struct{ Weight int }
				}
			}
			Status struct {
				Parents []struct {
					Conditions []struct{ ObservedGeneration int64 }
				}
			}
		}
		out, err := d.kubectl("get", "httproute", "trial", "-n", frontNamespace, "-o", "json")
		if err := errors.Join(err, json.Unmarshal([]byte(out), &route)); err != nil {
			return err
		}
		var got []string
		if refs := route.Spec.Rules[0].BackendRefs; len(refs) > 1 {
			for _, ref := range refs {
				got = append(got, fmt.Sprint(ref.Weight))
			}
		}
		for _, parent := range route.Status.Parents {
			for _, condition := range parent.Conditions {
				if condition.ObservedGeneration != route.Metadata.Generation {
					return errors.New("the gateway has not seen it yet")
				}
			}
		}
		if strings.Join(got, " ") != want {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	})
}
