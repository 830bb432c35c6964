// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// nothingIsLostAtTheDoor rolls out a new model, restarts the gateway's controller and its proxy, and kills managers, under load.
func (c cluster) nothingIsLostAtTheDoor() {
	d := c.frontDoor()
	d.followEndpoints("one-predictor")
	load := d.startLoad(d.to("one"))
	load.next("iris", 20)

	d.change("one", `{"spec":{"predictor":{"model":{"storageUri":"pvc://models/contrary"}}}}`)
	d.killManager()
	d.mustKubectl("rollout", "status", "deployment/one-predictor", "-n", frontNamespace, "--timeout=5m")
	load.next("contrary", 40)

	d.mustKubectl("rollout", "restart", "deployment/envoy-gateway", "-n", envoyNamespace)
	d.mustKubectl("rollout", "status", "deployment/envoy-gateway", "-n", envoyNamespace, "--timeout=5m")
	load.next("contrary", 40)

	d.proxyRestarts()
	d.killManager()
	load.next("contrary", 40)
	d.change("one", `{"spec":{"predictor":{"model":{"storageUri":"pvc://models/iris"}}}}`)
	d.mustKubectl("rollout", "status", "deployment/one-predictor", "-n", frontNamespace, "--timeout=5m")
	d.upToDateIn(frontNamespace, "one")
	load.next("iris", 40)
	load.nothingLost("two rollouts, a gateway and its proxy that restart, and two managers killed")
}

// followEndpoints tells, when the test fails, when which pods were behind a Service: what a proxy did is explained by that or by nothing else.
func (d door) followEndpoints(service string) {
	d.Helper()
	ctx, end := context.WithCancel(d.Context())
	cmd := exec.CommandContext(ctx, d.local, "kubectl", "--kubeconfig", filepath.Join(d.dir, "kubeconfig"), "get", "endpointslices", "--watch",
		"-n", frontNamespace, "-l", "kubernetes.io/service-name="+service, "-o",
		`jsonpath={range .endpoints[*]}{.addresses[0]} serving {.conditions.serving} terminating {.conditions.terminating}, {end}{"\n"}`)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		end()
		d.Fatal(err)
	}
	var seen []string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			seen = append(seen, time.Now().Format("15:04:05.000 ")+lines.Text())
		}
	}()
	d.Cleanup(func() {
		end()
		<-ended
		_ = cmd.Wait()
		if d.Failed() {
			d.Logf("behind %s:\n%s", service, strings.Join(seen, "\n"))
		}
	})
}

// proxyRestarts rolls Envoy out anew, as an upgrade does.
func (d door) proxyRestarts() {
	d.Helper()
	before := d.proxies()
	d.mustKubectl("rollout", "restart", envoyDeployment, "-n", envoyNamespace)
	d.otherProxies(before, 1)
}

const ofProxies = "gateway.envoyproxy.io/owning-gateway-name=" + gateName

// proxies are the pods of Envoy, those that end included.
func (d door) proxies() []string {
	d.Helper()
	return strings.Fields(d.mustKubectl("get", "pods", "-n", envoyNamespace, "-l", ofProxies, "-o", "jsonpath={.items[*].metadata.name}"))
}

// otherProxies waits until there are so many pods of Envoy that take requests, and none that goes or is among some that were there before.
func (d door) otherProxies(before []string, want int) {
	d.Helper()
	d.eventually(fmt.Sprintf("%d other proxies", want), func() error {
		now := d.proxies()
		if len(now) != want || slices.ContainsFunc(now, func(name string) bool { return slices.Contains(before, name) }) {
			return fmt.Errorf("there are %v, and were %v", now, before)
		}
		if led := d.ledTo(envoyNamespace, now); len(led) != want {
			return fmt.Errorf("requests are led to %v of %v", led, now)
		}
		return nil
	})
}

func (d door) killProxies(names ...string) {
	d.Helper()
	d.mustKubectl(append([]string{"delete", "pods", "-n", envoyNamespace, "--force", "--grace-period=0", "--wait=false"}, names...)...)
}

