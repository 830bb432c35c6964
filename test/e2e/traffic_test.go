// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const trafficNamespace = "traffic"

// manifest is a file of testdata with its words in capitals replaced, as a path.
func (c cluster) manifest(name string, words ...string) string {
	c.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		c.Fatal(err)
	}
	path := filepath.Join(c.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.NewReplacer(words...).Replace(string(text))), 0o600); err != nil {
		c.Fatal(err)
	}
	return path
}

// image loads an image of the tests and returns what pods call it.
func (c cluster) image(name string) string {
	c.Helper()
	c.must(c.local, "load-image", "--dir", c.dir, filepath.Join(c.images, name+".oci.tar"))
	reference, err := os.ReadFile(filepath.Join(root, c.images, name+".reference"))
	if err != nil {
		c.Fatal(err)
	}
	return strings.TrimSpace(string(reference))
}

// models makes the models known in a namespace: those of the examples, and contrary, which is iris with the sign of its
// decision turned round, so that its answers tell it apart.
func (c cluster) models(namespace string) {
	c.Helper()
	models := filepath.Join(c.dir, "models")
	iris, err := os.ReadFile(filepath.Join(models, "iris", "model.onnx"))
	if err != nil {
		c.Fatal(err)
	}
	contrary := bytes.ReplaceAll(iris, []byte("ArgMax"), []byte("ArgMin"))
	if bytes.Equal(contrary, iris) {
		c.Fatal("the iris model has no ArgMax to turn round")
	}
	c.addModel("contrary", contrary)
	c.mustKubectl("apply", "-f", c.manifest("models.yaml", "NAMESPACE", namespace, "MODELS", models))
}

// addModel puts a model beside those of the cluster. Another row may read the same one meanwhile.
func (c cluster) addModel(name string, content []byte) {
	c.Helper()
	dir := filepath.Join(c.dir, "models", name)
	fresh := filepath.Join(c.TempDir(), name)
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(fresh, content, 0o644), os.Rename(fresh, filepath.Join(dir, "model.onnx")))
	if err != nil {
		c.Fatal(err)
	}
}

// traffic has the services of these tests ready. Whoever comes first brings them.
func (c cluster) traffic() {
	c.Helper()
	c.models(trafficNamespace)
	c.mustKubectl("apply", "-n", trafficNamespace, "-f", c.manifest("traffic.yaml", "TRANSFORMER", c.image("modelplane-transformer")))
	for _, service := range []string{"steady", "both", "named"} {
		c.upToDate(service)
	}
}

// upToDate waits until a service is ready as it was last asked for.
func (c cluster) upToDate(service string) {
	c.Helper()
	c.upToDateIn(trafficNamespace, service)
}

func (c cluster) upToDateIn(namespace, service string) {
	c.Helper()
	c.eventually(service+" up to date", func() error {
		state := c.mustKubectl("get", "inferenceservice", service, "-n", namespace, "-o",
			"jsonpath={.metadata.generation} {.status.observedGeneration} {.status.modelStatus.transitionStatus}")
		words := strings.Fields(state)
		if ready := c.conditionIn(namespace, service, "Ready"); len(words) != 3 || words[0] != words[1] || words[2] != "UpToDate" || !strings.HasPrefix(ready, "True") {
			return fmt.Errorf("%s, Ready %s", state, ready)
		}
		return nil
	})
}

