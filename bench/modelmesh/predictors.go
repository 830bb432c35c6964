// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/bench/load"
	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/chart"
	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/testkit"
)

const (
	home    = "modelplane-system" // the manager's own namespace
	space   = "bench"             // that of the Predictors
	account = "measured"
	service = "modelmesh-serving"
	root    = "bench" // of the keys in etcd
	// quiet is how long nothing is asked before a phase has ended. Where an instance of the mesh is late, it is asked again after
	// one second, two and four; a phase that ended in such a pause would leave its questions to the idle one.
	quiet = 5 * time.Second
)

var scheme = func() *k8sruntime.Scheme {
	s := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // the types contradict each other
		}
	}
	return s
}()

// plane is a real API server with our manager, and a real mesh.
type plane struct {
	*testkit.Cluster
	client  client.Client
	api     *apiProxy
	mesh    *meshProxy
	manager *testkit.Program
}

// newPlane starts everything; binary is the manager's.
func newPlane(t testing.TB, b *bed, binary string) *plane {
	t.Helper()
	p := &plane{Cluster: testkit.StartOwn(t)}
	var err error
	if p.client, err = client.New(p.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}})
	p.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space, Labels: map[string]string{"modelmesh-enabled": "true"}}})
	p.mesh = newMeshProxy(t, callsOf(b.nodes))
	p.install(t, b)
	user := p.ServiceAccountConfig(t, home, account)
	p.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: account}},
	})
	p.api = newAPIProxy(t, p.Cluster, user)
	port := testkit.FreePort(t)
	p.manager = p.Program(t, "manager", []string{"KUBECONFIG=" + p.KubeconfigFor(t, p.api.config)}, binary,
		"manager", "--enable=modelmesh", "--namespace="+home, "--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", port),
		fmt.Sprintf("--webhook-url=https://127.0.0.1:%d", port), "--health-probe-bind-address=0", "--metrics-bind-address=0", "--shutdown-delay=0s")
	return p
}

// install puts definitions, configuration and webhooks of this checkout into the cluster, and says where mesh and etcd are.
func (p *plane) install(t testing.TB, b *bed) {
	t.Helper()
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	p.InstallCRDs(t, slices.DeleteFunc(slices.Clone(crds), func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Group != v1beta1.Group
	})...)
	objects, err := chart.Render(charttest.Dir(), chart.Release{Namespace: home, Values: map[string]any{"enable": []any{"modelmesh"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if slices.Contains([]string{"ConfigMap", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}, o.GetKind()) {
			p.create(t, o.Unstructured)
		}
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "model-serving-config"}}
	content := map[string]string{"config.yaml": "modelMeshEndpoint: " + p.mesh.address + "\n"}
	err = p.client.Get(t.Context(), client.ObjectKeyFromObject(settings), settings)
	if settings.Data = content; err == nil {
		err = p.client.Update(t.Context(), settings)
	} else {
		err = p.client.Create(t.Context(), settings)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "model-serving-etcd"}, Data: b.etcd.Secret(root)})
}

func (p *plane) create(t testing.TB, o client.Object) {
	t.Helper()
	if err := p.client.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// predictor is one of a model somewhere in a store.
func predictor(i int) *v1alpha1.Predictor {
	p := &v1alpha1.Predictor{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: fmt.Sprintf("model-%05d", i)}}
	p.Spec.Type.Name = "onnx"
	p.Spec.Storage = &v1alpha1.PredictorStorage{}
	key, path := "store", "models/"+p.Name
	p.Spec.Storage.StorageKey, p.Spec.Storage.Path = &key, &path
	return p
}

// clock tells when each Predictor was asked for and when its model was first seen loaded.
type clock struct {
	mu            sync.Mutex
	asked, loaded map[string]time.Time
	last          map[string]string          // what those say that are not loaded
	told          map[string]map[string]bool // all that each of them ever said
}

