// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Call is something that another system is asked to do on behalf of an object.
// It must be safe to make it twice: what was answered is forgotten with the
// process.
type Call struct {
	// Name says what is asked for, in metrics too. It must not be different for
	// every object.
	Name string
	// Key tells several calls of one name and object apart.
	Key string
	// Request is what is asked, a plain value. A call whose request is the same as
	// before is not made again once it succeeded.
	Request any
}

// Answer is what came of a call.
type Answer struct {
	// Done says that the call succeeded, with this Value.
	Done  bool
	Value any
	// Err is why the last attempt failed, and Failures how many did in a row.
	Err      error
	Failures int
}

// Executor makes calls. Its context ends after Spec.CallTimeout.
type Executor func(ctx context.Context, who types.NamespacedName, c Call) (any, error)

var callsMade = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "modelplane_calls_total",
	Help: "Calls to other systems by controller, call and outcome: ok, failed.",
}, []string{"controller", "call", "outcome"})

func init() { metrics.Registry.MustRegister(callsMade) }

// Bounds of calls, so that a system that does not answer holds up nothing else.
const (
	defaultCallTimeout = 10 * time.Second
	callsAtOnce        = 10
	shortestCallPause  = 500 * time.Millisecond
	longestCallPause   = time.Minute
)

// caller makes the calls of one controller, apart from its workers: an answer
// wakes the object like any other event.
type caller struct {
	controller string
	execute    Executor
	timeout    time.Duration
	wake       func(types.NamespacedName)
	slots      chan struct{}

	mu sync.Mutex
	by map[types.NamespacedName]map[callKey]*ongoing
}

type callKey struct{ name, key string }

// ongoing is a call that a plan names.
type ongoing struct {
	Call
	answer Answer
	ctx    context.Context
	stop   context.CancelFunc
}

func newCaller(s *Spec, wake func(types.NamespacedName)) *caller {
	c := &caller{controller: s.Name, execute: s.Executor, timeout: s.CallTimeout, wake: wake,
		slots: make(chan struct{}, callsAtOnce), by: map[types.NamespacedName]map[callKey]*ongoing{}}
	if c.timeout <= 0 {
		c.timeout = defaultCallTimeout
	}
	return c
}

// perform sees to it that these calls, and no others, are made for an object. It
// does not wait for them.
func (c *caller) perform(who types.NamespacedName, calls []Call) *Problem {
	if len(calls) > 0 && c.execute == nil {
		return badPlan(fmt.Errorf("the plan names the call %s, but the controller has no Executor", calls[0].Name))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := map[callKey]bool{}
	for _, call := range calls {
		key := callKey{call.Name, call.Key}
		wanted[key] = true
		have := c.by[who][key]
		if have != nil && reflect.DeepEqual(have.Request, call.Request) {
			continue
		}
		if have != nil {
			have.stop()
		}
		c.begin(who, key, call)
	}
	for key, have := range c.by[who] {
		if !wanted[key] {
			have.stop()
			delete(c.by[who], key)
		}
	}
	if len(c.by[who]) == 0 {
		delete(c.by, who)
	}
	return nil
}

func (c *caller) begin(who types.NamespacedName, key callKey, call Call) {
	if c.by[who] == nil {
		c.by[who] = map[callKey]*ongoing{}
	}
	o := &ongoing{Call: call}
	o.ctx, o.stop = context.WithCancel(context.Background()) // ends with the wish for it, or the process
	c.by[who][key] = o
	go c.insist(who, o)
}

// insist calls until it succeeds or nobody wants it any more.
func (c *caller) insist(who types.NamespacedName, o *ongoing) {
	pause := shortestCallPause
	for {
		select {
		case c.slots <- struct{}{}:
		case <-o.ctx.Done():
			return
		}
		value, err := c.once(who, o)
		<-c.slots
		if o.ctx.Err() != nil {
			return
		}
		c.note(o, value, err)
		c.wake(who)
		if err == nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-o.ctx.Done():
			return
		}
		pause = min(2*pause, longestCallPause)
	}
}

func (c *caller) once(who types.NamespacedName, o *ongoing) (value any, err error) {
	ctx, cancel := context.WithTimeout(o.ctx, c.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the call %s panicked: %v", o.Name, p)
		}
	}()
	return c.execute(ctx, who, o.Call)
}

func (c *caller) note(o *ongoing, value any, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		o.answer.Err = err
		o.answer.Failures++
		callsMade.WithLabelValues(c.controller, o.Name, "failed").Inc()
		return
	}
	o.answer = Answer{Done: true, Value: value}
	callsMade.WithLabelValues(c.controller, o.Name, "ok").Inc()
}

func (c *caller) answer(who types.NamespacedName, name, key string) Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.by[who][callKey{name, key}]; o != nil {
		return o.answer
	}
	return Answer{}
}

func (c *caller) forget(who types.NamespacedName) { _ = c.perform(who, nil) }