// undo asks kubectl at the end of a part, when the part's own context has ended.
func (c cluster) undo(args ...string) {
	out, err := c.kubectlIn(context.Background(), args...)
	if err != nil {
		c.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// endTraffic removes what these tests have made, and waits for it.
func (c cluster) endTraffic() {
	c.undo("delete", "namespace", trafficNamespace, "--timeout=5m")
	c.undo("delete", "persistentvolume", "models-"+trafficNamespace, "--timeout=5m")
}

func (c cluster) clusterIP(service string) string {
	c.Helper()
	return c.mustKubectl("get", "service", service, "-n", trafficNamespace, "-o", "jsonpath={.spec.clusterIP}")
}

func (c cluster) irisClasses() []int {
	c.Helper()
	return c.classes("iris")
}

// classes are those that the rows of an example are known to belong to.
func (c cluster) classes(example string) []int {
	c.Helper()
	var known struct{ Classes []int }
	data, err := os.ReadFile(filepath.Join(root, "examples/onnx", example, "classes.json"))
	if err := errors.Join(err, json.Unmarshal(data, &known)); err != nil || len(known.Classes) == 0 {
		c.Fatalf("no classes to compare with: %v", err)
	}
	return known.Classes
}

func (c cluster) irisQuestion() []byte {
	c.Helper()
	body, err := os.ReadFile(filepath.Join(root, "examples/onnx/iris/request-v1.json"))
	if err != nil {
		c.Fatal(err)
	}
	return body
}

func (c cluster) steady() target {
	c.Helper()
	return target{
		url:  "http://" + c.clusterIP("steady-predictor") + "/v1/models/steady:predict",
		body: c.irisQuestion(), from: c.flowers(),
	}
}

// change alters a service of the traffic namespace.
func (c cluster) change(service, patch string) {
	c.Helper()
	c.mustKubectl("patch", "inferenceservice", service, "-n", trafficNamespace, "--type=merge", "-p", patch)
}

// killManager takes the manager away without notice.
func (c cluster) killManager() {
	c.Helper()
	c.mustKubectl("delete", "pods", "-l", "app.kubernetes.io/name=modelplane", "-n", managerNamespace, "--force", "--grace-period=0", "--wait=false")
}

// pods of a Deployment that answer, as name and address.
func (c cluster) pods(deployment string) map[string]string {
	c.Helper()
	out := c.mustKubectl("get", "pods", "-n", trafficNamespace, "-l", "app=isvc."+deployment, "-o",
		`jsonpath={range .items[?(@.status.containerStatuses[0].ready==true)]}{.metadata.name} {.status.podIP}{"\n"}{end}`)
	pods := map[string]string{}
	for _, line := range strings.Split(out, "\n") {
		if name, address, found := strings.Cut(line, " "); found {
			pods[name] = address
		}
	}
	return pods
}

// waitForPods waits until a Deployment has exactly so many pods and none that goes.
func (c cluster) waitForPods(deployment string, want int) {
	c.Helper()
	c.eventually(fmt.Sprintf("%d pods of %s", want, deployment), func() error {
		all := c.mustKubectl("get", "pods", "-n", trafficNamespace, "-l", "app=isvc."+deployment, "-o", "name")
		if got := len(strings.Fields(all)); got != want || len(c.pods(deployment)) != want {
			return fmt.Errorf("there are %d, and %d answer", got, len(c.pods(deployment)))
		}
		return nil
	})
}

var served = regexp.MustCompile(`modelplane_onnx_requests_total\{code="200",model="\w+",protocol="v1"\} (\d+)`)

// servedBy is how many requests a pod has answered, by its own count.
func (c cluster) servedBy(address string) int {
	metrics, err := c.get("http://" + address + ":8080/metrics")
	if err != nil {
		return 0
	}
	found := served.FindStringSubmatch(metrics)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		c.Error(err)
	}
	return n
}

// condition of a service, as status, reason and message.
func (c cluster) condition(service, name string) string {
	c.Helper()
	return c.conditionIn(trafficNamespace, service, name)
}

func (c cluster) conditionIn(namespace, service, name string) string {
	c.Helper()
	return c.mustKubectl("get", "inferenceservice", service, "-n", namespace, "-o",
		fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)]['status','reason','message']}`, name))
}

// nothingIsLost changes a service in every way under constant load, and takes the manager and the node's agent away in
// the middle.
func (c cluster) nothingIsLost() {
	c.traffic()
	load := c.startLoad(c.steady())
	load.next("iris", 20)

	c.change("steady", `{"spec":{"predictor":{"minReplicas":3}}}`)
	c.killManager()
	c.waitForPods("steady-predictor", 3)
	c.eventually("answers from all three", func() error {
		for name, address := range c.pods("steady-predictor") {
			if n := c.servedBy(address); n < 5 {
				return fmt.Errorf("%s gave %d answers", name, n)
			}
		}
		return nil
	})

	c.nodeAgentRestarts()
	load.next("iris", 20)

	c.change("steady", `{"spec":{"predictor":{"minReplicas":1}}}`)
	c.killManager()
	c.waitForPods("steady-predictor", 1)

	c.change("steady", `{"spec":{"predictor":{"model":{"storageUri":"pvc://models/contrary"}}}}`)
	c.eventually("the first new pod", func() error {
		updated := c.mustKubectl("get", "deployment", "steady-predictor", "-n", trafficNamespace, "-o", "jsonpath={.status.updatedReplicas}")
		if updated == "" || updated == "0" {
			return errors.New("none yet")
		}
		return nil
	})
	c.killManager()
	c.mustKubectl("rollout", "status", "deployment/steady-predictor", "-n", trafficNamespace, "--timeout=5m")
	c.waitForPods("steady-predictor", 1)
	load.next("contrary", 20)
	load.nothingLost("scaling out and in, a new model, a node agent that restarts, and three managers killed")
	c.upToDate("steady")
}

// nodeAgentRestarts kills the kubelet and has it started again. Pods stay as they are.
func (c cluster) nodeAgentRestarts() {
	c.Helper()
	before := c.podsAsTheyAre()
	c.kill("kubelet")
	c.must(c.local, "up", "--quiet", "--dir", c.dir)
	if after := c.podsAsTheyAre(); after != before {
		c.Errorf("pods were\n%s\nand are\n%s", before, after)
	}
}

// podsAsTheyAre shows which pods run models, and how often they were started.
func (c cluster) podsAsTheyAre() string {
	c.Helper()
	out := c.mustKubectl("get", "pods", "-n", trafficNamespace, "--sort-by=.metadata.name", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[*].restartCount} {.status.containerStatuses[*].ready}{"\n"}{end}`)
	lines := strings.Split(out, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// stopsAndResumes takes the pods of a service away and brings them back.
func (c cluster) stopsAndResumes() {
	c.traffic()
	c.mustKubectl("annotate", "inferenceservice", "both", "-n", trafficNamespace, "serving.kserve.io/stop=true")
	c.eventually("no pods", func() error {
		if left := c.mustKubectl("get", "pods", "-n", trafficNamespace, "-l", "app=isvc.both-predictor", "-o", "name"); left != "" {
			return errors.New(left)
		}
		return nil
	})
	c.eventually("a condition that says so", func() error {
		if told := c.condition("both", "Stopped"); !strings.HasPrefix(told, "True Stopped") {
			return errors.New(told)
		}
		return nil
	})
	if told := c.condition("both", "Ready"); !strings.Contains(told, "Remove the annotation serving.kserve.io/stop to start it") {
		c.Errorf("Ready does not say how to go on: %s", told)
	}
	c.mustKubectl("annotate", "inferenceservice", "both", "-n", trafficNamespace, "serving.kserve.io/stop-")
	c.mustKubectl("wait", "-n", trafficNamespace, "--for=condition=Ready", "--timeout=5m", "inferenceservice/both")
	c.grpcAnswers()
	if told := c.condition("both", "Stopped"); !strings.HasPrefix(told, "False") {
		c.Errorf("Stopped: %s", told)
	}
}

// transformerStandsInFront asks with the transformer's words and gets its words.
func (c cluster) transformerStandsInFront() {
	c.traffic()
	species := []string{"setosa", "versicolor", "virginica"}
	var want []string
	for _, class := range c.irisClasses() {
		want = append(want, species[class])
	}
	var rows struct{ Instances [][4]float64 }
	if err := json.Unmarshal(c.irisQuestion(), &rows); err != nil {
		c.Fatal(err)
	}
	var flowers []map[string][]float64
	for _, row := range rows.Instances {
		flowers = append(flowers, map[string][]float64{"sepal": row[:2], "petal": row[2:]})
	}
	body, err := json.Marshal(map[string]any{"flowers": flowers})
	if err != nil {
		c.Fatal(err)
	}
	named := target{
		url: "http://" + c.clusterIP("named-transformer") + "/v1/models/named:predict", body: body,
		from: func(answer []byte) (string, error) {
			var got struct{ Names []string }
			if err := json.Unmarshal(answer, &got); err != nil || !slices.Equal(got.Names, want) {
				return "", fmt.Errorf("it says %s, want %v", answer, want)
			}
			return "transformer", nil
		},
	}
	c.firstAnswer(named)
	before := c.servedByAll("named-predictor")
	const questions = 40
	n := c.count(named, questions)
	if n.answers["transformer"] != questions {
		c.Errorf("want %d answers from the transformer; %v", questions, n)
	}
	if asked := c.servedByAll("named-predictor") - before; asked != questions {
		c.Errorf("the predictor was asked %d times for %d questions", asked, questions)
	}
}

func (c cluster) servedByAll(deployment string) int {
	c.Helper()
	sum := 0
	for _, address := range c.pods(deployment) {
		sum += c.servedBy(address)
	}
	return sum
}
