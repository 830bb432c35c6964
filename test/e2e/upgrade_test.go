// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// upgradeTouchesNoModel replaces the manager by one of another version, which stays. Models go on as they are.
func (c cluster) upgradeTouchesNoModel() {
	c.traffic()
	c.Cleanup(c.endTraffic)
	c.waitForPods("steady-predictor", 1)
	load := c.startLoad(c.steady())
	models, manager := c.modelsAsTheyAre(), c.managerImage()
	*c.version = "v0.0.0-another"
	c.up()
	if now := c.managerImage(); now == manager {
		c.Errorf("the manager is still %s", now)
	}
	c.Logf("the manager was %s and is %s", manager, c.managerImage())
	c.mustKubectl("rollout", "status", "deployment/modelplane", "-n", managerNamespace, "--timeout=5m")
	c.newManagerLooks()
	load.next("iris", 20)
	if now := c.modelsAsTheyAre(); now != models {
		c.Errorf("models were\n%s\nand are\n%s", models, now)
	}
	load.nothingLost("an upgrade of the manager")
}

// newManagerLooks takes something away from every service. When all of it is there again, the manager has been at each.
func (c cluster) newManagerLooks() {
	c.Helper()
	routes := func() string { return c.mustKubectl("get", "httproutes", "-n", trafficNamespace, "-o", "name") }
	before := routes()
	if before == "" {
		c.Fatal("there is nothing to take away")
	}
	c.mustKubectl("delete", "httproutes", "--all", "-n", trafficNamespace)
	c.eventually("the routes", func() error {
		if now := routes(); now != before {
			return fmt.Errorf("there are %q of %q", now, before)
		}
		return nil
	})
}

// modelsAsTheyAre shows the pods and Deployments of all models: which they are, how often they were started, changed.
func (c cluster) modelsAsTheyAre() string {
	c.Helper()
	return c.podsAsTheyAre() + "\n" + c.mustKubectl("get", "deployments", "-n", trafficNamespace, "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} generation {.metadata.generation}{"\n"}{end}`)
}

func (c cluster) managerImage() string {
	c.Helper()
	return c.mustKubectl("get", "deployment", "modelplane", "-n", managerNamespace, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
}

// podImage is what models are fetched with.
func (c cluster) podImage() string {
	c.Helper()
	var config struct{ Image string }
	text := c.mustKubectl("get", "configmap", "inferenceservice-config", "-n", managerNamespace, "-o", "jsonpath={.data.storageInitializer}")
	if err := json.Unmarshal([]byte(text), &config); err != nil || !strings.HasPrefix(config.Image, "modelplane-pod:") {
		c.Fatalf("models are fetched with %q (%v)", config.Image, err)
	}
	return config.Image
}

// scratchIsQuick measures what a person waits for, everything being built: from nothing to the model's answer.
func (c cluster) scratchIsQuick() {
	c.must(c.local, "down", "--dir", c.dir)
	*c.version = ""
	if err := os.Unsetenv("GOGC"); err != nil { // as users start it
		c.Fatal(err)
	}
	const limit = 3 * time.Minute
	start := time.Now()
	c.up()
	c.modelAnswers()
	took := time.Since(start)
	c.Logf("from nothing to the first prediction in %.1f s; what runs beside the pods:\n%s", took.Seconds(), c.must(c.local, "status", "--dir", c.dir))
	if took > limit {
		c.Errorf("that is more than %s", limit)
	}
}

// installsElsewhere takes the cluster for one that somebody else runs and that has lost its manager: KUBECONFIG names it,
// and the installer has another place for a cluster of its own, which it must not start.
func (c cluster) installsElsewhere() {
	image, programs, place := c.managerImage(), map[string]int{}, filepath.Join(c.TempDir(), "state")
	for _, name := range processes {
		programs[name] = c.pid(name)
	}
	pod := c.podImage()
	c.mustKubectl("delete", "namespace", managerNamespace, "--timeout=5m")
	out := c.must("env", "KUBECONFIG="+filepath.Join(c.dir, "kubeconfig"), c.installer, "--local", c.local, "--dir", place,
		"--image", image, "--pod-image", pod)
	if !strings.Contains(out, "none is started here") {
		c.Errorf("it does not say what it does:\n%s", out)
	}
	if now := c.managerImage(); now != image {
		c.Errorf("the manager is %s, want %s", now, image)
	}
	if now := c.podImage(); now != pod {
		c.Errorf("models are fetched by %s, want %s", now, pod)
	}
	c.eventually("webhooks answer: a pod is ready a moment before its Service leads to it", func() error {
		_, err := c.kubectl("apply", "--dry-run=server", "-f", "test/e2e/testdata/accepted.yaml")
		return err
	})
	c.badManifestIsRefused()
	c.modelAnswers()
	if _, err := os.Stat(place); !errors.Is(err, fs.ErrNotExist) {
		c.Errorf("%s: %v", place, err)
	}
	for name, was := range programs {
		if now := c.pid(name); now != was {
			c.Errorf("%s was process %d and is %d", name, was, now)
		}
	}
}
