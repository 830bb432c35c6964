// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// option changes a runtime in a table.
type option func(*metav1.ObjectMeta, *v1alpha1.ServingRuntimeSpec)

func rtSpec(name string, options ...option) (metav1.ObjectMeta, v1alpha1.ServingRuntimeSpec) {
	meta, spec := metav1.ObjectMeta{Name: name}, v1alpha1.ServingRuntimeSpec{}
	for _, o := range options {
		o(&meta, &spec)
	}
	return meta, spec
}

func sr(name string, options ...option) v1alpha1.ServingRuntime {
	meta, spec := rtSpec(name, options...)
	meta.Namespace = "team"
	return v1alpha1.ServingRuntime{ObjectMeta: meta, Spec: spec}
}

func csr(name string, options ...option) v1alpha1.ClusterServingRuntime {
	meta, spec := rtSpec(name, options...)
	return v1alpha1.ClusterServingRuntime{ObjectMeta: meta, Spec: spec}
}

// format offers a format such as "sklearn" or "sklearn/1"; priority 0 is none.
func format(text string, auto bool, priority int32) option {
	return func(_ *metav1.ObjectMeta, s *v1alpha1.ServingRuntimeSpec) {
		f := v1alpha1.SupportedModelFormat{AutoSelect: &auto}
		name, version, ok := strings.Cut(text, "/")
		f.Name = name
		if ok {
			f.Version = &version
		}
		if priority > 0 {
			f.Priority = &priority
		}
		s.SupportedModelFormats = append(s.SupportedModelFormats, f)
	}
}

func speaking(protocols ...v1beta1.InferenceServiceProtocol) option {
	return func(_ *metav1.ObjectMeta, s *v1alpha1.ServingRuntimeSpec) { s.ProtocolVersions = protocols }
}

func off(_ *metav1.ObjectMeta, s *v1alpha1.ServingRuntimeSpec)  { s.Disabled = new(true) }
func many(_ *metav1.ObjectMeta, s *v1alpha1.ServingRuntimeSpec) { s.MultiModel = new(true) }
func workers(_ *metav1.ObjectMeta, s *v1alpha1.ServingRuntimeSpec) {
	s.WorkerSpec = &v1alpha1.WorkerSpec{}
}

func made(at int64) option {
	return func(m *metav1.ObjectMeta, _ *v1alpha1.ServingRuntimeSpec) {
		m.CreationTimestamp = metav1.NewTime(time.Unix(at, 0))
	}
}

// modelOf wants a format such as "sklearn/1", a protocol and a runtime; the
// latter two may be empty.
func modelOf(text, protocol, runtime string) *v1beta1.ModelSpec {
	m := &v1beta1.ModelSpec{}
	name, version, ok := strings.Cut(text, "/")
	m.ModelFormat.Name = name
	if ok {
		m.ModelFormat.Version = &version
	}
	if protocol != "" {
		m.ProtocolVersion = new(v1beta1.InferenceServiceProtocol(protocol))
	}
	if runtime != "" {
		m.Runtime = &runtime
	}
	return m
}

