// SPDX-License-Identifier: Apache-2.0

package activator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/chart/charttest"
	"github.com/modelplane/modelplane/internal/serving/activation"
	"github.com/modelplane/modelplane/internal/testkit"
)

// stage is an API server with a service, and the test in the place of everything else that a cluster has: it starts pods as
// the Deployment asks for them, and writes the EndpointSlices of pods and activators.
type stage struct {
	t        *testing.T
	cluster  *testkit.Cluster
	c        client.Client
	ns, name string
	// service is what the activator is called, and kubeconfig that of its account.
	service, kubeconfig string
	tuning              Tuning
	httpPort            int
	peersPort           int
	healthPort          int
	podPort             int
	net                 string // the first three numbers of addresses

	mu       sync.Mutex
	pods     map[string]*testkit.Program // by address
	replicas []*actor
	addrs    int
}

// actor is one replica of the activator, as a process.
type actor struct {
	*testkit.Program
	ip, url, health string
	listed          bool
}

func newStage(t *testing.T, s activation.Settings, tuning Tuning, pods int32) *stage {
	t.Helper()
	cluster := testkit.Start(t)
	st := &stage{t: t, cluster: cluster, c: cluster.Client(), ns: cluster.Namespace(t), name: "iris-predictor", tuning: tuning,
		pods: map[string]*testkit.Program{}, httpPort: testkit.FreePort(t), peersPort: testkit.FreePort(t),
		healthPort: testkit.FreePort(t), podPort: testkit.FreePort(t), net: fmt.Sprintf("127.%d.%d", 16+rand.IntN(224), rand.IntN(256))}
	labels := map[string]string{"app": "isvc." + st.name}
	st.useChart()
	st.create(&corev1.Secret{ObjectMeta: st.meta(st.service)})
	st.create(&appsv1.Deployment{ObjectMeta: st.meta(st.name), Spec: appsv1.DeploymentSpec{Replicas: &pods,
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}}})
	service := &corev1.Service{ObjectMeta: st.meta(activation.PodsService(st.name)), Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: labels, Ports: []corev1.ServicePort{
			{Name: "http1", Port: 80}, {Name: "grpc", Port: 9000, AppProtocol: ptr.To("kubernetes.io/h2c")}}}}
	service.Labels = map[string]string{activation.Label: activation.LabelValue}
	service.Annotations = map[string]string{activation.Annotation: s.Encode()}
	st.create(service)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		st.play(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return st
}

// useChart gives the activator the account and the permissions that the chart gives it in an installation for one namespace.
func (s *stage) useChart() {
	s.t.Helper()
	charttest.RBACWith(s.t, s.cluster, s.ns, map[string]any{"enable": []any{"serving"}, "crds": map[string]any{"install": false}, "activator": map[string]any{"enabled": true},
		"watchNamespaces": []any{s.ns}})
	s.service = "rbac-" + s.ns[strings.LastIndex(s.ns, "-")+1:] + "-modelplane-activator"
	s.kubeconfig = s.cluster.KubeconfigFor(s.t, s.cluster.ServiceAccountConfig(s.t, s.ns, s.service))
}

func (s *stage) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.ns, Name: name}
}

func (s *stage) create(obj client.Object) {
	s.t.Helper()
	if err := s.c.Create(s.t.Context(), obj); err != nil {
		s.t.Fatal(err)
	}
}

// address of a process of its own. EndpointSlices take addresses of the machine itself only as names. Other tests, on the same
// machine, have others.
func (s *stage) address() string {
	s.addrs++
	return fmt.Sprintf("%s.%d", s.net, s.addrs)
}

// play brings and takes pods until the context ends.
func (s *stage) play(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			s.t.Errorf("the cluster of the test: %v", err)
			return
		}
	}
}