// proxyIsKilled takes the only Envoy away without notice: requests fail until the next one is there, and none after that.
func (c cluster) proxyIsKilled() {
	d := c.frontDoor()
	load := d.startLoad(d.to("one"))
	load.next("iris", 20)
	before, began := d.proxies(), time.Now()
	d.killProxies(before...)
	d.otherProxies(before, 1)
	load.next("iris", 20)
	gap := time.Since(began)
	during := len(load.soFar().failures)
	load.next("iris", 40)
	after := load.stop()
	d.Logf("the only Envoy killed: answers again after %.1f s at the latest; %d of %d requests failed", gap.Seconds(), len(after.failures), after.total())
	for _, failure := range after.failures[during:] {
		d.Errorf("a request failed after the next proxy answered: %s", failure)
	}
	d.upToDateIn(frontNamespace, "one")
}

// twoProxiesShare has a second Envoy: both are evicted one after the other, and nobody notices. When one is killed, only
// what it was just handed is lost.
func (c cluster) twoProxiesShare() {
	d := c.frontDoor()
	d.mustKubectl("scale", envoyDeployment, "-n", envoyNamespace, "--replicas=2")
	d.Cleanup(func() { d.undo("scale", envoyDeployment, "-n", envoyNamespace, "--replicas=1") })
	d.otherProxies(nil, 2)
	load := d.startLoad(d.to("one"))
	load.next("iris", 20)
	before := d.proxies()
	d.evict(envoyNamespace, ofProxies)
	d.otherProxies(before, 2)
	load.next("iris", 20)
	load.nothingLost("two Envoys, both evicted")

	load = d.startLoad(d.to("one"))
	load.next("iris", 20)
	victim := d.proxies()[:1]
	d.killProxies(victim...)
	d.otherProxies(victim, 2)
	load.next("iris", 40)
	n := load.stop()
	d.Logf("one of two Envoys killed: %d of %d requests failed", len(n.failures), n.total())
	// What the one had, and what was sent there until its address was gone.
	if lost := len(n.failures); lost > n.total()/10 {
		d.Errorf("one of two Envoys killed: %v", n)
	}
}

// ledTo are those of some pods that Services lead to. A pod is ready a while before that on a machine with much to do.
func (c cluster) ledTo(namespace string, pods []string) []string {
	c.Helper()
	// A slice without endpoints has none to filter, at which a jsonpath fails.
	ready := strings.Fields(c.mustKubectl("get", "endpointslices", "-n", namespace, "-o",
		"go-template={{range .items}}{{range .endpoints}}{{if .conditions.ready}}{{with .targetRef}}{{.name}} {{end}}{{end}}{{end}}{{end}}"))
	return slices.DeleteFunc(slices.Clone(pods), func(name string) bool { return !slices.Contains(ready, name) })
}

// evict asks for the end of pods as whoever drains a node does: one after the other, as their budget allows and when requests are
// led to another, and waits until they are gone.
func (c cluster) evict(namespace, selector string) {
	c.Helper()
	pods := strings.Fields(c.mustKubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "jsonpath={.items[*].metadata.name}"))
	if len(pods) == 0 {
		c.Fatalf("no pods to evict in %s: %s", namespace, selector)
	}
	for _, pod := range pods {
		file := filepath.Join(c.TempDir(), pod+".json")
		text := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, pod, namespace)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			c.Fatal(err)
		}
		c.eventually("the eviction of "+pod, func() error {
			now := strings.Fields(c.mustKubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "jsonpath={.items[*].metadata.name}"))
			if others := slices.DeleteFunc(now, func(name string) bool { return name == pod }); len(c.ledTo(namespace, others)) == 0 {
				return fmt.Errorf("requests are led to none of %v", others)
			}
			out, err := c.kubectl("create", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+pod+"/eviction", "-f", file)
			if err != nil && !strings.Contains(out, "disruption budget") {
				c.Fatalf("evicting %s: %v\n%s", pod, err, out)
			}
			return err
		})
	}
	for _, pod := range pods {
		c.mustKubectl("wait", "-n", namespace, "--for=delete", "--timeout=5m", "pod/"+pod)
	}
}

