// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/modelplane/modelplane/internal/testkit/onnxmodel"
)

const (
	meshNamespace = "e2e-mesh"
	manyModels    = 200 // as Predictors
	someServices  = 10  // of them once more, as InferenceServices
	weights       = 1 << 20
	fitInPod      = 20
)

// mesh is a namespace with many models on two pods.
type mesh struct {
	cluster
	web  *webServer
	pods []string // addresses
}

// meshPageIsTrue does what docs/modelmesh.md says.
func (c cluster) meshPageIsTrue() {
	port := c.freePort()
	c.follow("docs/modelmesh.md", "python3", "service/modelmesh-serving 8008", "service/modelmesh-serving "+port+":8008",
		"localhost:8008", "localhost:"+port)
}

// meshServesMany has five times as many models as fit into the memory of two pods. Each of them answers over gRPC and REST,
// also after a pod was killed; what cannot be loaded says why; and pods that nobody needs end, until somebody needs them.
func (c cluster) meshServesMany() {
	m := &mesh{cluster: c}
	m.Cleanup(func() {
		if m.Failed() {
			m.explain()
		}
	})
	m.open()
	m.timed("200 models are there", func() { m.register(0, manyModels) })
	m.timed("all of them answer", func() { m.allAnswer() })
	m.timed("failures are told", m.failuresAreTold)
	m.timed("a pod is killed", m.survivesAPod)
	m.timed("pods go and come back", m.scalesToZero)
	c.mustKubectl("delete", "namespace", meshNamespace, "--wait=false")
}

func (m *mesh) timed(what string, do func()) {
	m.Helper()
	start := time.Now()
	do()
	m.Logf("%s: %.1f s", what, time.Since(start).Seconds())
}

func line(n int) onnxmodel.Line {
	return onnxmodel.Line{Slope: float32(n + 1), Intercept: float32(1000 * n), Weights: weights}
}

func predictorName(n int) string { return fmt.Sprintf("line-%03d", n) }
func serviceName(n int) string   { return fmt.Sprintf("service-%03d", n) }

