// SPDX-License-Identifier: Apache-2.0

// Package memory measures what other people's objects cost the manager.
package memory

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelplane/modelplane/internal/engine/enginetest"
	"github.com/modelplane/modelplane/internal/engine/sample"
	"github.com/modelplane/modelplane/internal/testkit"
	"github.com/modelplane/modelplane/internal/testkit/guard"
)

const (
	secrets    = 8000
	secretSize = 10_000

	configMaps     = 2000
	annotationSize = 250 << 10
	// mostMiB is the promise: memory must not grow with what is not ours.
	mostMiB = 20.0

	childKubeconfig = "MODELPLANE_BENCH_KUBECONFIG"
	heapProfile     = "MODELPLANE_BENCH_HEAP" // file that a heap profile is written to
	childFleet      = "MODELPLANE_BENCH_FLEET"
)

// TestMain is also the manager: the benchmark starts this binary again, so that
// what it measures is a process of its own.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	if path := os.Getenv(childKubeconfig); path != "" {
		if err := manager(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

// manager runs the engine with the sample kind, which watches Secrets, or with
// another one, and answers each line on its standard input with its memory in KiB.
func manager(kubeconfig string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() {
		defer cancel() // the benchmark is gone
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			runtime.GC()
			debug.FreeOSMemory()
			now, peak := memoryOf("VmRSS"), memoryOf("VmHWM")
			writeHeap(os.Getenv(heapProfile))
			fmt.Printf("%d %d\n", now, peak)
		}
	}()
	if os.Getenv(childFleet) == "true" {
		return enginetest.RunWith(fleetController())(ctx, cfg)
	}
	return enginetest.Run(ctx, cfg)
}

// writeHeap leaves a profile for whoever wants to know where the memory is.
func writeHeap(path string) {
	if path == "" {
		return
	}
	f, err := os.Create(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	if err := errors.Join(pprof.WriteHeapProfile(f), f.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func memoryOf(field string) int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			kib, _ := strconv.Atoi(strings.Fields(value)[0])
			return kib
		}
	}
	return 0
}

// BenchmarkForeignSecrets prints how much 8,000 Secrets of 10 kB that are not
// ours add to the memory of the manager, at rest and at its peak.
func BenchmarkForeignSecrets(b *testing.B) {
	foreign(b, fmt.Sprintf("%d foreign Secrets of %d bytes", secrets, secretSize), secrets, func(ns string, i int) client.Object {
		data := make([]byte, secretSize)
		_, _ = rand.Read(data)
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("foreign-%d", i)}, Data: map[string][]byte{"data": data}}
	})
}

// BenchmarkForeignAnnotations does so with 2,000 ConfigMaps that have nothing but
// large annotations, which are metadata.
func BenchmarkForeignAnnotations(b *testing.B) {
	n := configMaps
	if few, err := strconv.Atoi(os.Getenv("MODELPLANE_BENCH_CONFIGMAPS")); err == nil {
		n = few
	}
	foreign(b, fmt.Sprintf("%d foreign ConfigMaps with %d bytes of annotations", n, annotationSize), n, func(ns string, i int) client.Object {
		data := make([]byte, annotationSize/2)
		_, _ = rand.Read(data)
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("foreign-%d", i),
			Annotations: map[string]string{"example.com/note": hex.EncodeToString(data)}}}
	})
}

// foreign measures a manager before and after others have made objects.
func foreign(b *testing.B, what string, n int, object func(ns string, i int) client.Object) {
	b.Helper()
	bench := enginetest.New(b)
	for range b.N {
		without, peakWithout := measure(b, bench, 0)
		fill(b, bench, n, object)
		with, peakWith := measure(b, bench, n)
		grown := float64(with-without) / 1024
		fmt.Printf("%s: %.1f MiB without, %.1f MiB with, %+.1f MiB (peak %.1f and %.1f MiB)\n",
			what, float64(without)/1024, float64(with)/1024, grown, float64(peakWithout)/1024, float64(peakWith)/1024)
		b.ReportMetric(grown, "MiB-grown")
		b.ReportMetric(float64(peakWith-peakWithout)/1024, "MiB-peak-grown")
		if grown >= mostMiB {
			b.Errorf("grew by %.1f MiB, the promise is less than %.0f", grown, mostMiB)
		}
	}
}

// process is a manager of its own.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

// start starts this binary as a manager, of a fleet of services or of the sample
// kind.
func start(b *testing.B, bench *enginetest.Bench, services bool) *process {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), childKubeconfig+"="+bench.Kubeconfig(), childFleet+"="+strconv.FormatBool(services))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		b.Fatal(err)
	}
	if err := guard.Start(p.cmd); err != nil {
		b.Fatal(err)
	}
	return p
}

func (p *process) stop() {
	_ = p.in.Close()
	_ = guard.Wait(p.cmd)
}

// memory of the process in KiB, after a collection and at its peak.
func (p *process) memory(b *testing.B) (now, peak int) {
	b.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Fscan(p.out, &now, &peak); err != nil {
		b.Fatal(err)
	}
	return now, peak
}

// measure starts a manager, waits until it has seen and handled everything, and
// returns its memory in KiB.
func measure(b *testing.B, bench *enginetest.Bench, round int) (now, peak int) {
	b.Helper()
	p := start(b, bench, false)
	defer p.stop()
	// An object that depends on a Secret is ready only when the Secrets are in the cache.
	name := fmt.Sprintf("probe-%d", round)
	bench.Create(b, bench.Sample(name, sample.SampleSpec{SecretFrom: name}),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: bench.NS, Name: name}, Data: map[string][]byte{"value": []byte("x")}})
	testkit.Eventually(b, 2*time.Minute, "the manager to have caught up", func() error { return bench.Ready(context.Background(), name) })
	return p.memory(b)
}

func fill(b *testing.B, bench *enginetest.Bench, n int, object func(ns string, i int) client.Object) {
	b.Helper()
	ns := bench.Namespace(b)
	work := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range work {
				if err := bench.C.Create(context.Background(), object(ns, i)); err != nil {
					b.Errorf("create an object of others: %v", err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
}
