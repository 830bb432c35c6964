// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const managerNamespace = "modelplane-system"

func TestMachine(t *testing.T) {
	before := lookAtMachine(t)
	c := newCluster(t)
	t.Log("\n" + c.up())
	c.parts(t, []part{
		{"the node is ready", cluster.nodeIsReady},
		{"the manager is a pod of the restricted level", cluster.managerIsRestricted},
		{"definitions are served", cluster.definitionsAreServed},
		{"a good manifest is accepted", cluster.goodManifestIsAccepted},
		{"a bad manifest is refused through the Service", cluster.badManifestIsRefused},
		{"an old version is converted", cluster.oldVersionIsConverted},
		{"the model answers", cluster.modelAnswers},
		{"the gateway is there", cluster.gatewayIsThere},
		{"pods answer on addresses and names", cluster.podsAnswer},
		{"a second cluster is refused and leaves this one alone", cluster.secondClusterIsRefused},
	})
	// These mostly wait, and have nothing to do with each other.
	c.sideBySide(t, []row{
		{name: "experiments", parts: []part{
			{"the page about MLflow is true", cluster.mlflowPageIsTrue},
			{"MLflow keeps what was logged", cluster.mlflowKeepsRuns},
		}},
		{name: "first hour", parts: []part{
			{"the quick start answers", cluster.quickstartAnswers},
			{"the page about model registries is true", cluster.registryPageIsTrue},
		}},
		{name: "front door", parts: []part{
			{"a model answers at its URL over HTTP and gRPC", cluster.urlAnswers},
			{"components answer and time limits are kept", cluster.componentsAnswer},
			{"graphs answer", cluster.graphsAnswer},
			{"a graph outlives its pods and a missing service", cluster.graphOutlives},
			{"requests are logged and batched", cluster.requestsAreLoggedAndBatched},
		}},
		{name: "traffic", parts: []part{
			{"a transformer stands in front of the predictor", cluster.transformerStandsInFront},
			{"the model answers over gRPC", cluster.grpcAnswers},
			{"a service stops and resumes", cluster.stopsAndResumes},
		}},
		{name: "rollouts", parts: []part{
			{"broken rollouts are told", cluster.brokenRolloutsAreTold},
			{"the Python SDK waits for a generation", cluster.sdkWaitsForAGeneration},
		}},
		{name: "registry", parts: []part{
			{"a registry keeps models", cluster.registryKeepsModels},
		}},
		{name: "full disk", parts: []part{
			{"a registry without room says so", cluster.fullDiskIsTold},
		}},
		{name: "storages", parts: []part{
			{"models come from storages", cluster.modelsComeFromStorages},
			{"failures are explained", cluster.failuresAreExplained},
		}},
		{name: "beside the server", parts: []part{
			{"the agent logs and batches and brings models", cluster.agentWorks},
		}},
		{name: "many models", parts: []part{
			{"a mesh serves many models", cluster.meshServesMany},
			{"the page about ModelMesh is true", cluster.meshPageIsTrue},
		}},
		// What it says of time and of servers that are killed is about one gateway, and not about who else has the cores.
		{name: "models as a service", after: []string{"first hour", "front door", "traffic", "rollouts", "registry", "full disk", "storages", "beside the server", "many models"}, parts: []part{
			{"keys open models until their quota is used up", cluster.modelsAsAService},
		}},
		// These change settings of the whole platform and take the manager away, while others count what it says.
		{name: "platform", after: []string{"first hour", "front door", "traffic", "rollouts", "registry", "full disk", "storages", "beside the server", "many models", "models as a service"}, parts: []part{
			{"other domains and paths and TLS lead to a model", cluster.otherAddressesAnswer},
			{"a canary gets its share", cluster.canaryGetsItsShare},
			{"no request is lost at the gateway", cluster.nothingIsLostAtTheDoor},
			{"the proxy is killed", cluster.proxyIsKilled},
			{"two proxies share the requests", cluster.twoProxiesShare},
			{"a route is refused and then accepted", cluster.refusalsAreTold},
			{"the gateway is removed and installed again", cluster.gatewayGoesAndComes},
			{"the gateway's services end", cluster.endFrontDoor},
			{"services sleep and wake", cluster.servicesSleep},
			{"no request is lost", cluster.nothingIsLost},
		}},
	})
	// These take the manager or the node away.
	c.parts(t, []part{
		{"an upgrade touches no model", cluster.upgradeTouchesNoModel},
		{"a second up changes nothing", cluster.secondUpChangesNothing},
		{"killed programs come back", cluster.killedProgramsComeBack},
		{"a killed manager comes back", cluster.killedManagerComesBack},
		{"a kept cluster is resumed", cluster.keptClusterIsResumed},
		{"a cluster from scratch is ready soon", cluster.scratchIsQuick},
		{"another cluster gets the chart and nothing else", cluster.installsElsewhere},
		{"down leaves nothing", func(c cluster) { c.downLeavesNothing(before) }},
	})
}

// part of the test.
type part struct {
	name string
	test func(cluster)
}

