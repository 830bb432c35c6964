// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

const rollouts = "e2e-rollouts"

// brokenRollout is a change of a service that is ready, after which its new pods cannot take over.
type brokenRollout struct {
	name, patch string
	// words that a person has to read.
	words []string
	// mend is another change; empty: undo removes the cause and leaves the service alone.
	mend string
	undo func(cluster)
	// asks is the Service of the pods from before, which go on; empty: that of the predictor.
	asks string
	// waits: it may pass, when somebody makes room.
	waits bool
}

// container is a patch of the only container of a component.
func container(component, rest string) string {
	return fmt.Sprintf(`{"spec":{%q:{"containers":[{"name":"kserve-container","image":"${ECHO}"%s}]}}}`, component, rest)
}

func transformerArgs(args string) string {
	return fmt.Sprintf(`{"spec":{"transformer":{"containers":[{"name":"kserve-container","image":"${TRANSFORMER}","args":%s%s}]}}}`, args, little)
}

const (
	little      = `,"resources":{"requests":{"cpu":"10m"}}`
	smallLimits = `,"resources":{"requests":{"cpu":"10m","memory":"32Mi"},"limits":{"cpu":"1","memory":"32Mi"}}`
	hugeRequest = `,"resources":{"requests":{"cpu":"1000","memory":"32Mi"},"limits":{"cpu":"2000","memory":"64Mi"}}`
	fromSecret  = `,"env":[{"name":"TOKEN","valueFrom":{"secretKeyRef":{"name":"later","key":"token"}}}]`
	backToIris  = `{"spec":{"predictor":{"model":{"storageUri":"pvc://models/iris"}}}}`
)

var brokenRollouts = []brokenRollout{
	{name: "corrupt-model", patch: `{"spec":{"predictor":{"model":{"storageUri":"pvc://models/words"}}}}`,
		words: []string{"model.onnx", "no valid ONNX"}, mend: backToIris},
	{name: "missing-claim", patch: `{"spec":{"predictor":{"model":{"storageUri":"pvc://absent/iris"}}}}`,
		words: []string{"absent", "claim"}, mend: backToIris},
	{name: "crashing", patch: container("predictor", little+`,"args":["fail","the","weights","do","not","fit"]`),
		words: []string{"exit code 1", "the weights do not fit"}, mend: container("predictor", little)},
	{name: "greedy", patch: container("predictor", smallLimits+`,"args":["grow"]`),
		words: []string{"more memory than its limit of 32Mi", "Raise its memory limit"}, mend: container("predictor", smallLimits)},
	{name: "no-room", patch: container("predictor", hugeRequest),
		words: []string{"Insufficient cpu (it asks for 1k)"}, mend: container("predictor", smallLimits), waits: true},
	{name: "missing-secret", patch: container("predictor", little+fromSecret), words: []string{"later", "ecret"},
		undo: func(c cluster) {
			c.mustKubectl("create", "secret", "generic", "later", "-n", rollouts, "--from-literal=token=e2e")
		}},
	{name: "transformer", patch: transformerArgs(`["--tokenizer=absent"]`),
		words: []string{"exit code 1", "tokenizer"}, mend: transformerArgs("[]"), asks: "transformer-transformer"},
}

