// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"testing"
)

// Scheduler runs kube-scheduler until the test ends: pods are bound to the nodes
// that the API server knows. Nobody runs them there; a test that wants them to
// run brings something that plays the nodes.
func (c *Cluster) Scheduler(t testing.TB) *Program {
	t.Helper()
	return c.Program(t, "kube-scheduler", nil, c.processes.binary("kube-scheduler"),
		"--kubeconfig="+c.kubeconfig,
		"--leader-elect=false",
		// It serves nothing that a test would ask for.
		"--secure-port=0",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	)
}