// parts are run one after the other, as long as they pass: each builds on those before it.
func (c cluster) parts(t *testing.T, parts []part) {
	t.Helper()
	for _, part := range parts {
		if !t.Run(part.name, func(t *testing.T) { part.test(c.in(t)) }) {
			t.FailNow()
		}
	}
}

// row of parts that build on each other. It begins when some other rows have ended.
type row struct {
	name  string
	after []string
	parts []part
}

// sideBySide runs several rows at once and ends when all have ended. One that failed does not stop what comes after them.
func (c cluster) sideBySide(t *testing.T, rows []row) {
	t.Helper()
	ended := map[string]chan struct{}{} // of the rows that were asked for
	t.Run("side by side", func(t *testing.T) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				end := make(chan struct{})
				ended[row.name] = end
				defer close(end)
				t.Parallel() // goes on when all of them have come here
				for _, other := range row.after {
					if other, asked := ended[other]; asked {
						<-other
					}
				}
				c.parts(t, row.parts)
			})
		}
	})
}

func (c cluster) nodeIsReady() {
	out := c.mustKubectl("get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{end}`)
	if out != "local True" {
		c.Errorf("nodes: %q", out)
	}
	c.must(c.local, "status", "--dir", c.dir)
}

func (c cluster) managerIsRestricted() {
	level := c.mustKubectl("get", "namespace", managerNamespace, "-o", `jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}`)
	if level != "restricted" {
		c.Errorf("the namespace enforces %q", level)
	}
	c.mustKubectl("rollout", "status", "deployment/modelplane", "-n", managerNamespace, "--timeout=10s")
}

func (c cluster) definitionsAreServed() {
	out := c.mustKubectl("get", "crds", "-o", "name")
	files, err := filepath.Glob(filepath.Join(root, "charts/modelplane/files/crds/*_*.yaml"))
	if err != nil || len(files) == 0 {
		c.Fatalf("no definitions to compare with: %v", err)
	}
	if got := strings.Count(out, "customresourcedefinition.apiextensions.k8s.io/"); got < len(files) {
		c.Errorf("%d definitions are served, want %d:\n%s", got, len(files), out)
	}
}

func (c cluster) goodManifestIsAccepted() {
	c.mustKubectl("apply", "-f", "test/e2e/testdata/accepted.yaml")
	if out := c.mustKubectl("get", "models", "-n", "default"); !strings.Contains(out, "accepted") {
		c.Errorf("kubectl get models does not show it:\n%s", out)
	}
	c.mustKubectl("delete", "-f", "test/e2e/testdata/accepted.yaml")
}

// badManifestIsRefused applies the manifest that only the manager can refuse.
func (c cluster) badManifestIsRefused() {
	c.Helper()
	hooks := c.mustKubectl("get", "validatingwebhookconfiguration", "modelplane", "-o", "jsonpath={.webhooks[*].clientConfig.service.name}")
	if !strings.Contains(hooks, "modelplane-webhook") {
		c.Errorf("webhooks are called by %q", hooks)
	}
	out, err := c.kubectl("apply", "-f", "test/e2e/testdata/refused.yaml")
	if err == nil {
		c.Fatalf("a misspelt field was accepted:\n%s", out)
	}
	if want := "spec.predictor.containers[0].livenessProbe.httpGett: unknown field"; !strings.Contains(out, want) {
		c.Fatalf("refused without naming the field %q:\n%s", want, out)
	}
}

func (c cluster) oldVersionIsConverted() {
	c.mustKubectl("apply", "-f", "test/e2e/testdata/converted.yaml")
	out := c.mustKubectl("get", "modelregistries.v1beta1.modelregistry.opendatahub.io", "converted", "-n", "default",
		"-o", "jsonpath={.apiVersion} {.spec.postgres.host}")
	if want := "modelregistry.opendatahub.io/v1beta1 db.example.com"; out != want {
		c.Errorf("read back %q, want %q", out, want)
	}
	// Its database is nowhere, so that its pods would only get in the way of who counts restarts.
	c.mustKubectl("delete", "-f", "test/e2e/testdata/converted.yaml", "--timeout=5m")
	c.eventually("the pods of the converted registry are gone", func() error {
		left, err := c.kubectl("get", "pods", "-n", "default", "-l", "app=converted", "-o", "name")
		if err == nil && left != "" {
			err = fmt.Errorf("there are %s", left)
		}
		return err
	})
}

// modelAnswers asks the model of `make up`, which comes from a volume.
func (c cluster) modelAnswers() {
	c.Helper()
	c.irisAnswers("default", "iris")
}

// irisAnswers compares with the classes that the examples are known to belong to.
func (c cluster) irisAnswers(namespace, name string) {
	c.Helper()
	known := c.irisClasses()
	c.eventually("the right classes", func() error {
		out, err := c.post(c.addressIn(namespace, name+"-predictor")+"/v1/models/"+name+":predict", "examples/onnx/iris/request-v1.json")
		if err != nil {
			return err
		}
		var got struct{ Predictions []int }
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			return err
		}
		if !slices.Equal(got.Predictions, known) {
			return fmt.Errorf("the model says %v, want %v", got.Predictions, known)
		}
		return nil
	})
}