func (s *stage) look(ctx context.Context) error {
	d := &appsv1.Deployment{}
	if err := s.c.Get(ctx, client.ObjectKey{Namespace: s.ns, Name: s.name}, d); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	for len(s.pods) < int(*d.Spec.Replicas) {
		ip := s.address()
		p := become(s.t, "pod-"+ip, asPod, fmt.Sprintf("%s:%d", ip, s.podPort))
		if !answers(ctx, fmt.Sprintf("%s:%d", ip, s.podPort), p.Ended()) {
			return fmt.Errorf("a pod does not start: %s", p.Output())
		}
		s.pods[ip], changed = p, true
	}
	for _, ip := range slices.Sorted(maps.Keys(s.pods)) {
		if len(s.pods) > int(*d.Spec.Replicas) {
			s.pods[ip].Kill() // and only then is it taken off the list
			delete(s.pods, ip)
			changed = true
		}
	}
	if changed {
		return s.list(ctx)
	}
	return nil
}

func answers(ctx context.Context, address string, ended <-chan struct{}) bool {
	for {
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-ended:
			return false
		case <-ctx.Done():
			return true
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// list writes the EndpointSlice of the pods.
func (s *stage) list(ctx context.Context) error {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: s.meta("pods"), AddressType: discoveryv1.AddressTypeFQDN,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http1"), Port: ptr.To(int32(s.podPort))}, {Name: ptr.To("grpc"), Port: ptr.To(int32(s.podPort))}}}
	slice.Labels = map[string]string{activation.Label: activation.LabelValue, discoveryv1.LabelServiceName: activation.PodsService(s.name)}
	for _, ip := range slices.Sorted(maps.Keys(s.pods)) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s.put(ctx, slice)
}

func (s *stage) put(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	live := &discoveryv1.EndpointSlice{}
	if err := s.c.Get(ctx, client.ObjectKeyFromObject(slice), live); err != nil {
		return errors.Join(client.IgnoreNotFound(err), s.c.Create(ctx, slice))
	}
	slice.ResourceVersion = live.ResourceVersion
	return s.c.Update(ctx, slice)
}

// start runs one more replica of the activator and waits until it is ready.
func (s *stage) start() *actor {
	s.t.Helper()
	return s.startWith(replicaOptions{})
}

// startWith is start for a replica that meets with trouble.
func (s *stage) startWith(o replicaOptions) *actor {
	s.t.Helper()
	s.mu.Lock()
	ip := s.address()
	s.mu.Unlock()
	a := &actor{ip: ip, url: fmt.Sprintf("http://%s:%d", ip, s.httpPort), health: fmt.Sprintf("%s:%d", ip, s.healthPort), listed: true}
	o.Kubeconfig, o.Options = s.kubeconfig, Options{
		Namespace: s.ns, Service: s.service, Name: ip, Address: ip, WatchNamespaces: []string{s.ns},
		Listen: fmt.Sprintf("%s:%d", ip, s.httpPort), Peers: fmt.Sprintf("%s:%d", ip, s.peersPort), Health: a.health, Metrics: "0",
		Tuning: s.tuning, Hold: time.Minute, PerService: 1000, Total: 1000, Delay: 2 * time.Second, Timeout: 30 * time.Second,
	}
	text, err := o.encode()
	if err != nil {
		s.t.Fatal(err)
	}
	a.Program = become(s.t, "activator-"+ip, asReplica, string(text))
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("activator %s wrote:\n%s", ip, a.Output())
		}
	})
	testkit.Eventually(s.t, patience, "the activator to be ready", func() error { return s.healthy(a) })
	s.replicas = append(s.replicas, a)
	s.listReplicas()
	return a
}

func (s *stage) healthy(a *actor) error {
	resp, err := http.Get("http://" + a.health + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// listReplicas writes the EndpointSlice of the activators.
func (s *stage) listReplicas() {
	s.t.Helper()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: s.meta("activators"), AddressType: discoveryv1.AddressTypeFQDN, Ports: []discoveryv1.EndpointPort{
		{Name: ptr.To("http"), Port: ptr.To(int32(s.httpPort))}, {Name: ptr.To("peers"), Port: ptr.To(int32(s.peersPort))}}}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: s.service}
	for _, a := range s.replicas {
		if a.listed {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.ip}})
		}
	}
	if err := s.put(s.t.Context(), slice); err != nil {
		s.t.Fatal(err)
	}
}