func (p *plane) watch(t testing.TB) *clock {
	t.Helper()
	c := &clock{asked: map[string]time.Time{}, loaded: map[string]time.Time{}, last: map[string]string{}, told: map[string]map[string]bool{}}
	all, err := cache.New(p.Config(), cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	informer, err := all.GetInformer(ctx, &v1alpha1.Predictor{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: c.see, UpdateFunc: func(_, obj any) { c.see(obj) }}); err != nil {
		t.Fatal(err)
	}
	go func() { _ = all.Start(ctx) }() // ends with the context only
	return c
}

func (c *clock) see(obj any) {
	p, ok := obj.(*v1alpha1.Predictor)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[p.Name] = fmt.Sprintf("%+v", p.Status)
	if c.told[p.Name] == nil {
		c.told[p.Name] = map[string]bool{}
	}
	if s := p.Status; len(s.Conditions) > 0 { // before that it says what the API server has put there
		var failure v1alpha1.PredictorFailureReason
		if s.LastFailureInfo != nil {
			failure = s.LastFailureInfo.Reason
		}
		c.told[p.Name][fmt.Sprint(s.ActiveModelState, s.TargetModelState, s.TransitionStatus, s.Available, s.TotalCopies, s.FailedCopies, failure)] = true
	}
	if _, seen := c.loaded[p.Name]; !seen && p.Status.ActiveModelState == v1beta1.Loaded && p.Status.Available {
		c.loaded[p.Name] = time.Now()
		delete(c.last, p.Name)
	}
}

// between is how many Predictors have told of a step between the first and the last: where the mesh gets little time, it says
// that a model is being loaded before any instance has begun with it, and so do we.
func (c *clock) between(since time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const first, last = 1, 1
	for name, asked := range c.asked {
		if !asked.Before(since) && len(c.told[name]) > first+last {
			n++
		}
	}
	return n
}

func (c *clock) ask(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[name] = time.Now()
}

// missing tells whether some are not loaded.
func (c *clock) missing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.asked {
		if _, ok := c.loaded[name]; !ok {
			return fmt.Errorf("%d of %d are loaded; %s says %.600s", len(c.loaded), len(c.asked), name, c.last[name])
		}
	}
	return nil
}

// measurePredictors goes from the first create to the last Loaded, and through an idle while.
func (o options) measurePredictors(t testing.TB, self, pod, manager string) *predictorsReport {
	o.say("starting a mesh of %d processes, an API server and the manager", o.processes)
	b := newBed(t, self, pod, bedOptions{processes: o.processes, service: service, root: root + "/mm_ns/" + space, models: o.predictors/o.processes*2 + 200})
	p := newPlane(t, b, manager)
	c := p.watch(t)
	r := &predictorsReport{Predictors: o.predictors, Requests: map[string]int{}, Questions: map[string]int{}}
	c.ask(predictor(0).Name)
	testkit.Eventually(t, time.Minute, "the first Predictor to be accepted", func() error { // webhooks refuse it at first
		return client.IgnoreAlreadyExists(p.client.Create(t.Context(), predictor(0)))
	})
	p.loaded(t, c)
	p.settled(t)

	o.say("creating %d Predictors", o.predictors)
	before, calls, began := p.api.Snapshot(), p.mesh.counted(), time.Now()
	each(t, o.predictors, func(ctx context.Context, i int) error {
		c.ask(predictor(i + 1).Name)
		return p.client.Create(ctx, predictor(i+1))
	})
	p.loaded(t, c)
	r.Seconds = time.Since(began).Seconds()
	p.settled(t)
	n := float64(o.predictors)
	work := p.api.work(before)
	r.Writes, r.Total, r.Calls = float64(work.Writes())/n, float64(work.Total())/n, float64(sum(p.mesh.counted())-sum(calls))/n
	for call, count := range work {
		r.Requests[call.Verb+" "+call.Target()] = count
	}
	for method, count := range p.mesh.counted() {
		r.Questions[method] = count - calls[method]
	}
	r.Between = float64(c.between(began)) / n
	r.P50, r.P99 = c.quantiles(began)

	o.say("idle for %v", o.idle)
	before, calls = p.api.Snapshot(), p.mesh.counted()
	settled(t, o.idle)
	work = p.api.work(before)
	r.IdleWrites, r.IdleCalls = work.Writes(), sum(p.mesh.counted())-sum(calls)
	var err error
	if r.IdleMiB, r.PeakMiB, err = p.manager.Memory(); err != nil {
		t.Fatal(err)
	}
	return r
}

// quantiles of the time from create to Loaded, in milliseconds.
func (c *clock) quantiles(since time.Time) (p50, p99 float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var took []time.Duration
	for name, asked := range c.asked {
		if !asked.Before(since) {
			took = append(took, c.loaded[name].Sub(asked))
		}
	}
	p50, p99, _ = load.Quantiles(took)
	return p50, p99
}

