// SPDX-License-Identifier: Apache-2.0

package predictors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/engine/domaintest"
	"github.com/modelplane/modelplane/internal/modelmesh/client/meshtest"
	"github.com/modelplane/modelplane/internal/modelmesh/model"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/etcd"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	testkit.Main(m)
}

const (
	patience = 60 * time.Second
	quietFor = 700 * time.Millisecond
)

// around stands for the controller that looks after what is around the predictor of a service: it has a part of its status.
type around struct{}

func (around) Observe(context.Context, engine.Reader, *v1beta1.InferenceService) (struct{}, error) {
	return struct{}{}, nil
}

func (around) Plan(isvc *v1beta1.InferenceService, _ struct{}) engine.Plan {
	s := isvc.Status.DeepCopy()
	s.ObservedGeneration, s.DeploymentMode = isvc.Generation, cmp.Or(isvc.Annotations[v1beta1.AnnotationDeploymentMode], "Standard")
	if s.Components == nil {
		s.Components = map[v1beta1.ComponentType]v1beta1.ComponentStatusSpec{}
	}
	s.Components[v1beta1.TransformerComponent] = v1beta1.ComponentStatusSpec{URL: ptr.To("http://transformer")}
	s.Components[v1beta1.PredictorComponent] = v1beta1.ComponentStatusSpec{URL: ptr.To("http://not-its-own")}
	ready := corev1.ConditionFalse
	for _, c := range isvc.Status.Conditions {
		if c.Type == conditionPredictor {
			ready = c.Status
		}
	}
	s.Conditions = []v1beta1.Condition{{Type: "Ready", Status: ready}, {Type: "TransformerReady", Status: corev1.ConditionTrue}, {Type: conditionPredictor, Status: corev1.ConditionUnknown, Reason: "NotItsOwn"}}
	return engine.Plan{Status: s}
}

// bench is a cluster with a namespace that has a mesh.
type bench struct {
	*domaintest.Bench
	etcd *etcd.Server
	mesh *meshtest.Mesh

	mu   sync.Mutex
	last *Domain
}

func newBench(t *testing.T) *bench {
	t.Helper()
	cluster := testkit.Start(t)
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		if crd.Name == "inferenceservices.serving.kserve.io" || crd.Name == "predictors.serving.kserve.io" {
			cluster.InstallCRDs(t, crd)
		}
	}
	b := &bench{Bench: domaintest.New(t, cluster, scheme), etcd: etcd.Start(t)}
	b.Manager = charttest.RBAC(t, cluster, b.NS)
	b.enable(t, true)
	b.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "model-serving-etcd"}, Data: b.etcd.Secret("root")})
	b.mesh = meshtest.Start(t, b.etcd.Client, "/root/mm/"+service)
	b.pods(t, 1)
	return b
}

// enable sets the label of the namespace.
func (b *bench) enable(t testing.TB, on bool) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.NS}}
	b.Change(t, ns, func() {
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels["modelmesh-enabled"] = fmt.Sprint(on)
	})
}

// pods lets so many be ready.
func (b *bench) pods(t testing.TB, n int) {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: b.NS, Name: "mesh", Labels: map[string]string{"modelmesh-service": service, discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("grpc"), Port: ptr.To(int32(8033))}},
	}
	b.Delete(t, slice)
	for i := range n {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}})
	}
	slice.ResourceVersion = ""
	b.Create(t, slice)
}

// Run is a manager with our controllers beside the other one of services.
func (b *bench) Run(ctx context.Context, cfg *rest.Config) error {
	d := New(settingsOf(b.NS))
	d.mesh.DialWith(func(ctx context.Context, address string) (net.Conn, error) {
		if !strings.HasPrefix(address, "10.0.0.") {
			return nil, fmt.Errorf("%s was called", address)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", b.mesh.Address())
	})
	b.mu.Lock()
	b.last = d
	b.mu.Unlock()
	first := engine.For[*v1beta1.InferenceService, struct{}](around{}, engine.Spec{Name: "around", KnativeConditions: true})
	return domaintest.Run(ctx, cfg, scheme, append(d.Controllers(), first)...)
}

func (b *bench) manage(t testing.TB, cfg *rest.Config) (stop func()) {
	t.Helper()
	return testkit.Manage(t, func(ctx context.Context) error { return b.Run(ctx, cfg) })
}

// predictor is one whose model is at a path.
func (b *bench) predictor(name, path string) *v1alpha1.Predictor {
	p := &v1alpha1.Predictor{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}}
	p.Spec.Type.Name = "onnx"
	p.Spec.Storage = &v1alpha1.PredictorStorage{StorageSpec: v1beta1.StorageSpec{Path: &path}}
	return p
}