// ask sends one request through a replica.
func (s *stage) ask(ctx context.Context, a *actor, work time.Duration) error {
	_, err := s.asked(ctx, a, work)
	return err
}

// asked is ask, and says which pod has answered.
func (s *stage) asked(ctx context.Context, a *actor, work time.Duration) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/v1/models/iris:predict", strings.NewReader(`{"instances":[1]}`))
	if err != nil {
		return "", err
	}
	req.Host = s.name + "." + s.ns
	if work > 0 {
		req.Header.Set("Work", work.String())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
}

func (s *stage) wanted() int32 {
	s.t.Helper()
	d := &appsv1.Deployment{}
	if err := s.c.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: s.name}, d); err != nil {
		s.t.Fatal(err)
	}
	return *d.Spec.Replicas
}

// wantsPods waits until the Deployment is to have so many pods.
func (s *stage) wantsPods(n int32) {
	s.t.Helper()
	testkit.Eventually(s.t, patience, fmt.Sprintf("%d pods", n), func() error {
		if got := s.wanted(); got != n {
			return fmt.Errorf("%d are wanted", got)
		}
		return nil
	})
}

var quick = Tuning{Window: 2 * time.Second, Panic: time.Second, Idle: time.Second}

func settings(limit int64) activation.Settings {
	return activation.Settings{Metric: activation.Concurrency, Target: 100, Min: 0, Max: 3, Limit: limit}
}

// TestFromZero: fifty clients come at once to a service without a pod, and all are answered.
func TestFromZero(t *testing.T) {
	t.Parallel()
	s := newStage(t, settings(0), quick, 0)
	first, second := s.start(), s.start()
	var all sync.WaitGroup
	var failed atomic.Int64
	begun := time.Now()
	for i := range 50 {
		all.Go(func() {
			if err := s.ask(t.Context(), []*actor{first, second}[i%2], 10*time.Millisecond); err != nil {
				failed.Add(1)
				t.Errorf("a client: %v", err)
			}
		})
	}
	all.Wait()
	t.Logf("from zero under 50 clients: %d failed, all answered after %s", failed.Load(), time.Since(begun).Round(time.Millisecond))
	if n := s.wanted(); n < 1 {
		t.Errorf("%d pods are wanted", n)
	}
}

// TestToZero: the last pod goes, again and again, while requests come at about that moment, and none is lost although pods
// have no manners.
func TestToZero(t *testing.T) {
	t.Parallel()
	s := newStage(t, settings(0), quick, 1)
	replicas := []*actor{s.start(), s.start()}
	s.wantsPods(0)
	woken := 0
	for round := range 7 {
		if s.wanted() == 0 {
			woken++
		}
		if err := s.ask(t.Context(), replicas[round%2], 0); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		// The leader looks every second: somewhere in these pauses it decides.
		<-time.After(quick.Window + time.Duration(round)*170*time.Millisecond)
	}
	s.wantsPods(0)
	t.Logf("7 requests, %d of them found no pod", woken)
}

