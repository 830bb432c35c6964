// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// startTimeout is generous because several test binaries may start their servers
// at the same moment on a small machine.
const startTimeout = 2 * time.Minute

// Cluster is the API server of this test binary. All tests of the binary share it.
type Cluster struct {
	plane      *envtest.ControlPlane
	admin      *rest.Config
	scheme     *runtime.Scheme
	client     client.Client
	processes  *processes
	kubeconfig string

	holders holders
}

// shared is the one cluster of the process, started by the first test that asks.
var shared struct {
	sync.Mutex
	started bool
	cluster *Cluster
	err     error
}

// Option changes how Main runs the tests of a package.
type Option func()

// Parallel lets n parallel tests run at a time unless -parallel says otherwise.
// Tests of controllers wait for most of their time, so that more of them than
// there are cores make good use of these.
func Parallel(n int) Option {
	return func() {
		const name = "test.parallel"
		said := false
		flag.Visit(func(f *flag.Flag) { said = said || f.Name == name })
		if said {
			return
		}
		if err := flag.Set(name, strconv.Itoa(n)); err != nil {
			panic(err) // testing has that flag
		}
	}
}

// Main runs the tests of a package and ends its API server afterwards. It does
// not return. Call it from TestMain. The log of controller-runtime is shown with
// `go test -v` only.
func Main(m *testing.M, options ...Option) {
	flag.Parse()
	for _, apply := range options {
		apply()
	}
	logger := logr.Discard()
	if testing.Verbose() {
		logger = zap.New(zap.UseDevMode(true))
	}
	log.SetLogger(logger)
	code := m.Run()
	atEnd()
	stopShared()
	os.Exit(code)
}

// stopShared ends the shared cluster when one was started.
func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster != nil {
		shared.cluster.processes.end()
	}
}

// Start returns the API server of this test binary and starts it when the test
// is the first to ask. A server that did not come up fails every test that
// needs it, each with the same explanation.
func Start(t testing.TB) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.started {
		shared.started = true
		shared.cluster, shared.err = startCluster()
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// StartOwn starts an API server that no other test shares, until the test ends,
// for measurements that what was there before would distort.
func StartOwn(t testing.TB) *Cluster {
	t.Helper()
	c, err := startCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.processes.end)
	return c
}

func startCluster() (*Cluster, error) {
	assets, err := findAssets()
	if err != nil {
		return nil, err
	}
	procs, err := newProcesses(assets)
	if err != nil {
		return nil, err
	}
	c, err := newCluster(procs)
	if err != nil {
		err = fmt.Errorf("starting the test API server from %s: %w\n%s", assets, err, procs.logTails())
		procs.end()
		return nil, err
	}
	return c, nil
}

func newCluster(procs *processes) (*Cluster, error) {
	plane, err := newPlane(procs)
	if err != nil {
		return nil, err
	}
	if err := plane.Start(); err != nil {
		return nil, err
	}
	user, err := plane.AddUser(envtest.User{Name: "testkit-admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return nil, fmt.Errorf("creating the admin user: %w", err)
	}
	c := &Cluster{plane: plane, processes: procs, admin: user.Config(), scheme: runtime.NewScheme()}
	// Client-side throttling would hide how busy a controller is, and slow its tests down.
	c.admin.QPS = -1
	if err := clientgoscheme.AddToScheme(c.scheme); err != nil {
		return nil, err
	}
	if err := apiextensionsv1.AddToScheme(c.scheme); err != nil {
		return nil, err
	}
	if c.kubeconfig, err = c.writeKubeconfig("admin", c.admin); err != nil {
		return nil, err
	}
	if err := waitReady(c.admin); err != nil {
		return nil, err
	}
	c.client, err = client.New(c.Config(), client.Options{Scheme: c.scheme})
	return c, err
}

// newPlane describes the two processes: a server as production knows it (RBAC,
// Pod Security, API priority and fairness, watch cache, token issuing), with
// the durability of a throw-away.
func newPlane(procs *processes) (*envtest.ControlPlane, error) {
	plane := &envtest.ControlPlane{
		Etcd:        &envtest.Etcd{StartTimeout: startTimeout},
		APIServer:   &envtest.APIServer{StartTimeout: startTimeout},
		KubectlPath: procs.binary("kubectl"),
	}
	var err error
	if plane.Etcd.Path, err = procs.server("etcd"); err != nil {
		return nil, err
	}
	if plane.APIServer.Path, err = procs.server("kube-apiserver"); err != nil {
		return nil, err
	}
	for path, dir := range map[string]*string{"etcd-data": &plane.Etcd.DataDir, "apiserver-certs": &plane.APIServer.CertDir} {
		*dir = filepath.Join(procs.dir, path)
		if err := os.MkdirAll(*dir, 0o700); err != nil {
			return nil, err
		}
	}
	plane.Etcd.Configure().
		Set("unsafe-no-fsync", "true").
		Set("log-level", "warn")
	plane.APIServer.Configure().
		Set("authorization-mode", "RBAC").
		// Room for thousands of Services; the default of envtest ends at 254.
		Set("service-cluster-ip-range", "10.96.0.0/12").
		Set("max-requests-inflight", "3000").
		Set("max-mutating-requests-inflight", "1500").
		Set("delete-collection-workers", "8").
		Set("watch-cache", "true").
		Set("profiling", "false")
	return plane, nil
}

// Config returns a fresh copy of the administrator's configuration, without
// client-side throttling.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Scheme holds the built-in kinds and CustomResourceDefinition. It is shared by
// the tests of a binary; a test that adds kinds builds a scheme of its own.
func (c *Cluster) Scheme() *runtime.Scheme { return c.scheme }

// Client returns an uncached administrator's client for the kinds of Scheme and
// for unstructured objects.
func (c *Cluster) Client() client.Client { return c.client }