func (b *bench) isvc(name, path string) *v1beta1.InferenceService {
	isvc := &v1beta1.InferenceService{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.NS, Name: name, Annotations: map[string]string{v1beta1.AnnotationDeploymentMode: model.Mode},
	}}
	isvc.Spec.Predictor.Model = &v1beta1.ModelSpec{ModelFormat: v1beta1.ModelFormat{Name: "onnx"}}
	isvc.Spec.Predictor.Model.Storage = &v1beta1.ModelStorageSpec{StorageSpec: v1beta1.StorageSpec{Path: &path}}
	return isvc
}

// says is nil when a Predictor has a reason to be ready or not, and its newest model too.
func (b *bench) says(p *v1alpha1.Predictor, ready, latest string) error {
	if err := b.C.Get(context.Background(), kubeclient.ObjectKeyFromObject(p), p); err != nil {
		return err
	}
	r, l := meta.FindStatusCondition(p.Status.Conditions, ConditionReady), meta.FindStatusCondition(p.Status.Conditions, ConditionLatest)
	if r == nil || l == nil || r.Reason != ready || l.Reason != latest || r.ObservedGeneration != p.Generation {
		return fmt.Errorf("it says %+v", p.Status)
	}
	return nil
}

func (b *bench) wait(t testing.TB, p *v1alpha1.Predictor, ready, latest string) {
	t.Helper()
	testkit.Eventually(t, patience, p.Name+" to say "+ready+" and "+latest, func() error { return b.says(p, ready, latest) })
}

// records are the keys of the mesh in etcd, without their prefix.
func (b *bench) records() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	have, err := b.etcd.Client.Get(ctx, "/root/", prefixed, keysOnly)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, kv := range have.Kvs {
		out = append(out, strings.TrimPrefix(string(kv.Key), "/root/mm/"+service+"/"))
	}
	return out, nil
}

