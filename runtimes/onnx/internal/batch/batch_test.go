// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// double answers each number with twice its value.
type double struct {
	runs    atomic.Int64
	largest atomic.Int64
	gate    chan struct{} // a run waits for one element, if there is a gate
	entered chan struct{}
}

func (d *double) Run(inputs []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if d.gate != nil {
		d.entered <- struct{}{}
		<-d.gate
	}
	d.runs.Add(1)
	in := inputs[0]
	for rows := in.Rows(); ; {
		most := d.largest.Load()
		if rows <= most || d.largest.CompareAndSwap(most, rows) {
			break
		}
	}
	out := &tensor.Tensor{Name: "out", Type: tensor.Int64, Shape: in.Shape}
	for i := range in.Len() {
		v := binary.LittleEndian.Uint64(in.Data[8*i:])
		if v == 13 {
			return nil, errors.New("13 is not possible")
		}
		if v == 666 {
			panic("a defect")
		}
		out.Data = binary.LittleEndian.AppendUint64(out.Data, 2*v)
	}
	return []*tensor.Tensor{out}, nil
}

func numbers(width int64, values ...uint64) []*tensor.Tensor {
	t := &tensor.Tensor{Name: "in", Type: tensor.Int64, Shape: []int64{int64(len(values)) / width, width}}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, v)
	}
	return []*tensor.Tensor{t}
}

func quiet() Watch {
	return Watch{Waited: func(time.Duration) {}, Ran: func(int, int64, time.Duration) {}}
}

func (d *double) queue(t *testing.T, o Options) *Queue {
	t.Helper()
	q := New(d, o, quiet())
	t.Cleanup(q.Close)
	return q
}

func check(t *testing.T, outputs []*tensor.Tensor, values ...uint64) {
	t.Helper()
	if len(outputs) != 1 || outputs[0].Len() != len(values) {
		t.Errorf("%d outputs for %d values", len(outputs), len(values))
		return
	}
	for i, v := range values {
		if got := binary.LittleEndian.Uint64(outputs[0].Data[8*i:]); got != 2*v {
			t.Errorf("%d is answered with %d", v, got)
		}
	}
}

// TestOwnAnswers sends many requests of different sizes at once, some of them bad; each must get its own answer.
func TestOwnAnswers(t *testing.T) {
	for _, o := range []Options{
		{Workers: 1, Queue: 1000, MaxRows: 1},
		{Workers: 2, Queue: 1000, MaxRows: 16, MaxDelay: time.Millisecond},
		{Workers: 3, Queue: 1000, MaxRows: 1000, MaxDelay: 0},
	} {
		t.Run(fmt.Sprintf("%d rows", o.MaxRows), func(t *testing.T) {
			d := &double{}
			q := d.queue(t, o)
			var all sync.WaitGroup
			for client := range uint64(20) {
				all.Go(func() {
					for i := range uint64(30) {
						width := int64(1 + i%2)
						values := make([]uint64, width*int64(1+i%4))
						for k := range values {
							values[k] = 1000 + client*1000 + i*10 + uint64(k)
						}
						if i%10 == 9 {
							values[0] = 13
						}
						outputs, err := q.Do(t.Context(), numbers(width, values...))
						if i%10 == 9 {
							if err == nil {
								t.Error("a bad request was answered")
							}
							continue
						}
						if err != nil {
							t.Error(err)
							continue
						}
						check(t, outputs, values...)
					}
				})
			}
			all.Wait()
			if most := d.largest.Load(); o.MaxRows > 1 && most > o.MaxRows {
				t.Errorf("a run had %d rows, %d are allowed", most, o.MaxRows)
			}
		})
	}
}

// blocked makes a queue whose only worker is busy until release is called.
func blocked(t *testing.T, o Options) (*double, *Queue, chan error, func()) {
	t.Helper()
	d := &double{gate: make(chan struct{}), entered: make(chan struct{}, 100)}
	q := d.queue(t, o)
	first := make(chan error, 1)
	go func() {
		_, err := q.Do(context.Background(), numbers(1, 1))
		first <- err
	}()
	select {
	case <-d.entered:
	case <-time.After(patience):
		t.Fatal("the worker did not begin")
	}
	return d, q, first, sync.OnceFunc(func() { close(d.gate) })
}