func TestSelect(t *testing.T) {
	const v1, v2, grpc1, grpc2 = v1beta1.ProtocolV1, v1beta1.ProtocolV2, v1beta1.ProtocolGRPCV1, v1beta1.ProtocolGRPCV2
	sk := format("sklearn/1", true, 0)
	for _, test := range []struct {
		name      string
		model     *v1beta1.ModelSpec
		multiNode bool
		ns        []v1alpha1.ServingRuntime
		cluster   []v1alpha1.ClusterServingRuntime
		want      string // the name, with a star for a cluster's
		reason    v1beta1.FailureReason
		says      []string
	}{{
		name: "a name is looked up in the namespace first", model: modelOf("sklearn", "", "a"),
		ns: []v1alpha1.ServingRuntime{sr("b", sk), sr("a", sk)}, cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk)},
		want: "a",
	}, {
		name: "then in the cluster", model: modelOf("sklearn", "", "a"),
		ns: []v1alpha1.ServingRuntime{sr("b", sk)}, cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk)},
		want: "a*",
	}, {
		name: "a name that nobody has", model: modelOf("sklearn", "", "sklaern"),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk), csr("b", sk, off), csr("c", format("onnx", true, 0))},
		reason:  v1beta1.RuntimeNotRecognized, says: []string{`"sklaern"`, "served by a.", "spec.predictor.model.runtime"},
	}, {
		name: "a disabled name", model: modelOf("sklearn", "", "a"),
		ns:     []v1alpha1.ServingRuntime{sr("a", sk, off)},
		reason: v1beta1.RuntimeDisabled, says: []string{"ServingRuntime a is disabled", "spec.disabled"},
	}, {
		name: "a disabled one of the namespace hides that of the cluster", model: modelOf("sklearn", "", "a"),
		ns: []v1alpha1.ServingRuntime{sr("a", sk, off)}, cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk)},
		reason: v1beta1.RuntimeDisabled,
	}, {
		name: "a name with another protocol", model: modelOf("sklearn", "v2", "a"),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk, speaking(v1, grpc1))},
		reason:  v1beta1.NoSupportingRuntime, says: []string{"protocol v2", "only v1, grpc-v1"},
	}, {
		name: "a name without a protocol asks for none", model: modelOf("sklearn", "", "a"),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk, speaking(v2))},
		want:    "a*",
	}, {
		name: "a name with another format", model: modelOf("onnx", "", "a"),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk)},
		reason:  v1beta1.NoSupportingRuntime, says: []string{"format onnx", "only sklearn 1"},
	}, {
		name: "a name with another version", model: modelOf("sklearn/2", "", "a"),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk)},
		reason:  v1beta1.NoSupportingRuntime, says: []string{"sklearn version 2"},
	}, {
		name: "a name binds where automatic choice would not", model: modelOf("sklearn/1", "", "a"),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", format("sklearn/1", false, 0), many, workers)},
		want:    "a*",
	}, {
		name: "an empty name is none", model: func() *v1beta1.ModelSpec {
			m := modelOf("sklearn", "", "")
			m.Runtime = new("")
			return m
		}(),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk)}, want: "a*",
	}, {
		name: "the namespace before the cluster, whatever the priority", model: modelOf("sklearn", "", ""),
		ns:      []v1alpha1.ServingRuntime{sr("a", format("sklearn", true, 1))},
		cluster: []v1alpha1.ClusterServingRuntime{csr("b", format("sklearn", true, 9))},
		want:    "a",
	}, {
		name: "the higher priority", model: modelOf("sklearn", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", format("sklearn", true, 1)), csr("b", format("sklearn", true, 2)), csr("c", sk)},
		want:    "b*",
	}, {
		name: "priority before protocol", model: modelOf("sklearn", "v2", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", format("sklearn", true, 1), speaking(v1, v2)), csr("b", format("sklearn", true, 2), speaking(v2))},
		want:    "b*",
	}, {
		name: "priority is that of the first entry of the name", model: modelOf("sklearn/2", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{
			csr("a", format("sklearn/1", true, 1), format("sklearn/2", true, 9)),
			csr("b", format("sklearn/2", true, 2)),
		},
		want: "b*",
	}, {
		name: "a first entry without priority counts as none", model: modelOf("sklearn", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{
			csr("a", format("sklearn/1", true, 0), format("sklearn/2", true, 9)),
			csr("b", format("sklearn/2", true, 1)),
		},
		want: "b*",
	}, {
		name: "the plainer protocol", model: modelOf("sklearn", "v2", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk, speaking(v2, grpc2)), csr("b", sk, speaking(grpc1, v2, v1)), csr("c", sk)},
		want:    "b*",
	}, {
		name: "a list of protocols before none", model: modelOf("sklearn", "grpc-v2", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk), csr("b", sk, speaking(grpc2))},
		want:    "b*",
	}, {
		name: "the newer one", model: modelOf("sklearn", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk, made(1)), csr("b", sk, made(3)), csr("c", sk, made(2))},
		want:    "b*",
	}, {
		name: "then the name", model: modelOf("sklearn", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("c", sk, made(1)), csr("a", sk, made(1)), csr("b", sk, made(1))},
		want:    "a*",
	}, {
		name: "only what is offered", model: modelOf("sklearn", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", format("sklearn", false, 9)), csr("b", format("sklearn", true, 1))},
		want:    "b*",
	}, {
		name: "an offer of another version does not count", model: modelOf("sklearn/1", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", format("sklearn/1", false, 0), format("sklearn/2", true, 0))},
		reason:  v1beta1.NoSupportingRuntime, says: []string{"a does not offer it"},
	}, {
		name: "a version needs a version", model: modelOf("sklearn/1", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", format("sklearn", true, 0))},
		reason:  v1beta1.NoSupportingRuntime, says: []string{"a serves sklearn."},
	}, {
		name: "protocol v1 unless one is given", model: modelOf("sklearn", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk, speaking(v2))},
		reason:  v1beta1.NoSupportingRuntime, says: []string{"over protocol v1", "a speaks v2"},
	}, {
		name: "without protocols any will do", model: modelOf("vLLM", "v2", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", format("vLLM/1", true, 1))},
		want:    "a*",
	}, {
		name: "not a disabled one", model: modelOf("sklearn", "", ""),
		ns: []v1alpha1.ServingRuntime{sr("a", sk, off)}, cluster: []v1alpha1.ClusterServingRuntime{csr("b", sk)},
		want: "b*",
	}, {
		name: "not one for many models", model: modelOf("sklearn", "", ""),
		ns: []v1alpha1.ServingRuntime{sr("a", sk, many)}, cluster: []v1alpha1.ClusterServingRuntime{csr("b", sk)},
		want: "b*",
	}, {
		name: "one with workers for several nodes", model: modelOf("sklearn", "", ""), multiNode: true,
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk), csr("b", sk, workers)},
		want:    "b*",
	}, {
		name: "and only then", model: modelOf("sklearn", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk, workers), csr("b", sk)},
		want:    "b*",
	}, {
		name: "names are compared as they are", model: modelOf("SKLearn", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk)},
		reason:  v1beta1.NoSupportingRuntime, says: []string{"format SKLearn", "The only runtime does not know", "modelFormat.name"},
	}, {
		name: "nobody knows the format", model: modelOf("other", "", ""),
		cluster: []v1alpha1.ClusterServingRuntime{csr("a", sk), csr("b", sk)},
		reason:  v1beta1.NoSupportingRuntime, says: []string{"None of the 2 runtimes knows", "modelFormat.name"},
	}, {
		name: "no runtimes at all", model: modelOf("sklearn", "", ""),
		reason: v1beta1.NoSupportingRuntime, says: []string{"no runtimes at all"},
	}, {
		name: "the three nearest, nearest first", model: modelOf("sklearn/1", "", ""), multiNode: true,
		cluster: []v1alpha1.ClusterServingRuntime{
			csr("version", format("sklearn/2", true, 0), format("onnx/7", true, 0)),
			csr("protocol", sk, speaking(v2)),
			csr("asleep", sk, workers, off),
			csr("alone", sk),
			csr("other", format("onnx", true, 0)),
		},
		reason: v1beta1.NoSupportingRuntime,
		says: []string{"on several nodes",
			"Nearest: asleep is disabled; alone has no workerSpec; protocol speaks v2."},
	}} {
		t.Run(test.name, func(t *testing.T) {
			got, failure := Select(test.model, test.multiNode, Candidates{Namespaced: test.ns, Cluster: test.cluster})
			if failure != nil {
				checkFailure(t, failure, test.reason, test.says)
				return
			}
			name := got.Name
			if got.Cluster {
				name += "*"
			}
			if name != test.want {
				t.Errorf("chose %q, want %q (failure %q)", name, test.want, test.reason)
			}
		})
	}
}

