// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
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
	c.mustKubectl("rollout", "status", "deployment/modelplane", "-n", managerNamespace, "--timeout=2m")
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
	ingresses := func() string { return c.mustKubectl("get", "ingresses", "-n", trafficNamespace, "-o", "name") }
	before := ingresses()
	if before == "" {
		c.Fatal("there is nothing to take away")
	}
	c.mustKubectl("delete", "ingresses", "--all", "-n", trafficNamespace)
	c.eventually("the Ingresses", func() error {
		if now := ingresses(); now != before {
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

// scratchIsQuick measures what a person waits for, everything being built: from nothing to the model's answer.
func (c cluster) scratchIsQuick() {
	c.must(c.local, "down", "--dir", c.dir)
	*c.version = ""
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
