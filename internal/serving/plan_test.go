// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/version"

	"github.com/modelplane/modelplane/internal/serving"
	"github.com/modelplane/modelplane/internal/serving/servingtest"
	"github.com/modelplane/modelplane/internal/testkit"
)

// kubernetes is a cluster of some version.
type kubernetes string

func (k *kubernetes) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: "v" + string(*k)}, nil
}

// TestPlan decides about manifests in files, without a cluster. What stands
// around them is in testdata/world.yaml. The front matter of a case may say
// "kubernetes: VERSION", the version of the cluster.
func TestPlan(t *testing.T) {
	testkit.Golden(t, "testdata/plan", func(t *testing.T, in []byte) []byte {
		cluster := kubernetes("1.36.0")
		if v := testkit.FrontMatter(in)["kubernetes"]; len(v) > 0 {
			cluster = kubernetes(v[0])
		}
		room := serving.New().WithKubernetes(&cluster)
		return servingtest.Plan(t, servingtest.Planner(t, room, room.Controllers()...), in)
	})
}