// TestPredictors: a life of a few Predictors, with what each step costs.
func TestPredictors(t *testing.T) {
	b := newBench(t)
	conditions := b.WatchConditions(t, v1alpha1.GroupVersion.WithKind("Predictor"), b.NS, testkit.AllowUnready(ConditionLatest), testkit.AllowFlap("Loaded", "Standby", "RuntimeUnhealthy", "ModelLoadFailed"))
	counter := testkit.NewCounter()
	stop := b.manage(t, counter.Wrap(b.Manager))
	const many = 30
	var all []*v1alpha1.Predictor
	for i := range many {
		all = append(all, b.predictor(fmt.Sprintf("iris-%d", i), "a/b.onnx"))
		b.Create(t, all[i])
	}
	for _, p := range all {
		b.wait(t, p, "Loaded", "Loaded")
	}
	if p := all[0]; !p.Status.Available || p.Status.GrpcEndpoint != "grpc://"+service+"."+b.NS+":8033" || p.Status.TotalCopies != 1 || len(p.Finalizers) != 1 {
		t.Errorf("%+v", p)
	}
	// That the last is loaded is told before the last question is asked, and the pause between two questions is a second.
	testkit.Rest(t, 3*quietFor, "the mesh to be asked no more", func() int { return b.mesh.Total() + counter.Writes() })
	calls, writes := b.mesh.Total(), counter.Snapshot().Writes()
	// A machine that gives nobody enough time has the odd question asked again and the odd step told. One more for each
	// Predictor would be a third or a quarter.
	const room = 20 // a twentieth
	if most := 3 * many; calls > most+most/room {
		t.Errorf("%d calls for %d Predictors: %v", calls, many, b.mesh.Calls())
	}
	if most := 4 * many; writes > most+most/room {
		t.Errorf("%d writes for %d Predictors:\n%s", writes, many, counter)
	}
	t.Logf("%d Predictors: %d calls %v, %d writes", many, calls, b.mesh.Calls(), writes)
	testkit.NoWrites(t, counter, quietFor, "when all are loaded")
	if now := b.mesh.Total(); now != calls {
		t.Errorf("%d calls when nothing happened", now-calls)
	}
	iris := all[0]

	t.Run("a wrong path is told from a model that is not loaded yet", func(t *testing.T) {
		held, wrong := b.predictor("held", meshtest.Held), b.predictor("wrong", meshtest.Missing)
		b.Create(t, held, wrong)
		b.wait(t, held, "Loading", "Loading")
		b.wait(t, wrong, "ModelLoadFailed", "ModelLoadFailed")
		f := wrong.Status.LastFailureInfo
		if wrong.Status.Available || f == nil || f.Location != meshtest.Pod || f.Time == nil || !strings.Contains(f.Message, meshtest.Missing) || wrong.Status.FailedCopies != 1 {
			t.Errorf("%+v", wrong.Status)
		}
		b.mesh.Release()
		b.wait(t, held, "Loaded", "Loaded")
		testkit.NoWrites(t, counter, quietFor, "when all is told")
		b.Delete(t, wrong)
		b.Gone(t, wrong, wrong.Name)
	})
	t.Run("a broken update leaves what was before", func(t *testing.T) {
		b.Change(t, iris, func() { iris.Spec.Storage.Path = ptr.To("b/" + meshtest.Missing) })
		b.wait(t, iris, "Loaded", string(v1alpha1.BlockedByFailedLoad))
		if s := iris.Status; s.TransitionStatus != v1alpha1.BlockedByFailedLoad || !s.Available || s.ActiveModelState != v1beta1.Loaded || s.TargetModelState != v1beta1.FailedToLoad {
			t.Errorf("%+v", s)
		}
		b.Change(t, iris, func() { iris.Spec.Path = "twice" })
		b.wait(t, iris, "Loaded", string(v1alpha1.InvalidPredictorSpec))
		b.Change(t, iris, func() { iris.Spec.Path, iris.Spec.Storage.Path = "", ptr.To("c/d.onnx") })
		b.wait(t, iris, "Loaded", "Loaded")
		if iris.Status.LastFailureInfo != nil || iris.Status.TransitionStatus != v1alpha1.UpToDate {
			t.Errorf("%+v", iris.Status)
		}
	})
	t.Run("what is evicted waits", func(t *testing.T) {
		m, _ := model.OfPredictor(iris)
		b.mesh.Evict(m.ID)
		b.wait(t, iris, "Standby", "Standby")
	})
	t.Run("a mesh that forgets is told again", func(t *testing.T) {
		b.mesh.Forget()
		testkit.Eventually(t, patience, "all names", func() error {
			if n := len(b.mesh.Names()); n != many+1 {
				return fmt.Errorf("%d names", n)
			}
			return nil
		})
		for _, p := range all {
			b.wait(t, p, "Standby", "Standby") // as nobody has asked it for anything
		}
	})
	// What is not told yet would be told after the restart.
	testkit.Rest(t, quietFor, "the mesh to be asked no more", func() int { return b.mesh.Total() + counter.Writes() })
	stop()
	restarted := testkit.NewCounter()
	before := b.mesh.Total()
	stop = b.manage(t, restarted.Wrap(b.Manager))
	t.Run("a restart asks once and writes nothing", func(t *testing.T) {
		testkit.Eventually(t, patience, "all to be asked for", func() error {
			if n := b.mesh.Total() - before; n < many+1 {
				return fmt.Errorf("%d calls", n)
			}
			return nil
		})
		testkit.NoWrites(t, restarted, quietFor, "after a restart")
		if n := b.mesh.Total() - before; n != many+1 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("the end", func(t *testing.T) {
		b.Delete(t, iris)
		b.Gone(t, iris, iris.Name)
		if slices.Contains(b.mesh.Names(), iris.Name) {
			t.Error("the mesh still has it")
		}
		b.pods(t, 0)
		b.wait(t, all[1], "RuntimeUnhealthy", "RuntimeUnhealthy")
		b.Delete(t, all[1])
		b.Gone(t, all[1], all[1].Name)
		have, err := b.records()
		if err != nil || slices.ContainsFunc(have, func(k string) bool { return strings.Contains(k, "/iris-1__") || strings.HasSuffix(k, "/iris-1") }) {
			t.Errorf("left are %v, %v", have, err)
		}
	})
	t.Run("a namespace without a mesh", func(t *testing.T) {
		b.pods(t, 1)
		b.wait(t, all[2], "Standby", "Standby")
		b.enable(t, false)
		b.wait(t, all[2], reasonNotEnabled, reasonNotEnabled)
		testkit.Eventually(t, patience, "the connection to end", func() error {
			if b.last.mesh.Connected(b.NS) {
				return errors.New("it is there")
			}
			return nil
		})
		b.Delete(t, all[2])
		b.Gone(t, all[2], all[2].Name)
	})
	stop()
	conditions.Stop(t)
}

// TestHomeless: a model waits for a pod that may load it, without a pause between its coming and the load.
func TestHomeless(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	words := "There are no running instances that meet the label requirements of type mt:onnx: [mt:onnx]"
	b.mesh.Homeless = func(string) string {
		mu.Lock()
		defer mu.Unlock()
		return words
	}
	b.manage(t, b.Manager)
	p := b.predictor("iris", "a")
	b.Create(t, p)
	b.wait(t, p, "RuntimeUnhealthy", "RuntimeUnhealthy")
	if p.Status.ActiveModelState != v1beta1.Loading || p.Status.Available {
		t.Errorf("%+v", p.Status)
	}
	when := p.Status.LastFailureInfo.Time
	mu.Lock()
	words = "There are no running instances that meet the label requirements of type _default: [_no_runtime]"
	mu.Unlock()
	b.wait(t, p, "NoSupportingRuntime", "NoSupportingRuntime")
	if when == nil || p.Status.LastFailureInfo.Time == nil {
		t.Errorf("%+v", p.Status)
	}
	mu.Lock()
	words = ""
	mu.Unlock()
	b.pods(t, 2)
	b.wait(t, p, "Loaded", "Loaded")
}

// TestSilent: a mesh that does not say when a load has ended is asked.
func TestSilent(t *testing.T) {
	b := newBench(t)
	b.mesh.Silent = true
	b.manage(t, b.Manager)
	p := b.predictor("iris", meshtest.Held)
	b.Create(t, p)
	b.wait(t, p, "Loading", "Loading")
	b.mesh.Release()
	b.wait(t, p, "Loaded", "Loaded")
	if n := b.mesh.Calls()["getVModelStatus"]; n == 0 || n > 10 {
		t.Errorf("%d questions", n)
	}
}

// TestServices: both controllers of one service say what is theirs, and neither undoes the other.
func TestServices(t *testing.T) {
	b := newBench(t)
	counter := testkit.NewCounter()
	b.manage(t, counter.Wrap(b.Manager))
	isvc, elsewhere := b.isvc("iris", "a"), b.isvc("other", "a")
	elsewhere.Annotations = nil
	b.Create(t, isvc, elsewhere)
	is := func(typ string, status corev1.ConditionStatus) error {
		if err := b.C.Get(context.Background(), kubeclient.ObjectKeyFromObject(isvc), isvc); err != nil {
			return err
		}
		if !slices.ContainsFunc(isvc.Status.Conditions, func(c v1beta1.Condition) bool { return c.Type == typ && c.Status == status }) {
			return fmt.Errorf("it says %+v", isvc.Status)
		}
		return nil
	}
	testkit.Eventually(t, patience, "the service to be ready", func() error { return is("Ready", corev1.ConditionTrue) })
	s := isvc.Status
	if s.URL == nil || *s.URL != "grpc://"+service+"."+b.NS+":8033" || s.ModelStatus.ModelRevisionStates.ActiveModelState != v1beta1.Loaded {
		t.Errorf("%+v", s)
	}
	if p, tr := s.Components[v1beta1.PredictorComponent], s.Components[v1beta1.TransformerComponent]; p.GrpcURL == nil || tr.URL == nil || *tr.URL != "http://transformer" {
		t.Errorf("components are %+v", s.Components)
	}
	testkit.NoWrites(t, counter, quietFor, "when both are done")
	leads := func(to string) {
		t.Helper()
		testkit.Eventually(t, patience, "the URL to be "+to, func() error {
			if err := b.C.Get(context.Background(), kubeclient.ObjectKeyFromObject(isvc), isvc); err != nil {
				return err
			}
			if got := isvc.Status.URL; got == nil || *got != to {
				return fmt.Errorf("it is %v", ptr.Deref(got, ""))
			}
			return nil
		})
	}
	b.Change(t, isvc, func() {
		isvc.Spec.Transformer = &v1beta1.TransformerSpec{PodSpec: v1beta1.PodSpec{Containers: []corev1.Container{{Name: "kserve-container", Image: "transform:1"}}}}
	})
	leads("http://transformer") // not past it
	b.Change(t, isvc, func() { isvc.Spec.Transformer = nil })
	leads("grpc://" + service + "." + b.NS + ":8033")
	b.Change(t, isvc, func() { isvc.Spec.Predictor.Model.Storage.Path = ptr.To(meshtest.Missing) })
	testkit.Eventually(t, patience, "the newest model to fail", func() error { return is(conditionDeployment, corev1.ConditionFalse) })
	if err := is("TransformerReady", corev1.ConditionTrue); err != nil || is(conditionPredictor, corev1.ConditionTrue) != nil {
		t.Errorf("%+v", isvc.Status)
	}
	clash := b.predictor("iris", "a")
	b.Create(t, clash)
	b.wait(t, clash, "InvalidPredictorSpec", "InvalidPredictorSpec")
	b.Delete(t, isvc)
	b.Gone(t, isvc, isvc.Name)
	b.wait(t, clash, "Loaded", "Loaded")
	if err := b.C.Get(t.Context(), kubeclient.ObjectKeyFromObject(elsewhere), elsewhere); err != nil || len(elsewhere.Finalizers) > 0 ||
		!slices.ContainsFunc(elsewhere.Status.Conditions, func(c v1beta1.Condition) bool { return c.Reason == "NotItsOwn" }) {
		t.Errorf("a service that is none of ours: %v, %+v", elsewhere.Finalizers, elsewhere.Status)
	}
}

// TestFaults: with an API server and a mesh that fail now and then, everything comes about, and ends.
func TestFaults(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // which calls fail
	b.mesh.Spoil(func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(4) == 0 {
			return status.Error(codes.Unavailable, "spoilt")
		}
		return nil
	})
	faults := testkit.NewFaults(7).AddEach(0.03)
	testkit.Insist(t, func(ctx context.Context) error { return b.Run(ctx, faults.Wrap(b.Manager)) })
	var all []*v1alpha1.Predictor
	for i := range 5 {
		all = append(all, b.predictor(fmt.Sprintf("iris-%d", i), "a"))
		b.Create(t, all[i])
	}
	for _, p := range all {
		b.wait(t, p, "Loaded", "Loaded")
		b.Delete(t, p)
	}
	for _, p := range all {
		b.Gone(t, p, p.Name)
	}
	if names, models := b.mesh.Names(), b.mesh.Models(); len(names)+len(models) > 0 {
		t.Errorf("left are %v and %v", names, models)
	}
}

// TestKilled: killed at any write, the next start comes to the same end, and leaves nothing in the mesh.
func TestKilled(t *testing.T) {
	b := newBench(t)
	var p *v1alpha1.Predictor
	round := 0
	testkit.KillEverywhere(t, testkit.KillTest{
		Config: b.Manager,
		Run:    b.Run,
		Reset: func(t testing.TB) {
			round++
			p = b.predictor(fmt.Sprintf("iris-%d", round), "a")
			b.Create(t, p)
		},
		Converged: func() error { return b.says(p, "Loaded", "Loaded") },
		Verify: func(t testing.TB) {
			if m, _ := model.OfPredictor(p); !slices.Equal(b.mesh.Models(), []string{m.ID}) {
				t.Errorf("the mesh has %v", b.mesh.Models())
			}
		},
		Delete: func(t testing.TB) { b.Delete(t, p) },
		Gone: func() error {
			if err := b.Ended([]kubeclient.Object{p.DeepCopy()}, nil); err != nil {
				return err
			}
			if left, err := b.records(); err != nil || len(left) > 0 {
				return fmt.Errorf("left are %v: %w", left, err)
			}
			return nil
		},
	})
}

var prefixed, keysOnly = clientv3.WithPrefix(), clientv3.WithKeysOnly()