// TestManyPods: a service has as many pods as its requests take, by how many are under way and by how many come, all of them get
// requests, and they go when the requests do.
func TestManyPods(t *testing.T) {
	t.Parallel()
	first := activation.Settings{Metric: activation.Concurrency, Target: 2, Min: 1, Max: 3}
	s := newStage(t, first, quick, 1)
	replicas := []*actor{s.start(), s.start()}
	for _, c := range []struct {
		name     string
		settings activation.Settings
		work     time.Duration
	}{
		{"requests under way", first, 100 * time.Millisecond},
		{"requests per second", activation.Settings{Metric: activation.RPS, Target: 5, Min: 1, Max: 3}, 0},
	} {
		service := &corev1.Service{ObjectMeta: s.meta(activation.PodsService(s.name))}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, activation.Annotation, c.settings.Encode())
		if err := s.c.Patch(t.Context(), service, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		var pods sync.Map
		for i := range 8 {
			clients.Go(func() {
				for ctx.Err() == nil {
					pod, err := s.asked(context.WithoutCancel(ctx), replicas[i%2], c.work)
					if err != nil {
						t.Errorf("%s: %v", c.name, err)
					}
					pods.Store(pod, true)
					if c.work == 0 {
						<-time.After(20 * time.Millisecond)
					}
				}
			})
		}
		s.wantsPods(3)
		testkit.Eventually(t, patience, "three pods to answer", func() error {
			n := 0
			pods.Range(func(any, any) bool { n++; return true })
			if n < 3 {
				return fmt.Errorf("%s: %d pods have answered", c.name, n)
			}
			return nil
		})
		cancel()
		clients.Wait()
		s.wantsPods(1)
	}
}

// TestRestart: one of two replicas ends under load, then is killed, and whoever asks the other never notices; pods stay.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := newStage(t, settings(0), quick, 1)
	first, second := s.start(), s.start()
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var answered, lost atomic.Int64
	var route atomic.Pointer[actor]
	load := func(through func() *actor, mayBreak bool) {
		clients.Go(func() {
			for ctx.Err() == nil {
				a := through()
				err := s.ask(context.WithoutCancel(ctx), a, 5*time.Millisecond)
				switch {
				case err == nil:
					answered.Add(1)
				case !mayBreak:
					lost.Add(1)
					t.Errorf("through %s: %v", a.ip, err)
				}
			}
		})
	}
	route.Store(first)
	for range 4 {
		load(func() *actor { return second }, false)
		load(route.Load, false)
	}
	steady := func(when string) {
		t.Helper()
		before := answered.Load()
		testkit.Eventually(t, patience, "answers "+when, func() error {
			if n := answered.Load() - before; n < 200 {
				return fmt.Errorf("%d answers", n)
			}
			if s.wanted() < 1 {
				return errors.New("no pod is wanted under load")
			}
			return nil
		})
	}
	steady("before")
	// As a node that is drained ends it: it is taken off the list, clients go elsewhere, and what is under way is answered.
	first.Signal(t, syscall.SIGTERM)
	first.listed = false
	s.listReplicas()
	route.Store(second)
	if code := first.ExitCode(t, patience); code != 0 {
		t.Errorf("the replica ended with %d", code)
	}
	steady("without the first")
	third := s.start()
	steady("with a third")
	third.Kill() // still listed: nobody knows
	steady("with one that is dead")
	third.listed = false
	s.listReplicas()
	testkit.Quiet(t, 2*quick.Window, "at least one pod", func() error {
		if s.wanted() < 1 {
			return errors.New("it is gone under load")
		}
		return nil
	})
	cancel()
	clients.Wait()
	t.Logf("%d answered, %d lost", answered.Load(), lost.Load())
	s.wantsPods(0) // by the one that is left
}

// TestPodDies: a pod that is killed and still listed costs nobody but those whom it was answering.
func TestPodDies(t *testing.T) {
	t.Parallel()
	two := settings(0)
	two.Min = 2
	s := newStage(t, two, quick, 2)
	a := s.start()
	testkit.Eventually(t, patience, "an answer", func() error { return s.ask(t.Context(), a, 0) })
	testkit.Eventually(t, patience, "two pods", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.pods) != 2 {
			return errors.New("not yet")
		}
		return nil
	})
	s.mu.Lock() // nobody takes it off the list
	for _, ip := range slices.Sorted(maps.Keys(s.pods))[:1] {
		s.pods[ip].Kill()
	}
	for range 50 {
		if err := s.ask(t.Context(), a, 0); err != nil {
			t.Errorf("after the pod died: %v", err)
		}
	}
	s.mu.Unlock()
}