// podsAnswer asks two replicas of a server from this machine, and from one of them by name.
func (c cluster) podsAnswer() {
	c.mustKubectl("apply", "-f", c.manifest("echo.yaml", "IMAGE", c.image("modelplane-echo")))
	c.mustKubectl("rollout", "status", "deployment/echo", "-n", "default", "--timeout=5m")
	c.echoAnswers()
}

func (c cluster) echoAnswers() {
	c.Helper()
	address, seen := c.address("echo"), map[string]bool{}
	c.eventually("answers from both replicas", func() error {
		name, err := c.get(address)
		if err != nil {
			return err
		}
		if seen[name] = true; len(seen) < 2 {
			return fmt.Errorf("only %v answered", seen)
		}
		return nil
	})
	for _, name := range []string{"echo", "echo.default.svc.cluster.local"} {
		c.eventually("an answer by the name "+name, func() error {
			out, err := c.get(address + "/ask?url=" + url.QueryEscape("http://"+name+"/"))
			if err == nil && !strings.HasPrefix(out, "echo-") {
				err = fmt.Errorf("it says %q", out)
			}
			return err
		})
	}
}

// secondClusterIsRefused: a machine is the node of one cluster. Who tries another is told, and cleaning up after it must
// not take the network away from the pods.
func (c cluster) secondClusterIsRefused() {
	another := filepath.Join(c.TempDir(), "state")
	if out, err := c.run(c.Context(), c.local, "up", "--dir", another); err == nil || !strings.Contains(out, "is the node of the cluster in "+c.dir) {
		c.Errorf("a second cluster: %v\n%s", err, out)
	}
	if out := c.must(c.local, "down", "--dir", another); !strings.Contains(out, "that of the cluster in "+c.dir+", which stays") {
		c.Errorf("it is not said that the node stays:\n%s", out)
	}
	c.echoAnswers()
}

// footprint is what must not change when nothing is to be done.
func (c cluster) footprint() map[string]string {
	c.Helper()
	all := map[string]string{
		"pods":     c.mustKubectl("get", "pods", "-A", "--field-selector=status.phase=Running", "-o", `jsonpath={range .items[*]}{.metadata.uid} {end}`),
		"restarts": c.mustKubectl("get", "pods", "-n", "default", "--field-selector=status.phase=Running", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].restartCount} {end}`),
		"releases": c.mustKubectl("get", "secrets", "-n", managerNamespace, "-l", "owner=helm", "-o", "name"),
	}
	for _, name := range processes {
		all[name] = fmt.Sprint(c.pid(name))
	}
	return all
}

func (c cluster) secondUpChangesNothing() {
	before := c.footprint()
	out := c.up()
	for name, was := range before {
		if now := c.footprint()[name]; now != was {
			c.Errorf("%s was %s and is %s\n%s", name, was, now, out)
		}
	}
}

// killedProgramsComeBack kills one after the other: pods go on, and up repairs. Only the manager may begin again, when
// it could not keep its lease without an API server.
func (c cluster) killedProgramsComeBack() {
	before, echo := c.footprint(), c.address("echo")
	for _, victims := range [][]string{{"kubelet"}, {"containerd"}, {"kube-proxy", "coredns"}, {"etcd", "kube-apiserver"}} {
		for _, name := range victims {
			c.kill(name)
		}
		if _, err := c.get(echo); err != nil {
			c.Errorf("pods do not answer while %v is down: %v", victims, err)
		}
		if out, err := c.run(c.Context(), c.local, "status", "--dir", c.dir); err == nil {
			c.Errorf("status without %v:\n%s", victims, out)
		}
		c.must(c.local, "up", "--dir", c.dir)
		c.must(c.local, "status", "--dir", c.dir)
	}
	c.echoAnswers()
	c.modelAnswers()
	for _, what := range []string{"pods", "restarts"} {
		if now := c.footprint()[what]; now != before[what] {
			c.Errorf("%s were %s and are %s", what, before[what], now)
		}
	}
}

// killedManagerComesBack removes the manager's pod without notice. Nothing may slip in while nobody looks.
func (c cluster) killedManagerComesBack() {
	c.killManager()
	if out, err := c.kubectl("apply", "-f", "test/e2e/testdata/refused.yaml"); err == nil {
		c.Errorf("accepted without a manager:\n%s", out)
	}
	c.modelAnswers()
	c.up()
	c.badManifestIsRefused()
}

func (c cluster) keptClusterIsResumed() {
	c.must(c.local, "down", "--keep", "--dir", c.dir)
	c.up()
	c.echoAnswers()
	c.modelAnswers()
}

func (c cluster) downLeavesNothing(before machine) {
	c.Log("\n" + c.must(c.local, "down", "--dir", c.dir))
	after := lookAtMachine(c.T)
	for what, now := range after {
		for _, one := range now {
			if !slices.Contains(before[what], one) {
				c.Errorf("%s: %s is left", what, one)
			}
		}
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, fs.ErrNotExist) {
		c.Errorf("the directory is still there: %v", err)
	}
}