// open puts the models on a web server and brings the runtime.
func (m *mesh) open() {
	m.Helper()
	host := m.mustKubectl("get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	m.web = m.serve(host)
	size := 0
	for n := range manyModels {
		file := line(n).File()
		size = len(file)
		m.web.put("/models/"+predictorName(n)+".onnx", file)
	}
	m.web.put("/models/text.onnx", []byte("this is no model"))
	image := m.mustKubectl("get", "clusterservingruntime", "modelplane-onnx-mesh", "-o", "jsonpath={.spec.containers[0].image}")
	m.mustKubectl("apply", "-f", m.manifest("mesh.yaml", "${WEB}", m.web.Listener.Addr().String(), "${IMAGE}", image,
		"${CAPACITY}", fmt.Sprint(2*size*fitInPod), "${SIZE}", fmt.Sprint(2*size)))
}

// predictor in the manifest's words. path is on the web server.
func predictor(name, runtime, format, path string) map[string]any {
	spec := map[string]any{"modelType": map[string]any{"name": format}, "storage": map[string]any{"key": "web", "path": path}}
	if runtime != "" {
		spec["runtime"] = map[string]any{"name": runtime}
	}
	return map[string]any{
		"apiVersion": "serving.kserve.io/v1alpha1", "kind": "Predictor", "metadata": map[string]any{"name": name, "namespace": meshNamespace}, "spec": spec,
	}
}

func meshService(name, path string) map[string]any {
	return map[string]any{
		"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService",
		"metadata": map[string]any{
			"name": name, "namespace": meshNamespace, "annotations": map[string]any{"serving.kserve.io/deploymentMode": "ModelMesh"},
		},
		"spec": map[string]any{"predictor": map[string]any{"model": map[string]any{
			"modelFormat": map[string]any{"name": "onnx"}, "runtime": "small", "storage": map[string]any{"key": "web", "path": path},
		}}},
	}
}

// apply lets a few do it at once: each waits for the answer about one object before it sends the next.
func (m *mesh) apply(objects ...any) {
	m.Helper()
	const some = 30
	var all sync.WaitGroup
	for part := range slices.Chunk(objects, some) {
		raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": part})
		path := filepath.Join(m.TempDir(), "objects.json")
		if err := errors.Join(err, os.WriteFile(path, raw, 0o600)); err != nil {
			m.Fatal(err)
		}
		all.Go(func() {
			if _, err := m.admittedKubectl("apply", "--server-side", "-f", path); err != nil {
				m.Error(err)
			}
		})
	}
	all.Wait()
	if m.Failed() {
		m.FailNow()
	}
}

// register makes Predictors, and InferenceServices of the first of them, and waits until all of them can be asked.
func (m *mesh) register(from, to int) {
	m.Helper()
	var objects []any
	for n := from; n < to; n++ {
		objects = append(objects, predictor(predictorName(n), "small", "onnx", "models/"+predictorName(n)+".onnx"))
		if n < someServices {
			objects = append(objects, meshService(serviceName(n), "models/"+predictorName(n)+".onnx"))
		}
	}
	m.apply(objects...)
	// kubectl wait would watch one after the other.
	m.eventually("all models ready", func() error {
		out, err := m.kubectl("get", "predictors,inferenceservices", "-n", meshNamespace, "-o",
			`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		var waiting []string
		lines := strings.Split(out, "\n")
		for _, line := range lines {
			if !strings.HasSuffix(line, " True") {
				waiting = append(waiting, line)
			}
		}
		if len(waiting) > 0 || len(lines) < len(objects) {
			return fmt.Errorf("%d of %d are not, the first of them: %q", len(waiting), len(lines), waiting[:min(len(waiting), 5)])
		}
		return nil
	})
	m.findPods()
}

// remove deletes objects and waits until none is left. kubectl delete would watch one after the other.
func (m *mesh) remove(what ...string) {
	m.Helper()
	m.mustKubectl(append([]string{"delete", "-n", meshNamespace, "--wait=false"}, what...)...)
	look := []string{"get", "-n", meshNamespace, "--ignore-not-found", "-o", "name"}
	for _, arg := range what {
		if arg != "--all" {
			look = append(look, arg)
		}
	}
	m.eventually("what was deleted is gone", func() error {
		out, err := m.kubectl(look...)
		if err == nil && out == "" {
			return nil
		}
		return errors.Join(err, fmt.Errorf("%d are left: %.300s", len(strings.Fields(out)), out))
	})
}

// explain says what there is to see when something is not as it should be.
func (m *mesh) explain() {
	for _, args := range [][]string{
		{"get", "pods", "-n", meshNamespace, "-o", "wide"},
		{"get", "predictors", "-n", meshNamespace},
		{"get", "predictors", "-n", meshNamespace, "-o", "jsonpath={.items[0].status}"},
		{"logs", "-n", meshNamespace, "-l", "modelmesh-service", "--all-containers", "--tail=15", "--prefix"},
		{"logs", "-n", managerNamespace, "deployment/modelplane", "--tail=20"},
	} {
		out, err := m.kubectlIn(context.Background(), args...) // the part's own context may have ended
		m.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// findPods waits for two pods that take requests, and notes where they are.
func (m *mesh) findPods() {
	m.Helper()
	m.eventually("two pods", func() error {
		out, err := m.kubectl("get", "endpoints", "modelmesh-serving", "-n", meshNamespace, "-o", "jsonpath={.subsets[*].addresses[*].ip}")
		lines := strings.Split(out, "\n") // a warning may stand before it
		if m.pods = strings.Fields(lines[len(lines)-1]); err == nil && len(m.pods) != 2 {
			err = fmt.Errorf("there are %v", m.pods)
		}
		return err
	})
}

// allAnswer asks every model over gRPC and over REST, at one pod or the other.
func (m *mesh) allAnswer() {
	m.Helper()
	names := map[string]int{}
	for n := range manyModels {
		names[predictorName(n)] = n
		if n < someServices {
			names[serviceName(n)] = n
		}
	}
	m.answer(names)
}

func (m *mesh) answer(names map[string]int) {
	m.Helper()
	var conns []*grpc.ClientConn
	for _, pod := range m.pods {
		conn, err := grpc.NewClient(pod+":8033", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(wire{})))
		if err != nil {
			m.Fatal(err)
		}
		m.Cleanup(func() { _ = conn.Close() })
		conns = append(conns, conn)
	}
	work := make(chan string)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for name := range work {
				n := names[name]
				m.right(name, n, func() (float32, error) { return overGRPC(m.Context(), conns[n%len(conns)], name, 3) })
				m.right(name, n, func() (float32, error) { return overREST(m.Context(), m.pods[(n+1)%len(m.pods)], name, 3) })
			}
		})
	}
	for name := range names {
		work <- name
	}
	close(work)
	all.Wait()
	if m.Failed() {
		m.FailNow()
	}
}

// right tries for a while: when more models are asked for at once than have room, one of them has to wait.
func (m *mesh) right(name string, n int, ask func() (float32, error)) {
	ctx, cancel := context.WithTimeout(m.Context(), patience)
	defer cancel()
	for {
		got, err := ask()
		if err == nil && got != line(n).At(3) {
			m.Errorf("%s says %v, want %v", name, got, line(n).At(3))
			return
		}
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			m.Errorf("%s: %v", name, err)
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// overGRPC asks for one number.
func overGRPC(ctx context.Context, conn *grpc.ClientConn, model string, x float32) (float32, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	tensor := protowire.AppendString(protowire.AppendTag(nil, fieldName, protowire.BytesType), onnxmodel.Input)
	tensor = protowire.AppendString(protowire.AppendTag(tensor, fieldType, protowire.BytesType), "FP32")
	tensor = protowire.AppendVarint(protowire.AppendTag(tensor, fieldShape, protowire.VarintType), 1)
	message := protowire.AppendString(protowire.AppendTag(nil, fieldModel, protowire.BytesType), model)
	message = protowire.AppendBytes(protowire.AppendTag(message, fieldInputs, protowire.BytesType), tensor)
	message = protowire.AppendBytes(protowire.AppendTag(message, fieldRawInputs, protowire.BytesType), binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)))
	var answer []byte
	if err := conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelInfer", message, &answer); err != nil {
		return 0, err
	}
	raw, err := rawOutput(answer)
	if err != nil || len(raw) != 4 {
		return 0, fmt.Errorf("%d bytes of output: %w", len(raw), err)
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(raw)), nil
}

func overREST(ctx context.Context, pod, model string, x float32) (float32, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	question := fmt.Sprintf(`{"inputs": [{"name": %q, "datatype": "FP32", "shape": [1], "data": [%v]}]}`, onnxmodel.Input, x)
	out, err := answer(ctx, http.MethodPost, "http://"+pod+":8008/v2/models/"+model+"/infer", strings.NewReader(question))
	if err != nil {
		return 0, err
	}
	var got struct{ Outputs []struct{ Data []float32 } }
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Outputs) != 1 || len(got.Outputs[0].Data) != 1 {
		return 0, fmt.Errorf("%s: %w", out, err)
	}
	return got.Outputs[0].Data[0], nil
}

// failuresAreTold: what is wrong is said in the Predictor, and one that is deleted is gone for clients. Where memory is full, a
// new model is loaded when somebody asks for it, and not before.
func (m *mesh) failuresAreTold() {
	conn, err := grpc.NewClient(m.pods[0]+":8033", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(wire{})))
	if err != nil {
		m.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	m.apply(
		predictor("no-such-path", "small", "onnx", "models/nowhere.onnx"), predictor("no-model", "small", "onnx", "models/text.onnx"),
		predictor("no-runtime", "", "crystal-ball", "models/"+predictorName(0)+".onnx"), predictor("no-such-runtime", "large", "onnx", "models/"+predictorName(0)+".onnx"),
	)
	for name, want := range map[string][]string{
		"no-such-path":    {"ModelLoadFailed", "nowhere.onnx"},
		"no-model":        {"ModelLoadFailed", "text.onnx"},
		"no-runtime":      {"NoSupportingRuntime", ""},
		"no-such-runtime": {"RuntimeNotRecognized", ""},
	} {
		m.eventually(name+" says why", func() error {
			if _, err := overGRPC(m.Context(), conn, name, 1); err == nil {
				m.Fatalf("%s answers", name)
			}
			out, err := m.kubectl("get", "predictor", name, "-n", meshNamespace, "-o",
				`jsonpath={.status.available} {.status.activeModelState} {.status.lastFailureInfo.reason} {.status.conditions[?(@.type=="Ready")].status} {.status.lastFailureInfo.message}`)
			if err == nil && (!strings.HasPrefix(out, "false FailedToLoad "+want[0]+" False ") || !strings.Contains(out, want[1])) {
				err = fmt.Errorf("it says %q, want %v", out, want)
			}
			return err
		})
	}
	m.brokenUpdate(conn)
	const gone = manyModels - 1
	m.remove("predictor", predictorName(gone), "no-such-path", "no-model", "no-runtime", "no-such-runtime")
	m.eventually("a deleted model is not found", func() error {
		_, err := overGRPC(m.Context(), conn, predictorName(gone), 1)
		if status.Code(err) != codes.NotFound {
			return fmt.Errorf("over gRPC: %w", err)
		}
		if _, err = overREST(m.Context(), m.pods[0], predictorName(gone), 1); err == nil || !strings.Contains(err.Error(), "404") {
			return fmt.Errorf("over REST: %w", err)
		}
		return nil
	})
	m.apply(predictor(predictorName(gone), "small", "onnx", "models/"+predictorName(gone)+".onnx"))
}

// brokenUpdate: a Predictor that is changed to what is no model says so, and what is loaded of it goes on answering.
func (m *mesh) brokenUpdate(conn *grpc.ClientConn) {
	const n = 5
	name := predictorName(n)
	m.right(name, n, func() (float32, error) { return overGRPC(m.Context(), conn, name, 3) }) // one that nobody has loaded is not kept
	for _, step := range []struct{ path, says string }{
		{"models/text.onnx", "true BlockedByFailedLoad FailedToLoad ModelLoadFailed"},
		{"models/" + name + ".onnx", "true UpToDate"},
	} {
		m.apply(predictor(name, "small", "onnx", step.path))
		m.eventually(name+" to say "+step.says, func() error {
			m.right(name, n, func() (float32, error) { return overGRPC(m.Context(), conn, name, 3) })
			out, err := m.kubectl("get", "predictor", name, "-n", meshNamespace, "-o",
				`jsonpath={.status.available} {.status.transitionStatus} {.status.targetModelState} {.status.lastFailureInfo.reason}`)
			if err == nil && strings.TrimSpace(out) != step.says {
				err = fmt.Errorf("it says %q", out)
			}
			return err
		})
	}
}

// survivesAPod: what the pod had is loaded by others, and models keep answering meanwhile.
func (m *mesh) survivesAPod() {
	before := m.pods
	victim := m.mustKubectl("get", "pods", "-n", meshNamespace, "--field-selector=status.podIP="+before[0], "-o", "jsonpath={.items[0].metadata.name}")
	m.mustKubectl("delete", "pod", victim, "-n", meshNamespace, "--force", "--grace-period=0")
	m.pods = before[1:]
	some := map[string]int{}
	for n := 0; n < manyModels; n += 10 {
		some[predictorName(n)] = n
	}
	m.answer(some)
	m.eventually("another pod", func() error {
		m.findPods()
		for _, pod := range m.pods {
			if pod == before[0] {
				return errors.New("the killed pod is still listed")
			}
		}
		return nil
	})
	m.allAnswer()
}

// scalesToZero: without models there are no pods, and the first one brings them back.
func (m *mesh) scalesToZero() {
	m.remove("predictors,inferenceservices", "--all")
	m.eventually("no pods", func() error {
		out, err := m.kubectl("get", "deployment", "modelmesh-serving-small", "-n", meshNamespace, "-o", "jsonpath={.spec.replicas}")
		if err == nil && out != "0" {
			err = fmt.Errorf("%s are asked for", out)
		}
		return err
	})
	m.register(3, 4)
	m.answer(map[string]int{predictorName(3): 3, serviceName(3): 3})
}