// brokenRolloutsAreTold changes services that are ready so that their new pods cannot take over. The old ones go on
// answering, and what is wrong is told at once, to people and to tools; without the cause the newest generation is served.
func (c cluster) brokenRolloutsAreTold() {
	c.models(rollouts)
	c.addModel("words", []byte("These are words and no model."))
	images := []string{"${ECHO}", c.image("modelplane-echo"), "${TRANSFORMER}", c.image("modelplane-transformer")}
	c.mustKubectl("apply", "-n", rollouts, "-f", c.manifest("rollouts.yaml", images...))
	for _, r := range brokenRollouts {
		c.upToDateIn(rollouts, r.name)
	}
	patch := func(r brokenRollout, change string) {
		c.mustKubectl("patch", "inferenceservice", r.name, "-n", rollouts, "--type=merge", "-p", strings.NewReplacer(images...).Replace(change))
	}
	for _, r := range brokenRollouts {
		patch(r, r.patch)
	}
	c.eventually("the causes in the status", c.brokenRolloutsTold)
	for _, r := range brokenRollouts {
		c.explainsWhy(r)
		if r.asks == "" {
			r.asks = r.name + "-predictor"
		}
		if _, err := c.get(c.addressIn(rollouts, r.asks) + "/"); err != nil {
			c.Errorf("%s: the pods from before do not answer: %v", r.name, err)
		}
		if r.undo != nil {
			r.undo(c)
			continue
		}
		patch(r, r.mend)
	}
	for _, r := range brokenRollouts {
		c.upToDateIn(rollouts, r.name)
	}
	c.mustKubectl("delete", "namespace", rollouts, "--timeout=5m")
	c.mustKubectl("delete", "persistentvolume", "models-"+rollouts, "--timeout=5m")
}

// brokenRolloutsTold compares the status of each with the table in docs/inferenceservice.md.
func (c cluster) brokenRolloutsTold() error {
	out, err := c.kubectl("get", "inferenceservices", "-n", rollouts, "-o", "json")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	var list struct{ Items []rolledOut }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return err
	}
	said := map[string]rolledOut{}
	for _, item := range list.Items {
		said[item.Metadata.Name] = item
	}
	var wrong []error
	for _, r := range brokenRollouts {
		if err := said[r.name].told(r); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	return errors.Join(wrong...)
}

// rolledOut is what a service says of a rollout.
type rolledOut struct {
	Metadata struct {
		Name       string
		Generation int64
	}
	Status struct {
		ObservedGeneration int64
		Conditions         []struct{ Type, Status, Reason, Message string }
		ModelStatus        struct {
			TransitionStatus string
			LastFailureInfo  struct{ Message string }
			Copies           struct{ FailedCopies int }
		}
	}
}

func (s rolledOut) told(r brokenRollout) error {
	var wrong []error
	conditions := map[string]string{}
	for _, condition := range s.Status.Conditions {
		conditions[condition.Type] = condition.Status + " " + condition.Reason + ": " + condition.Message
	}
	if ready := conditions["Ready"]; !strings.HasPrefix(ready, "True") {
		wrong = append(wrong, fmt.Errorf("Ready is %q while the old pods answer", ready))
	}
	status, transition := "False", "BlockedByFailedLoad"
	if r.waits {
		status, transition = "Unknown Unschedulable", "InProgress"
	}
	if latest := conditions["LatestDeploymentReady"]; !strings.HasPrefix(latest, status) {
		wrong = append(wrong, fmt.Errorf("LatestDeploymentReady is %q, want %s", latest, status))
	} else if err := contains(latest, r.words); err != nil {
		wrong = append(wrong, err)
	}
	if s.Status.ObservedGeneration >= s.Metadata.Generation {
		wrong = append(wrong, errors.New("the newest generation is taken for served"))
	}
	model := s.Status.ModelStatus
	if model.TransitionStatus != transition {
		wrong = append(wrong, fmt.Errorf("transitionStatus is %q, want %s", model.TransitionStatus, transition))
	}
	if r.waits {
		return errors.Join(wrong...)
	}
	if failed := model.Copies.FailedCopies; failed == 0 && r.asks == "" { // copies are those of the predictor
		wrong = append(wrong, errors.New("no copy of the model has failed"))
	}
	return errors.Join(append(wrong, contains(model.LastFailureInfo.Message, r.words))...)
}

// explainsWhy asks the command that people are told to use.
func (c cluster) explainsWhy(r brokenRollout) {
	c.Helper()
	out, err := c.run(c.Context(), "bin/modelplane", "explain", "inferenceservice/"+r.name, "-n", rollouts, "--kubeconfig", filepath.Join(c.dir, "kubeconfig"))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		c.Errorf("explain of %s ends with %v, want 2:\n%s", r.name, err, out)
	}
	if err := contains(out, r.words); err != nil {
		c.Errorf("explain of %s: %v", r.name, err)
	}
}
