// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what one request may set in motion. Nodes may lead to each other in a circle, with a condition that ends it.
const (
	mostDepth = 100
	mostSteps = 1000
	// atOnce are the steps of one Ensemble that are taken at the same time.
	atOnce = 64
)

// passage is one request on its way through the graph.
type passage struct {
	*Router
	// headers are what every step gets.
	headers http.Header
	steps   atomic.Int64
}

// place is where in the graph a node is run.
type place struct {
	depth int
	// last says that what the node answers is the answer of the graph, which may be streamed.
	last bool
}

func (at place) below() place { return place{at.depth + 1, at.last} }

// node runs a node. Who gets an answer releases it.
func (p *passage) node(ctx context.Context, name string, input []byte, at place) (answer, error) {
	node := p.graph.Nodes[name]
	if node == nil {
		node = &Node{}
	}
	if at.depth >= mostDepth {
		return answer{}, failf(http.StatusInternalServerError, "node %s is reached through %d others, which is the most; look for nodes that lead to each other in a circle", name, at.depth)
	}
	switch node.Type {
	case Sequence:
		return p.sequence(ctx, name, node.Steps, input, at)
	case Splitter:
		return p.splitter(ctx, node.Steps, input, at)
	case Switch:
		return p.choose(ctx, node.Steps, input, at)
	case Ensemble:
		return p.ensemble(ctx, node.Steps, input, at)
	}
	return answer{}, failf(http.StatusInternalServerError, "invalid route type: %s", node.Type)
}

// step takes a step: to a node, or to a service.
func (p *passage) step(ctx context.Context, step *Step, input []byte, at place) (answer, error) {
	if p.steps.Add(1) > mostSteps {
		return answer{}, failf(http.StatusInternalServerError, "the request has taken %d steps, which is the most; look for nodes that lead to each other in a circle", mostSteps)
	}
	if step.NodeName != "" {
		return p.node(ctx, step.NodeName, input, at.below())
	}
	began := time.Now()
	got, err := p.caller.call(ctx, step, p.headers, input, at.last)
	p.metrics.step(step, got.status, err, time.Since(began))
	p.log.Debug("Called", "node", step.node, "step", step.label, "status", got.status, "took", time.Since(began).String(), "failed", err != nil)
	return got, err
}

// sequence takes steps in order, until one that others depend on fails or a condition ends it.
func (p *passage) sequence(ctx context.Context, name string, steps []Step, input []byte, at place) (answer, error) {
	if len(steps) == 0 {
		return answer{}, failf(http.StatusInternalServerError, "node %s is a Sequence without steps", name)
	}
	var last answer
	for i := range steps {
		step := &steps[i]
		if step.Condition != "" {
			met, err := p.goesOn(step, last.body)
			if err != nil {
				last.release()
				return answer{}, err
			}
			if !met {
				return last, nil
			}
		}
		next, err := p.next(ctx, step, i, input, last, place{at.depth, at.last && i == len(steps)-1})
		last.release()
		if err != nil {
			return answer{}, err
		}
		last = next
		if step.hard() && !last.good() {
			return last, nil
		}
	}
	return last, nil
}

// goesOn tries the condition of a step on the reply before it.
func (p *passage) goesOn(step *Step, reply []byte) (bool, error) {
	if !json.Valid(reply) {
		return false, failf(http.StatusInternalServerError, "invalid response")
	}
	return p.holds(step, reply)
}

// holds tries a condition on valid JSON, with the memory that this takes.
func (p *passage) holds(step *Step, body []byte) (bool, error) {
	share := p.caller.budget.Share()
	defer share.Release()
	if err := share.Grow(copies * int64(len(body))); err != nil {
		return false, err
	}
	return step.condition.met(body), nil
}

// next takes a step of a Sequence with what it gets: the node's input, or the reply before it or a part of that.
func (p *passage) next(ctx context.Context, step *Step, i int, input []byte, last answer, at place) (answer, error) {
	if step.response && i > 0 {
		input = last.body
	}
	takesPart := step.part != "" && i > 0
	if !takesPart && !step.MapPredictions {
		return p.step(ctx, step, input, at)
	}
	share := p.caller.budget.Share()
	defer share.Release()
	if err := share.Grow(copies * int64(len(input))); err != nil {
		return answer{}, err
	}
	if takesPart {
		if !json.Valid(input) {
			return answer{}, failf(http.StatusInternalServerError, "invalid response")
		}
		if input = part(input, step.part); input == nil {
			return answer{}, failf(http.StatusInternalServerError, "step %s of node %s gets %s, which the reply before it does not have", step.label, step.node, step.Data)
		}
	}
	if step.MapPredictions {
		input = instancesOf(input)
	}
	return p.step(ctx, step, input, at)
}