// fill sends requests and waits until they are in the queue.
func fill(t *testing.T, q *Queue, count int) chan error {
	t.Helper()
	answers := make(chan error, count)
	for i := range count {
		go func() {
			outputs, err := q.Do(context.Background(), numbers(1, uint64(100+i)))
			if err == nil {
				check(t, outputs, uint64(100+i))
			}
			answers <- err
		}()
	}
	for deadline := time.Now().Add(patience); q.Len() < count; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d requests wait", q.Len(), count)
		}
		<-time.After(time.Millisecond)
	}
	return answers
}

func TestFull(t *testing.T) {
	_, q, first, release := blocked(t, Options{Workers: 1, Queue: 5, MaxRows: 1})
	defer release()
	answers := fill(t, q, 5)
	if _, err := q.Do(t.Context(), numbers(1, 1)); !errors.Is(err, ErrFull) {
		t.Errorf("a request too many: %v", err)
	}
	release()
	for range 5 {
		if err := <-answers; err != nil {
			t.Errorf("a request that waited: %v", err)
		}
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestJoined proves that what waits goes into one run.
func TestJoined(t *testing.T) {
	d, q, first, release := blocked(t, Options{Workers: 1, Queue: 50, MaxRows: 32, MaxDelay: time.Microsecond})
	defer release()
	answers := fill(t, q, 20)
	release()
	for range 20 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if runs := d.runs.Load(); runs != 2 || d.largest.Load() != 20 {
		t.Errorf("%d runs, the largest with %d rows; want 2 and 20", runs, d.largest.Load())
	}
}

func TestCloseAnswersWhatWaits(t *testing.T) {
	_, q, first, release := blocked(t, Options{Workers: 1, Queue: 5, MaxRows: 1})
	defer release()
	answers := fill(t, q, 3)
	closed := make(chan struct{})
	go func() {
		q.Close()
		close(closed)
	}()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for deadline := time.Now().Add(patience); ; {
		// Whoever went away already takes a place but waits for nothing.
		if _, err := q.Do(gone, numbers(1, 1)); errors.Is(err, ErrClosed) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("requests are still taken")
		}
	}
	release()
	for range 3 {
		if err := <-answers; err != nil {
			t.Errorf("a request that waited: %v", err)
		}
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	<-closed
}

// TestGone proves that nobody runs a request whose client went away while it waited.
func TestGone(t *testing.T) {
	d, q, first, release := blocked(t, Options{Workers: 1, Queue: 5, MaxRows: 1})
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := q.Do(ctx, numbers(1, 7))
		gone <- err
	}()
	for deadline := time.Now().Add(patience); q.Len() == 0 && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the client heard %v", err)
	}
	release()
	if err := <-first; err != nil {
		t.Error(err)
	}
	q.Close()
	if runs := d.runs.Load(); runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
}

func TestPanic(t *testing.T) {
	q := (&double{}).queue(t, Options{Workers: 1, Queue: 5, MaxRows: 8})
	if _, err := q.Do(t.Context(), numbers(1, 666)); err == nil {
		t.Error("a panic was answered")
	}
	outputs, err := q.Do(t.Context(), numbers(1, 5))
	if err != nil {
		t.Fatal(err)
	}
	check(t, outputs, 5)
}

// total is a model whose output cannot be taken apart by rows.
type total struct{ gated *double }

func (s total) Run(inputs []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if _, err := s.gated.Run(inputs); err != nil {
		return nil, err
	}
	sum := uint64(0)
	for i := range inputs[0].Len() {
		sum += binary.LittleEndian.Uint64(inputs[0].Data[8*i:])
	}
	return numbers(1, 2*sum), nil
}

// TestIndivisible joins requests for such a model; everybody must get the sum of their own numbers all the same.
func TestIndivisible(t *testing.T) {
	d := &double{gate: make(chan struct{}), entered: make(chan struct{}, 100)}
	q := New(total{d}, Options{Workers: 1, Queue: 50, MaxRows: 32}, quiet())
	defer q.Close()
	first := make(chan error, 1)
	go func() {
		_, err := q.Do(context.Background(), numbers(1, 1))
		first <- err
	}()
	<-d.entered
	answers := fill(t, q, 10)
	close(d.gate)
	for range 10 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if !q.alone.Load() {
		t.Error("the queue did not learn that requests cannot be put together")
	}
}
