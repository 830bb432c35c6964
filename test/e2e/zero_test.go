// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelplane/modelplane/internal/chart"
)

// servicesSleep has a service scaled by its traffic: it goes to zero and says so, comes back under fifty clients at once, at
// its Service and at the gateway, and loses no request while the activator, its leader and the manager are replaced.
func (c cluster) servicesSleep() {
	c.traffic()
	c.openActivator()
	c.mustKubectl("apply", "-n", trafficNamespace, "-f", "test/e2e/testdata/zero.yaml")
	c.Cleanup(func() { c.undo("delete", "-n", trafficNamespace, "-f", "test/e2e/testdata/zero.yaml") })
	c.mustKubectl("wait", "-n", trafficNamespace, "--for=condition=Ready", "--timeout=5m", "inferenceservice/sleeper")
	c.fallsAsleep()
	sleeper := target{url: "http://" + c.clusterIP("sleeper-predictor") + "/v1/models/sleeper:predict", body: c.irisQuestion(), from: c.flowers()}
	c.wakesUnderMany(sleeper, 50)

	outside := door{c}.outside(trafficNamespace, "sleeper")
	load := c.startLoad(outside)
	c.mustKubectl("rollout", "restart", "deployment/modelplane-activator", "-n", managerNamespace)
	c.mustKubectl("rollout", "status", "deployment/modelplane-activator", "-n", managerNamespace, "--timeout=5m")
	c.evict(managerNamespace, "app.kubernetes.io/name=activator")
	c.killManager()
	load.next("iris", 100)
	load.nothingLost("new replicas of the activator, which are evicted, and a manager that is killed")

	c.fallsAsleep()
	c.wakesUnderMany(outside, 50)
	c.fallsAsleep()
	if told := c.condition("sleeper", "Ready"); !strings.HasPrefix(told, "True") {
		c.Errorf("asleep, Ready is %s", told)
	}
	c.comesAndGoes(sleeper)
}

// comesAndGoes puts a service that sleeps before its activator, behind it again, and takes the activator from it, and wants
// every answer.
func (c cluster) comesAndGoes(sleeper target) {
	c.Helper()
	c.change("sleeper", `{"spec":{"predictor":{"minReplicas":1}}}`)
	c.wakesUnderMany(sleeper, 1)
	load := c.startLoad(sleeper)
	c.behindActivator(false)
	load.next("iris", 20)
	c.change("sleeper", `{"spec":{"predictor":{"minReplicas":0}}}`)
	c.behindActivator(true)
	load.next("iris", 20)
	c.mustKubectl(autoscalerIs(`{}`)...)
	c.behindActivator(false)
	load.next("iris", 20)
	load.nothingLost("a service that no longer sleeps, does so again, and loses its activator")
}

// behindActivator waits until requests for the service go through the activator, or no longer do.
func (c cluster) behindActivator(want bool) {
	c.Helper()
	c.eventually(fmt.Sprintf("the activator in front of the pods: %v", want), func() error {
		service := c.mustKubectl("get", "service", "sleeper-predictor", "-n", trafficNamespace, "-o", "jsonpath={.spec.selector} {.metadata.labels}")
		slices := c.mustKubectl("get", "endpointslices", "-n", trafficNamespace, "-o", "name")
		if strings.Contains(service, "activator") != want || strings.Contains(slices, "sleeper-predictor-activator") != want {
			return errors.New(service + " " + slices)
		}
		return nil
	})
}

// fallsAsleep waits until the service has no pods and says why.
func (c cluster) fallsAsleep() {
	c.Helper()
	begun := time.Now()
	c.waitForPods("sleeper-predictor", 0)
	c.eventually("words for it", func() error {
		if told := c.condition("sleeper", "ScaledToZero"); !strings.HasPrefix(told, "True") {
			return errors.New(told)
		}
		return nil
	})
	c.Logf("at zero after %.1f s: %s", time.Since(begun).Seconds(), c.condition("sleeper", "ScaledToZero"))
}

// patient waits for pods that have to come first.
var patient = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// wakesUnderMany asks many times at once and wants every answer.
func (c cluster) wakesUnderMany(t target, many int) {
	c.Helper()
	var all sync.WaitGroup
	failed := make(chan error, many)
	begun := time.Now()
	for range many {
		all.Go(func() {
			if _, err := t.ask(c.Context(), patient); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	close(failed)
	c.Logf("from zero under %d clients: all answered after %.1f s, %d failed", many, time.Since(begun).Seconds(), len(failed))
	for err := range failed {
		c.Errorf("from zero: %v", err)
	}
}

// openActivator installs the chart's activator, which decides quickly here, until the part ends.
func (c cluster) openActivator() {
	c.Helper()
	repository, tag, _ := strings.Cut(c.managerImage(), ":")
	objects, err := chart.Render(filepath.Join(root, "charts/modelplane"), chart.Release{Values: map[string]any{
		"image": map[string]any{"repository": repository, "tag": tag},
		"activator": map[string]any{"enabled": true, "stableWindow": "5s", "panicWindow": "2s", "idle": "5s",
			"resources": map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}}},
	}})
	if err != nil {
		c.Fatal(err)
	}
	var manifests []any
	for _, o := range objects {
		if o.GetLabels()["app.kubernetes.io/component"] == "activator" {
			manifests = append(manifests, o.Object)
		}
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": manifests})
	file := filepath.Join(c.TempDir(), "activator.json")
	if err := errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil || len(manifests) == 0 {
		c.Fatalf("%d objects: %v", len(manifests), err)
	}
	c.mustKubectl("apply", "-f", file)
	c.Cleanup(func() { c.undo("delete", "-f", file) })
	c.mustKubectl("rollout", "status", "deployment/modelplane-activator", "-n", managerNamespace, "--timeout=5m")
	c.mustKubectl(autoscalerIs(`{"activator": "modelplane-activator"}`)...)
	c.Cleanup(func() { c.undo(autoscalerIs(`{}`)...) })
}

// autoscalerIs is what kubectl is told to change the platform's configuration.
func autoscalerIs(settings string) []string {
	return []string{"patch", "configmap", "inferenceservice-config", "-n", managerNamespace, "--type=merge", "-p",
		fmt.Sprintf(`{"data":{"autoscaler":%q}}`, settings)}
}
