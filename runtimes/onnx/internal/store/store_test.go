// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/internal/testkit/onnxmodel"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/batch"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/inference"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/onnxfile"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/store"
)

const (
	mib      = 1 << 20
	patience = time.Minute
)

// shelf is a store of models that are real files and answer what they are asked, when the test lets them.
type shelf struct {
	*store.Store
	dir string
	// opening and running stop who comes until the test takes from them; nil: nobody is stopped.
	opening, running chan struct{}
	fail             error
	opened, open     atomic.Int32 // ever, and now
	most             atomic.Int32 // at the same time
}

func newShelf(t *testing.T, o store.Options) *shelf {
	s := &shelf{dir: t.TempDir()}
	s.Store = store.New(o, s.load, inference.NewMetrics(""))
	return s
}

func (s *shelf) load(string, *onnxfile.Info) (*store.Loaded, error) {
	s.opened.Add(1)
	if now := s.open.Add(1); now > s.most.Load() {
		s.most.Store(now)
	}
	if s.opening != nil {
		s.opening <- struct{}{}
	}
	if s.fail != nil {
		s.open.Add(-1)
		return nil, s.fail
	}
	spec := []tensor.Spec{{Name: "x", Type: tensor.FP32, Shape: []int64{-1}}}
	return &store.Loaded{Inputs: spec, Outputs: spec, Runner: s, Close: func() error { s.open.Add(-1); return nil }}, nil
}

func (s *shelf) Run(inputs []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if s.running != nil {
		s.running <- struct{}{}
	}
	if s.open.Load() < 1 {
		return nil, errors.New("a model runs that was closed")
	}
	return inputs, nil
}

// file makes a model with so many bytes of weights.
func (s *shelf) file(t *testing.T, name string, weights int) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, onnxmodel.Line{Weights: weights}.File(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *shelf) ask(id string) error {
	m, done, err := s.Use(id)
	if err != nil {
		return err
	}
	defer done()
	_, err = m.Infer(context.Background(), []*tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{1}, Data: make([]byte, 4)}}, nil)
	return err
}

// empty checks that nothing of any model is left.
func (s *shelf) empty(t *testing.T) {
	t.Helper()
	if s.open.Load() != 0 || s.Used() != 0 || len(s.Names()) != 0 {
		t.Errorf("%d models are open, %d bytes are taken, and there are %q", s.open.Load(), s.Used(), s.Names())
	}
}

func options() store.Options {
	return store.Options{Capacity: 8 * mib, Buffer: 4 * mib, Loading: 1, Running: 1, Queue: batch.Options{Workers: 1, Queue: 10}}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatal("waited in vain")
	}
	return value
}

func wantKind(t *testing.T, what string, err error, kind inference.Kind, words string) {
	t.Helper()
	if err == nil || inference.KindOf(err) != kind || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v (kind %d), want kind %d with %q", what, err, inference.KindOf(err), kind, words)
	}
}

func TestLoadAndUnload(t *testing.T) {
	s := newShelf(t, options())
	path := s.file(t, "a", mib)
	for range 2 {
		size, err := s.Load(t.Context(), "a", path)
		if err != nil || size < mib || size > 2*mib || s.Used() != size {
			t.Fatalf("%d bytes of %d, %v", size, s.Used(), err)
		}
	}
	if s.opened.Load() != 1 {
		t.Errorf("a model was loaded %d times", s.opened.Load())
	}
	if err := s.ask("a"); err != nil {
		t.Error(err)
	}
	_, err := s.Load(t.Context(), "a", s.file(t, "b", 0))
	wantKind(t, "the same id from elsewhere", err, inference.Unfit, "unload it before")
	for range 2 {
		if err := s.Unload(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	}
	wantKind(t, "a model that is not there", s.ask("a"), inference.NotFound, `there is no model "a" here`)
	_, err = s.Size("a")
	wantKind(t, "its size", err, inference.NotFound, `there is no model "a" here`)
	s.empty(t)
}

func TestRefused(t *testing.T) {
	s := newShelf(t, options())
	if _, err := s.Load(t.Context(), "first", s.file(t, "first", 5*mib)); err != nil {
		t.Fatal(err)
	}
	used := s.Used()
	text := filepath.Join(s.dir, "text")
	if err := os.WriteFile(text, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		id, path string
		kind     inference.Kind
		words    string
	}{
		{"", text, inference.Invalid, "one of them is empty"},
		{"x", "", inference.Invalid, "one of them is empty"},
		{"x", filepath.Join(s.dir, "missing"), inference.Unfit, "check its path in the storage"},
		{"x", t.TempDir(), inference.Unfit, "there is no .onnx file under"},
		{"x", text, inference.Invalid, "is no valid ONNX file (it is not written in protocol buffers)"},
		{"x", s.file(t, "large", 9*mib), inference.Unfit, "give its container more memory"},
		{"x", s.file(t, "large to load", 7*mib), inference.Unfit, "give its container more memory"},
		{"x", s.file(t, "too many", 4*mib), inference.Busy, "unload some of them first"},
	} {
		_, err := s.Load(t.Context(), test.id, test.path)
		wantKind(t, test.path, err, test.kind, test.words)
		if s.Used() != used || len(s.Names()) != 1 {
			t.Errorf("%s left something behind: %d bytes, %q", test.path, s.Used(), s.Names())
		}
	}
	s.fail = errors.New("this operator is unknown")
	_, err := s.Load(t.Context(), "x", s.file(t, "unknown", 0))
	wantKind(t, "a model that cannot be run", err, inference.Invalid, "this operator is unknown")
	if err := s.Purge(t.Context()); err != nil {
		t.Error(err)
	}
	s.empty(t)
}

// TestCancelledBefore: a load whose call is carried out after it was given up begins nothing. An unload that came in between
// has said that no memory is taken.
func TestCancelledBefore(t *testing.T) {
	s := newShelf(t, options())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // of two that are ready, select takes any
		_, err := s.Load(ctx, "late", s.file(t, "late", 0))
		wantKind(t, "who gave up before", err, inference.Cancelled, `the load of the model "late" was cancelled`)
	}
	if err := s.Unload(t.Context(), "late"); err != nil {
		t.Error(err)
	}
	s.empty(t)
	if s.opened.Load() != 0 {
		t.Errorf("%d models were opened for nobody", s.opened.Load())
	}
}