// loaded waits until all are, as long as it gets on.
func (p *plane) loaded(t testing.TB, c *clock) {
	t.Helper()
	const stuck = 90 * time.Second
	count, last := -1, time.Now()
	testkit.Eventually(t, time.Hour, "the Predictors to be loaded", func() error {
		select {
		case <-p.manager.Ended():
			t.Fatalf("the manager has ended:\n%s", p.manager.Output())
		default:
		}
		err := c.missing()
		if n := c.count(); n != count {
			count, last = n, time.Now()
		}
		if err != nil && time.Since(last) > stuck {
			t.Fatalf("nothing was loaded for %v: %v\nThe manager wrote:\n%s", stuck, err, p.manager.Output())
		}
		return err
	})
}

// count is how many are loaded.
func (c *clock) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.loaded)
}

// settled waits until neither the API server nor the mesh has been asked anything for a while.
func (p *plane) settled(t testing.TB) {
	t.Helper()
	last, count := time.Now(), -1
	testkit.Eventually(t, 5*time.Minute, "the manager to come to rest", func() error {
		work := p.api.work(nil)
		if n := work.Total() - work.Of("watch", "") + sum(p.mesh.counted()); n != count {
			last, count = time.Now(), n
		}
		if time.Since(last) < quiet {
			return errors.New("it still asks")
		}
		return nil
	})
}

// predictorsReport is what was measured of the control plane.
type predictorsReport struct {
	Predictors int     `json:"predictors"`
	Seconds    float64 `json:"seconds"`
	P50        float64 `json:"p50Milliseconds"`
	P99        float64 `json:"p99Milliseconds"`
	// Writes, Total and Calls are per Predictor: writes and requests to the API server, calls to the mesh.
	Writes   float64        `json:"writesPerPredictor"`
	Total    float64        `json:"requestsPerPredictor"`
	Calls    float64        `json:"callsPerPredictor"`
	Requests map[string]int `json:"requests"`
	// Between is the share of Predictors that told of one more step, which is one more write.
	Between float64 `json:"betweenPerPredictor"`
	// Questions are the calls to the mesh by their methods.
	Questions map[string]int `json:"questions"`
	// What happened in the idle time.
	IdleWrites int     `json:"idleWrites"`
	IdleCalls  int     `json:"idleCalls"`
	IdleMiB    float64 `json:"idleMiB"`
	PeakMiB    float64 `json:"peakMiB"`
}

// The promises, all of them counts.
const (
	mostWrites = 4.0
	mostCalls  = 3.0
)

// broken are the promises that were not kept.
func (r *predictorsReport) broken() []string { return r.brokenBeyond(0, 0) }

// starved are those that were not kept where a machine has no time, whatever that adds: a step between that was seen
// and told, once, and a twentieth for what is sent again because an answer is late.
func (r *predictorsReport) starved() []string {
	const share = 0.05
	return r.brokenBeyond(r.Between, share)
}

func (r *predictorsReport) brokenBeyond(writes, share float64) []string {
	var out []string
	if r.Writes-writes > mostWrites*(1+share) {
		out = append(out, fmt.Sprintf("%.2f writes per Predictor, at most %.0f are promised: %v", r.Writes, mostWrites, r.Requests))
	}
	if r.Calls > mostCalls*(1+share) {
		out = append(out, fmt.Sprintf("%.2f calls to the mesh per Predictor, at most %.0f are promised: %v", r.Calls, mostCalls, r.Questions))
	}
	if r.IdleWrites > 0 || r.IdleCalls > 0 {
		out = append(out, fmt.Sprintf("%d writes and %d calls to the mesh while nothing changed, none are promised", r.IdleWrites, r.IdleCalls))
	}
	return out
}

func (r *predictorsReport) show(w io.Writer) {
	fmt.Fprintf(w, "%d Predictors loaded after %.1f s; each after p50 %.0f ms, p99 %.0f ms\n", r.Predictors, r.Seconds, r.P50, r.P99)
	fmt.Fprintf(w, "per Predictor                 %.2f writes, %.2f requests, %.2f calls to the mesh\n", r.Writes, r.Total, r.Calls)
	fmt.Fprintf(w, "when idle                     %d writes, %d calls to the mesh\n", r.IdleWrites, r.IdleCalls)
	fmt.Fprintf(w, "memory of the manager         %.0f MiB idle, %.0f MiB at most\n", r.IdleMiB, r.PeakMiB)
}
