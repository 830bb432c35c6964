// SPDX-License-Identifier: Apache-2.0

package predictors_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/modelplane/modelplane/cmd/modelplane/domains"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/checkout"
)

// moment is when the plan was made.
var moment = regexp.MustCompile(`time: "[^"]*"`)

// TestPlanned: what a person is told of models without a cluster.
func TestPlanned(t *testing.T) {
	testkit.Golden(t, "testdata/planned", planned)
}

func planned(t *testing.T, in []byte) []byte {
	t.Helper()
	c := cli.NewPlanCommand(domains.NewPlanner)
	var out bytes.Buffer
	c.SetIn(bytes.NewReader(in))
	c.SetOut(&out)
	c.SetArgs([]string{"-f", "-"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return moment.ReplaceAll(out.Bytes(), []byte("time: NOW"))
}

// pods of a mesh in the namespace of what names none.
const pods = `
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: default, name: mesh-1, labels: {modelmesh-service: modelmesh-serving, kubernetes.io/service-name: modelmesh-serving}}
addressType: IPv4
ports: [{name: grpc, port: 8033}]
endpoints: [{addresses: [10.0.0.1]}]
`

// asked is a model that the mesh would be asked for.
var asked = regexp.MustCompile(`(?m)^# call set-model: modelmesh-serving in namespace default: ([a-z-]+) as model ([a-z-]+)__(ksp|isvc)-[0-9a-f]{10} of type mt:`)

// TestSamples: what users of the archived project have in their repositories becomes a model of the mesh.
func TestSamples(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(checkout.Manifests(t, "modelmesh"), "example-*.yaml"))
	if len(files) == 0 {
		t.Fatal("there are no models among the manifests of users")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out := planned(t, append(text, pods...))
		if found := asked.FindSubmatch(out); len(found) == 0 || string(found[1]) != string(found[2]) {
			t.Errorf("%s becomes\n%s", filepath.Base(file), out)
		}
	}
}