// TestCancel gives up while a model is being loaded, and while it waits for its turn.
func TestCancel(t *testing.T) {
	s := newShelf(t, options())
	s.opening = make(chan struct{})
	load := func(ctx context.Context, id string) chan error {
		ended := make(chan error, 1)
		path := s.file(t, id, mib)
		go func() { _, err := s.Load(ctx, id, path); ended <- err }()
		return ended
	}
	first, cancelFirst := context.WithCancel(t.Context())
	loading := load(first, "loading")
	eventually(t, "the first load to begin", func() bool { return s.open.Load() == 1 })
	second, cancelSecond := context.WithCancel(t.Context())
	waiting := load(second, "waiting")
	wantKind(t, "a model that is being loaded", s.ask("loading"), inference.Unavailable, "is being loaded")

	cancelSecond()
	wantKind(t, "who waits", receive(t, waiting), inference.Cancelled, `the load of the model "waiting" was cancelled`)
	if err := s.Unload(t.Context(), "waiting"); err != nil {
		t.Error(err)
	}
	cancelFirst()
	wantKind(t, "who loads", receive(t, loading), inference.Cancelled, `the load of the model "loading" was cancelled`)

	// What the load took is free when the model is unloaded, and not before.
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	wantKind(t, "an unload before the load has ended", s.Unload(soon, "loading"), inference.Late, "")
	if s.Used() == 0 {
		t.Error("memory counts as free that is not")
	}
	unloaded := make(chan error, 1)
	go func() { unloaded <- s.Unload(context.Background(), "loading") }()
	receive(t, s.opening)
	if err := receive(t, unloaded); err != nil {
		t.Error(err)
	}
	s.empty(t)
	if s.opened.Load() != 1 {
		t.Errorf("%d models were opened, although one was cancelled before its turn", s.opened.Load())
	}

	// One of two who want the same model gives up; the other has it.
	keeps := load(t.Context(), "both")
	eventually(t, "the load to begin", func() bool { return s.open.Load() == 1 })
	impatient, giveUp := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer giveUp()
	_, err := s.Load(impatient, "both", filepath.Join(s.dir, "both"))
	wantKind(t, "who gives up", err, inference.Cancelled, "")
	receive(t, s.opening)
	if err := receive(t, keeps); err != nil {
		t.Error(err)
	}
	if err := s.ask("both"); err != nil {
		t.Error(err)
	}
}

// TestUnloadWaits unloads a model in the middle of a request.
func TestUnloadWaits(t *testing.T) {
	s := newShelf(t, options())
	s.running = make(chan struct{})
	if _, err := s.Load(t.Context(), "a", s.file(t, "a", mib)); err != nil {
		t.Fatal(err)
	}
	answered, unloaded := make(chan error, 1), make(chan error, 1)
	m, done, err := s.Use("a")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer done()
		_, err := m.Infer(context.Background(), []*tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{1}, Data: make([]byte, 4)}}, nil)
		answered <- err
	}()
	go func() { unloaded <- s.Unload(context.Background(), "a") }()
	eventually(t, "the model to be gone for others", func() bool { return len(s.Names()) == 0 })
	wantKind(t, "a request after the unload", s.ask("a"), inference.NotFound, "")
	select {
	case err := <-unloaded:
		t.Fatalf("unloaded in the middle of a request: %v", err)
	default:
	}
	// The same model comes again while the former one is still answering.
	if _, err := s.Load(t.Context(), "a", s.file(t, "a", mib)); err != nil {
		t.Fatal(err)
	}
	receive(t, s.running)
	if err := errors.Join(receive(t, answered), receive(t, unloaded)); err != nil {
		t.Error(err)
	}
	if s.open.Load() != 1 {
		t.Errorf("%d models are open, want the second", s.open.Load())
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Error(err)
	}
	s.empty(t)
}

// TestManyAtOnce loads, asks and unloads the same few models from many sides.
func TestManyAtOnce(t *testing.T) {
	o := options()
	o.Loading, o.Running = 3, 2
	s := newShelf(t, o)
	var all sync.WaitGroup
	var answers atomic.Int32
	for i := range 8 {
		id := fmt.Sprint("model-", i%4)
		path := s.file(t, id, 0)
		all.Go(func() {
			for range 50 {
				_, err := s.Load(context.Background(), id, path)
				if err != nil && inference.KindOf(err) != inference.Cancelled { // another unloaded it meanwhile
					t.Error(err)
				}
				switch err := s.ask(id); {
				case err == nil:
					answers.Add(1)
				case inference.KindOf(err) == inference.NotFound, inference.KindOf(err) == inference.Unavailable:
				default:
					t.Error(err)
				}
				if err := s.Unload(context.Background(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if answers.Load() == 0 {
		t.Error("no model ever answered")
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Error(err)
	}
	s.empty(t)
}

func TestPurge(t *testing.T) {
	s := newShelf(t, options())
	var want []string
	for i := range 10 {
		id := fmt.Sprint("model-", i)
		want = append(want, id)
		if _, err := s.Load(t.Context(), id, s.file(t, id, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, s.Names()); diff != "" {
		t.Error(diff)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Error(err)
	}
	s.empty(t)
}
