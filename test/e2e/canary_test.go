// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/modelplane/modelplane/test/e2e/gateway"
)

// canaryGetsItsShare counts answers behind a gateway, while the share changes, the canary takes over, and another one
// turns out to be broken. Nobody who asks may notice more than which model answers.
func (c cluster) canaryGetsItsShare() {
	c.traffic()
	trial := c.target("trial", c.openGateway())
	c.mustKubectl("apply", "-n", trafficNamespace, "-f", "test/e2e/testdata/canary.yaml")
	c.Cleanup(func() { c.undo("delete", "-n", trafficNamespace, "-f", "test/e2e/testdata/canary.yaml") })
	c.mustKubectl("wait", "-n", trafficNamespace, "--for=condition=Ready", "--timeout=5m", "inferenceservice/trial")
	load := c.startLoad(trial)
	c.waitForWeights(trafficNamespace, "80 20")
	c.checkShare(trial, 0.2)

	c.change("trial", `{"spec":{"canary":[{"trafficPercent":60,"predictor":`+canaryV2+`}]}}`)
	c.killManager()
	c.waitForWeights(trafficNamespace, "40 60")
	c.checkShare(trial, 0.6)

	c.change("trial", `{"spec":{"canary":null,"predictor":`+canaryV2+`}}`)
	c.killManager()
	c.waitForWeights(trafficNamespace, "")
	c.checkShare(trial, 1)

	c.change("trial", `{"spec":{"canary":[{"trafficPercent":50,"predictor":{"name":"v3","model":{"modelFormat":{"name":"onnx"},"storageUri":"pvc://models/nothing"}}}]}}`)
	c.eventually("a condition that says what is wrong with the canary", func() error {
		if told := c.condition("trial", "CanaryPredictorReady"); !strings.HasPrefix(told, "False") {
			return errors.New(told)
		}
		return nil
	})
	c.Log("the broken canary: ", c.condition("trial", "CanaryPredictorReady"))
	c.checkShare(trial, 1)
	if told := c.condition("trial", "Ready"); !strings.HasPrefix(told, "True") {
		c.Errorf("a broken canary makes the service unready: %s", told)
	}
	if state := c.mustKubectl("get", "inferenceservice", "trial", "-n", trafficNamespace, "-o", "jsonpath={.status.modelStatus.transitionStatus}"); state != "BlockedByFailedLoad" {
		c.Errorf("tools are told that the canary is %s", state)
	}
	c.change("trial", `{"spec":{"canary":null}}`)
	c.upToDate("trial")
	load.nothingLost("a canary that gets more, takes over, and a broken one")
}

const canaryV2 = `{"name":"v2","minReplicas":1,"model":{"modelFormat":{"name":"onnx"},"storageUri":"pvc://models/contrary"}}`

// target of a service behind the gateway.
func (c cluster) target(service, address string) target {
	c.Helper()
	return target{
		url: "http://" + address + "/v1/models/" + service + ":predict", host: service + "-" + trafficNamespace + "." + c.ingressDomain(),
		body: c.irisQuestion(), from: c.flowers(),
	}
}

// checkShare asks a thousand times. The bounds are five times what chance makes of it.
func (c cluster) checkShare(t target, want float64) {
	c.Helper()
	const questions = 1000
	n := c.count(t, questions)
	c.Logf("%v of %d answers, %.0f%% wanted from the new model, %d failed", n.answers, questions, 100*want, len(n.failures))
	for _, failure := range n.failures[:min(len(n.failures), 5)] {
		c.Errorf("a request failed: %s", failure)
	}
	spread := 5 * math.Sqrt(questions*want*(1-want))
	if got := float64(n.answers["contrary"]); math.Abs(got-want*questions) > spread {
		c.Errorf("%.0f answers came from the new model, want %.0f ± %.0f", got, want*questions, spread)
	}
}

// waitForWeights waits until the gateway has taken the route of the service trial with these weights.
func (c cluster) waitForWeights(namespace, want string) {
	c.Helper()
	c.eventually("the weights "+want, func() error {
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
		out, err := c.kubectl("get", "httproute", "trial", "-n", namespace, "-o", "json")
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

// openGateway installs the Gateway API, runs a gateway in this process until the part ends, and has the platform use it.
func (c cluster) openGateway() (address string) {
	c.Helper()
	c.installGatewayAPI()
	c.mustKubectl("apply", "-f", c.manifest("gateway.yaml", "NAMESPACE", trafficNamespace))
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "kubeconfig"))
	if err != nil {
		c.Fatal(err)
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatal(err)
	}
	ctrl.SetLogger(logr.Discard())
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gateway.Serve(ctx, cfg, at, trafficNamespace, "front") }()
	c.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			c.Errorf("the gateway: %v", err)
		}
	})
	c.useGateway()
	return at.Addr().String()
}

// installGatewayAPI brings its definitions, unless there are some.
func (c cluster) installGatewayAPI() {
	c.Helper()
	if c.mustKubectl("get", "crd", "httproutes.gateway.networking.k8s.io", "--ignore-not-found", "-o", "name") != "" {
		return
	}
	definitions := filepath.Join(strings.TrimSpace(c.must("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api")), "config/crd/standard")
	for _, kind := range []string{"gatewayclasses", "gateways", "httproutes"} {
		c.mustKubectl("apply", "--server-side", "-f", filepath.Join(definitions, "gateway.networking.k8s.io_"+kind+".yaml"))
		c.eventually("the Gateway API is served", func() error { // kubectl wait ends with an error while there are no conditions at all
			_, err := c.kubectl("wait", "--for=condition=Established", "--timeout=1m", "crd/"+kind+".gateway.networking.k8s.io")
			return err
		})
	}
}

// useGateway changes the platform's configuration until the part ends.
func (c cluster) useGateway() {
	c.Helper()
	c.changeIngress(map[string]any{"enableGatewayApi": true, "kserveIngressGateway": trafficNamespace + "/front"})
}

// ingressSettings are what the platform's configuration says of the way in, as text and as a map.
func (c cluster) ingressSettings() (string, map[string]any) {
	c.Helper()
	text := c.mustKubectl("get", "configmap", "inferenceservice-config", "-n", managerNamespace, "-o", "jsonpath={.data.ingress}")
	settings := map[string]any{}
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		c.Fatal(err)
	}
	return text, settings
}

func (c cluster) ingressDomain() string {
	c.Helper()
	_, settings := c.ingressSettings()
	domain, ok := settings["ingressDomain"].(string)
	if !ok {
		return "example.com"
	}
	return domain
}

// changeIngress changes settings of the way in until the part ends.
func (c cluster) changeIngress(to map[string]any) {
	c.Helper()
	before, settings := c.ingressSettings()
	maps.Copy(settings, to)
	after, err := json.Marshal(settings)
	if err != nil {
		c.Fatal(err)
	}
	c.mustKubectl(ingressIs(string(after))...)
	c.Cleanup(func() { c.undo(ingressIs(before)...) })
}

// ingressIs is what kubectl is told to change the platform's configuration.
func ingressIs(settings string) []string {
	patch := fmt.Sprintf(`{"data":{"ingress":%q}}`, settings)
	return []string{"patch", "configmap", "inferenceservice-config", "-n", managerNamespace, "--type=merge", "-p", patch}
}