// TestGRPC: calls over HTTP/2 without TLS bring the first pod, and go through with their streams and their errors.
func TestGRPC(t *testing.T) {
	t.Parallel()
	s := newStage(t, settings(0), quick, 0)
	a := s.start()
	dial := func(authority string) healthpb.HealthClient {
		conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(a.url, "http://"), grpc.WithAuthority(authority), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return healthpb.NewHealthClient(conn)
	}
	calls := dial(s.name + "." + s.ns + ":9000")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if said, err := calls.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || said.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("from zero: %v %v", said, err)
	}
	stream, err := calls.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if said, err := stream.Recv(); err != nil || said.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("a stream that goes on: %v %v", said, err)
	}
	if _, err := calls.Check(ctx, &healthpb.HealthCheckRequest{Service: "unknown"}); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("an error of the model server: %v", err)
	}
	if _, err := dial("nobody."+s.ns).Check(ctx, &healthpb.HealthCheckRequest{}); grpcstatus.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "SERVICE.NAMESPACE") {
		t.Errorf("an error of the activator: %v", err)
	}
}

// TestFaults: calls to the API server fail in every way, and services wake and fall asleep all the same, with no request lost.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := newStage(t, settings(0), quick, 1)
	replicas := []*actor{s.startWith(replicaOptions{Faults: 0.1}), s.startWith(replicaOptions{Faults: 0.1})}
	for round := range 3 {
		s.wantsPods(0)
		if err := s.ask(t.Context(), replicas[round%2], 0); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
}

// TestLeaderDies: the leader is killed when it has taken the last pod away and has not told anybody. Another replica lets
// requests wait for that moment, and brings a pod.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	s := newStage(t, settings(0), quick, 1)
	leader := s.startWith(replicaOptions{Dies: 2}) // its first write is the key of the replicas
	other := s.start()
	if code := leader.ExitCode(t, patience); code != killed {
		t.Fatalf("the leader ended with %d", code)
	}
	if n := s.wanted(); n != 0 {
		t.Fatalf("%d pods are wanted, and the last write was lost", n)
	}
	if err := s.ask(t.Context(), other, 0); err != nil {
		t.Errorf("after the leader died: %v", err)
	}
}

// TestQuiet: under load that does not change nothing is written, and nothing asked, but for the Lease.
func TestQuiet(t *testing.T) {
	t.Parallel()
	s := newStage(t, settings(0), quick, 1)
	a := s.start()
	testkit.Eventually(t, patience, "an answer", func() error { return s.ask(t.Context(), a, 0) })
	d := &appsv1.Deployment{}
	version := func() string {
		if err := s.c.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: s.name}, d); err != nil {
			t.Fatal(err)
		}
		return d.ResourceVersion
	}
	before := version()
	testkit.Quiet(t, 2*quick.Window, "the Deployment", func() error {
		if err := s.ask(t.Context(), a, 0); err != nil {
			return err
		}
		if version() != before {
			return errors.New("it was written")
		}
		return nil
	})
}

// TestLeaves: a service that is no longer ours is answered for while clients find their way, although its Service and its
// EndpointSlice are gone, whichever goes first.
func TestLeaves(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"Service", "EndpointSlice"} {
		t.Run("first the "+first, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, settings(0), quick, 1)
			replicas := []*actor{s.start(), s.start()}
			for _, a := range replicas {
				testkit.Eventually(t, patience, "an answer", func() error { return s.ask(t.Context(), a, 0) })
			}
			gone := []client.Object{&corev1.Service{ObjectMeta: s.meta(activation.PodsService(s.name))}, &discoveryv1.EndpointSlice{ObjectMeta: s.meta("pods")}}
			if first == "EndpointSlice" {
				slices.Reverse(gone)
			}
			for _, obj := range gone {
				if err := s.c.Delete(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
				for i := range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					if err := s.ask(ctx, replicas[i%2], 0); err != nil {
						t.Errorf("without %T: %v", obj, err)
					}
					cancel()
					<-time.After(20 * time.Millisecond)
				}
			}
		})
	}
}
