// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// quickstartAnswers applies the folder as its page says, in a namespace of its own, and asks everything in it.
func (c cluster) quickstartAnswers() {
	const folder, namespace = "examples/quickstart", "e2e-quickstart"
	c.mustKubectl("create", "namespace", namespace)
	c.Cleanup(func() { c.undo("delete", "namespace", namespace, "--wait=false") })
	c.mustKubectl("apply", "-n", namespace, "-f", folder)
	for _, name := range []string{"iris", "digits", "iris-canary", "iris-named"} {
		c.becomesReady(namespace, name)
	}
	c.irisAnswers(namespace, "iris")
	digits := c.addressIn(namespace, "digits-predictor")
	c.eventually("the right digits over REST", func() error { return c.digitsAnswer(digits + "/v2/models/digits/infer") })
	c.classesOverGRPC(strings.TrimPrefix(digits, "http://"), "digits", "digits")
	for _, version := range []string{"iris-canary-v1-predictor", "iris-canary-v2-predictor"} {
		c.eventually("an answer of "+version, func() error {
			_, err := c.post(c.addressIn(namespace, version)+"/v1/models/iris-canary:predict", "examples/onnx/iris/request-v1.json")
			return err
		})
	}
	c.eventually("names of flowers", func() error {
		out, err := c.post(c.addressIn(namespace, "iris-named-transformer")+"/v1/models/iris-named:predict", folder+"/transformer/request.json")
		if err == nil && out != `{"names":["setosa","virginica"]}` {
			err = fmt.Errorf("it says %s", out)
		}
		return err
	})
	c.claimGetsVolume(namespace)
	c.eventually("what the model of make up uses", func() error {
		out, err := c.kubectl("top", "pods", "-n", "default", "-l", "serving.kserve.io/inferenceservice=iris")
		if err == nil && !strings.Contains(out, "iris-predictor-") {
			err = fmt.Errorf("it says %s", out)
		}
		return err
	})
}

// digitsAnswer compares with the digits that the images are known to show.
func (c cluster) digitsAnswer(url string) error {
	out, err := c.post(url, "examples/onnx/digits/request-v2.json")
	if err != nil {
		return err
	}
	var got struct {
		Outputs []struct {
			Name string
			Data json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		return err
	}
	for _, output := range got.Outputs {
		var digits []int
		if output.Name != "digit" {
			continue
		}
		err := json.Unmarshal(output.Data, &digits)
		if err == nil && !slices.Equal(digits, c.classes("digits")) {
			err = fmt.Errorf("the model says %s", output.Data)
		}
		return err
	}
	return fmt.Errorf("there is no digit in %s", out)
}

// claimGetsVolume makes a claim that names no class, as most examples in the world do.
func (c cluster) claimGetsVolume(namespace string) {
	c.Helper()
	c.mustKubectl("apply", "-n", namespace, "-f", "test/e2e/testdata/claim.yaml")
	c.mustKubectl("wait", "-n", namespace, "--for=jsonpath={.status.phase}=Bound", "--timeout=5m", "pvc/claim")
}