// splitter takes one step by chance. Weights are parts of a hundred.
func (p *passage) splitter(ctx context.Context, steps []Step, input []byte, at place) (answer, error) {
	drawn, sum := rand.Int64N(100), int64(0)
	for i := range steps {
		if sum += min(max(steps[i].Weight, 0), 100); drawn < sum {
			return p.step(ctx, &steps[i], input, at)
		}
	}
	return answer{}, failf(http.StatusInternalServerError, "no route was selected by the splitter")
}

// choose takes the first step whose condition holds for the input.
func (p *passage) choose(ctx context.Context, steps []Step, input []byte, at place) (answer, error) {
	if json.Valid(input) {
		for i := range steps {
			met, err := p.holds(&steps[i], input)
			if err != nil {
				return answer{}, err
			}
			if met {
				return p.step(ctx, &steps[i], input, at)
			}
		}
	}
	return answer{}, failf(http.StatusNotFound, "None of the routes matched with the switch condition")
}

// outcome is what became of one step of an Ensemble.
type outcome struct {
	answer
	err error
	// decides says that it is the outcome of the whole.
	decides bool
}

// ensemble takes all steps together. The first in the list that fails, of those that others depend on, decides; what
// stands after it in the list need not be waited for.
func (p *passage) ensemble(ctx context.Context, steps []Step, input []byte, at place) (answer, error) {
	outcomes := make([]outcome, len(steps))
	contexts, stops := make([]context.Context, len(steps)), make([]context.CancelFunc, len(steps))
	for i := range steps {
		contexts[i], stops[i] = context.WithCancel(ctx)
	}
	var all sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range steps {
		places <- struct{}{}
		all.Go(func() {
			outcomes[i] = p.oneOf(contexts[i], &steps[i], input, place{depth: at.depth})
			if outcomes[i].decides {
				for _, stop := range stops[i+1:] {
					stop()
				}
			}
			<-places
		})
	}
	all.Wait()
	for _, stop := range stops {
		stop()
	}
	first := slices.IndexFunc(outcomes, func(o outcome) bool { return o.decides })
	defer func() {
		for i := range outcomes {
			if i != first {
				outcomes[i].release()
			}
		}
	}()
	if first >= 0 {
		return outcomes[first].answer, outcomes[first].err
	}
	return p.together(steps, outcomes)
}

// oneOf takes a step of an Ensemble. It runs beside others, so that nothing may escape from it.
func (p *passage) oneOf(ctx context.Context, step *Step, input []byte, at place) (out outcome) {
	defer func() {
		if broken := recover(); broken != nil {
			p.log.Error("A step broke", "node", step.node, "step", step.label, "err", fmt.Sprint(broken))
			out = outcome{err: failf(http.StatusInternalServerError, "step %s of node %s broke", step.label, step.node), decides: true}
		}
	}()
	got, err := p.step(ctx, step, input, at)
	switch {
	case err != nil && step.hard():
		return outcome{err: err, decides: true}
	case err != nil:
		return outcome{answer: answer{body: told(err.Error())}}
	case step.hard() && !got.good():
		return outcome{answer: got, decides: true}
	case fits(got.body):
		return outcome{answer: got}
	}
	got.release()
	cause := fmt.Sprintf("the reply of step %s of node %s is no JSON object", step.label, step.node)
	if step.hard() {
		return outcome{err: failf(http.StatusInternalServerError, "%s", cause), decides: true}
	}
	return outcome{answer: answer{body: told(cause)}}
}

// fits tells whether a reply can stand under its step's name.
func fits(body []byte) bool {
	return isObject(body) || string(bytes.TrimSpace(body)) == "null"
}

// together puts replies under the names of their steps, in the order of the names. They stay as they came: no digit of a
// number is lost.
func (p *passage) together(steps []Step, outcomes []outcome) (answer, error) {
	size := int64(2)
	replies := make(map[string][]byte, len(steps))
	for i := range steps {
		replies[steps[i].label] = outcomes[i].body
		size += int64(len(outcomes[i].body) + 6*len(steps[i].label) + 4)
	}
	share := p.caller.budget.Share()
	if err := share.Grow(size); err != nil {
		return answer{}, err
	}
	body := append(make([]byte, 0, size), '{')
	for _, label := range slices.Sorted(maps.Keys(replies)) {
		key, err := json.Marshal(label)
		if err != nil {
			panic(err) // strings always encode
		}
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(append(append(body, key...), ':'), replies[label]...)
	}
	return answer{status: http.StatusOK, body: append(body, '}'), share: share}, nil
}