// checkFailure looks for the reason and for words in the message.
func checkFailure(t *testing.T, got *Failure, reason v1beta1.FailureReason, says []string) {
	t.Helper()
	if got.Reason != reason {
		t.Errorf("reason %q, want %q: %s", got.Reason, reason, got.Message)
	}
	for _, s := range says {
		if !strings.Contains(got.Error(), s) {
			t.Errorf("message does not say %q:\n%s", s, got.Message)
		}
	}
	if len(got.Message) > 1000 {
		t.Errorf("message has %d bytes", len(got.Message))
	}
}

// TestSelectExplainsBriefly fills everything that a message quotes.
func TestSelectExplainsBriefly(t *testing.T) {
	long := strings.Repeat("é", 5000)
	var c Candidates
	for i := range 100 {
		c.Cluster = append(c.Cluster, csr(fmt.Sprintf("%s%d", long, i), format(long+"/"+long, true, 0),
			format(long+"/2", true, 0), speaking(v1beta1.InferenceServiceProtocol(long))))
	}
	for name, model := range map[string]*v1beta1.ModelSpec{
		"version":  modelOf(long+"/x"+long, "", ""),
		"protocol": modelOf(long+"/"+long, "v1", ""),
		"runtime":  modelOf(long, "", long),
		"named":    modelOf("x"+long, "", long+"7"),
		"spoken":   modelOf(long, "x"+long, long+"7"),
	} {
		t.Run(name, func(t *testing.T) {
			_, failure := Select(model, false, c)
			if failure == nil {
				t.Fatal("chose one")
			}
			if len(failure.Message) > 2500 {
				t.Errorf("message has %d bytes", len(failure.Message))
			}
			if strings.ToValidUTF8(failure.Message, "?") != failure.Message {
				t.Error("message is not UTF-8")
			}
		})
	}
}

