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

// graphsAnswer asks a graph of each kind by its URL.
func (c cluster) graphsAnswer() {
	d := c.frontDoor()
	const file = "test/e2e/testdata/frontdoor-graphs.yaml"
	d.mustKubectl("apply", "-n", frontNamespace, "-f", file)
	d.Cleanup(func() { d.undo("delete", "-n", frontNamespace, "-f", file) })
	for _, graph := range []string{"sequence", "switch", "splitter", "ensemble"} {
		d.ready("inferencegraph", graph)
	}
	d.all("the last of a sequence answers", d.toGraph("sequence"), "iris", 40)
	d.all("the step whose condition holds answers", d.toGraph("switch"), "contrary", 40)
	d.all("all answer together", d.toEnsemble(), "both", 40)
	const questions = 800
	splitter := d.toGraph("splitter")
	d.firstAnswer(splitter)
	n := d.count(splitter, questions)
	d.Logf("a splitter: %v", n)
	if got := float64(n.answers["contrary"]) / questions; math.Abs(got-0.25) > 0.08 || len(n.failures) > 0 {
		d.Errorf("%.0f %% went to the step with a quarter of the weight: %v", 100*got, n)
	}
}

func (d door) toEnsemble() target {
	d.Helper()
	one := d.flowers()
	t := d.toGraph("ensemble")
	t.from = func(answer []byte) (string, error) {
		var got struct{ Yes, No json.RawMessage }
		if err := json.Unmarshal(answer, &got); err != nil {
			return "", err
		}
		yes, errYes := one(got.Yes)
		no, errNo := one(got.No)
		if err := errors.Join(errYes, errNo); err != nil || yes != "iris" || no != "contrary" {
			return "", fmt.Errorf("it says %s, read as %s and %s", answer, yes, no)
		}
		return "both", nil
	}
	return t
}

// graphOutlives has the router of a graph evicted, as from a node that is drained, and the graph changed so that it names a
// service that is missing. Who asks notices neither.
func (c cluster) graphOutlives() {
	d := c.frontDoor()
	const file = "test/e2e/testdata/frontdoor-drained.yaml"
	d.mustKubectl("apply", "-n", frontNamespace, "-f", file)
	d.Cleanup(func() { d.undo("delete", "-n", frontNamespace, "--wait=false", "-f", file) })
	d.ready("inferencegraph", "drained")
	load := d.startLoad(d.toGraph("drained"))
	load.next("iris", 20)
	d.evict(frontNamespace, "serving.kserve.io/inferencegraph=drained")
	load.next("iris", 40)

	step := func(service string) {
		d.mustKubectl("patch", "inferencegraph", "drained", "-n", frontNamespace, "--type=json",
			"-p", `[{"op":"replace","path":"/spec/nodes/root/steps/0/serviceName","value":"`+service+`"}]`)
	}
	step("absent")
	d.eventually("a graph that says what it misses", func() error {
		told := d.mustKubectl("get", "inferencegraph", "drained", "-n", frontNamespace, "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")]['status','reason','message']}`)
		if !strings.HasPrefix(told, "False InferenceServiceMissing InferenceService absent, which spec.nodes[root].steps[0] names, does not exist.") {
			return errors.New(told)
		}
		return nil
	})
	load.next("iris", 40)
	step("other")
	d.ready("inferencegraph", "drained")
	load.next("contrary", 40)
	load.nothingLost("a graph whose routers are evicted, and which names a missing service and then another")
}