// refusalsAreTold closes the Gateway to other namespaces and opens it again: services say so in its words.
func (c cluster) refusalsAreTold() {
	d := c.frontDoor()
	const path = "/spec/listeners/0/allowedRoutes/namespaces/from"
	d.patchGate(`[{"op":"replace","path":"` + path + `","value":"Same"}]`)
	again := `[{"op":"replace","path":"` + path + `","value":"All"}]`
	d.Cleanup(func() { d.undo(gatePatch(again)...) })
	d.conditionTells("False NotAllowedByListeners", "No listeners included by this parent ref allowed this attachment")
	if told := d.conditionIn(frontNamespace, "one", "IngressReady"); !strings.Contains(told, "Allow HTTPRoutes from namespace "+frontNamespace) {
		d.Errorf("the next step is missing: %s", told)
	}
	d.patchGate(again)
	d.conditionTells("True", "")
	d.all("after the refusal", d.to("one"), "iris", 8)
}

func (d door) conditionTells(begin, part string) {
	d.Helper()
	d.eventually("IngressReady "+begin, func() error {
		if told := d.conditionIn(frontNamespace, "one", "IngressReady"); !strings.HasPrefix(told, begin) || !strings.Contains(told, part) {
			return errors.New(told)
		}
		return nil
	})
}

// gatewayGoesAndComes deletes the Gateway and its controller, and installs them again, while services run.
func (c cluster) gatewayGoesAndComes() {
	d := c.frontDoor()
	saved := d.saveGate()
	pods := d.mustKubectl("get", "pods", "-n", frontNamespace, "--sort-by=.metadata.name", "-o", "jsonpath={.items[*].metadata.uid}")
	d.mustKubectl("scale", "deployment/envoy-gateway", "-n", envoyNamespace, "--replicas=0")
	d.mustKubectl("delete", "gateway", gateName, "-n", gateNamespace, "--timeout=5m")
	d.conditionTells("False GatewayMissing", "Create it, or name another one")
	d.mustKubectl("apply", "-f", saved)
	d.conditionTells("Unknown ParentStatusNotAvailable", "Check that a Gateway of that name exists and that its controller runs")
	d.mustKubectl("scale", "deployment/envoy-gateway", "-n", envoyNamespace, "--replicas=1")
	d.mustKubectl("wait", "-n", gateNamespace, "--for=condition=Programmed", "--timeout=5m", "gateway/"+gateName)
	d.conditionTells("True", "")
	d.all("after the gateway was installed again", d.to("one"), "iris", 40)
	if now := d.mustKubectl("get", "pods", "-n", frontNamespace, "--sort-by=.metadata.name", "-o", "jsonpath={.items[*].metadata.uid}"); now != pods {
		d.Errorf("pods were %s and are %s", pods, now)
	}
}

// saveGate is the Gateway as a file that can be applied.
func (d door) saveGate() string {
	d.Helper()
	var gate struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Spec       map[string]any `json:"spec"`
	}
	if err := json.Unmarshal([]byte(d.mustKubectl("get", "gateway", gateName, "-n", gateNamespace, "-o", "json")), &gate); err != nil {
		d.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": gate.APIVersion, "kind": gate.Kind, "spec": gate.Spec, "metadata": map[string]any{"name": gateName, "namespace": gateNamespace},
	})
	path := filepath.Join(d.TempDir(), "gateway.json")
	if err := errors.Join(err, os.WriteFile(path, raw, 0o600)); err != nil {
		d.Fatal(err)
	}
	return path
}

// endFrontDoor removes what these parts have made. What follows does not wait for it.
func (c cluster) endFrontDoor() {
	c.undo("delete", "namespace", frontNamespace, "--wait=false")
	c.undo("delete", "persistentvolume", "models-"+frontNamespace, "--wait=false")
}