func TestSelectReturnsTheWholeRuntime(t *testing.T) {
	made := csr("a", format("sklearn", true, 0), speaking("v1"))
	made.Annotations = map[string]string{v1beta1.AnnotationServerType: "sklearnserver"}
	got, failure := Select(modelOf("sklearn", "", ""), false, Candidates{Cluster: []v1alpha1.ClusterServingRuntime{made}})
	if failure != nil {
		t.Fatal(failure)
	}
	if !got.Cluster || got.Annotations[v1beta1.AnnotationServerType] != "sklearnserver" || len(got.Spec.ProtocolVersions) != 1 {
		t.Errorf("got %+v", got)
	}
	if got.String() != "ClusterServingRuntime a" {
		t.Errorf("called %q", got)
	}
}

func TestConcerns(t *testing.T) {
	sk := format("sklearn/1", false, 0)
	for _, test := range []struct {
		name  string
		model *v1beta1.ModelSpec
		obj   client.Object
		want  bool
	}{
		{"the named one", modelOf("sklearn", "", "a"), new(sr("a")), true},
		{"the named one of the cluster", modelOf("sklearn", "", "a"), new(csr("a")), true},
		{"another than the named one", modelOf("sklearn", "", "a"), new(sr("b", sk)), false},
		{"one that knows the format", modelOf("sklearn/2", "", ""), new(sr("a", sk, off)), true},
		{"one of the cluster that knows it", modelOf("sklearn/2", "", ""), new(csr("a", sk, many)), true},
		{"one that does not", modelOf("onnx", "", ""), new(csr("a", sk)), false},
		{"something else", modelOf("onnx", "", ""), &v1beta1.InferenceService{}, false},
	} {
		if got := Concerns(test.model)(test.obj); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestSelectCopiesLittle keeps the cost of a choice apart from the size of the
// runtimes that are looked at.
func TestSelectCopiesLittle(t *testing.T) {
	c := manyRuntimes(100)
	model := modelOf("f7", "", "")
	choose := func() {
		if _, failure := Select(model, false, c); failure != nil {
			t.Fatal(failure)
		}
	}
	if n := testing.AllocsPerRun(20, choose); n > 10 {
		t.Errorf("a choice among %d runtimes takes %.0f allocations", len(c.Cluster), n)
	}
}

func manyRuntimes(n int) Candidates {
	var c Candidates
	for i := range n {
		c.Cluster = append(c.Cluster, csr(fmt.Sprintf("r%d", i), format(fmt.Sprintf("f%d", i), true, 1)))
	}
	return c
}

func BenchmarkSelect(b *testing.B) {
	c := manyRuntimes(100)
	model := modelOf("f50", "", "")
	b.ReportAllocs()
	for b.Loop() {
		if _, failure := Select(model, false, c); failure != nil {
			b.Fatal(failure)
		}
	}
}
