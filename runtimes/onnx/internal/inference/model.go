// SPDX-License-Identifier: Apache-2.0

package inference

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/batch"
)

// Model answers for one model.
type Model struct {
	Name    string
	Inputs  []tensor.Spec
	Outputs []tensor.Spec

	queue *batch.Queue
}

// NewModel makes a model that takes requests until it is closed.
func NewModel(name string, inputs, outputs []tensor.Spec, runner batch.Runner, options batch.Options, metrics *Metrics) *Model {
	m := &Model{Name: name, Inputs: inputs, Outputs: outputs}
	m.queue = batch.New(runner, options, batch.Watch{Waited: metrics.waited, Ran: metrics.ran})
	return m
}

// Waiting is how many requests wait for a worker.
func (m *Model) Waiting() int { return m.queue.Len() }

// Close answers what waits, refuses the rest and returns when nothing runs any more.
func (m *Model) Close() { m.queue.Close() }

// Divisible says whether requests for a model may be put together: all its inputs and outputs have a first dimension of
// any size.
func Divisible(inputs, outputs []tensor.Spec) bool {
	return !slices.ContainsFunc(slices.Concat(inputs, outputs), func(s tensor.Spec) bool {
		return len(s.Shape) == 0 || s.Shape[0] >= 0
	})
}

// Infer checks the inputs, runs the model and returns the outputs that are wanted, or all when none are named.
func (m *Model) Infer(ctx context.Context, inputs []*tensor.Tensor, wanted []string) ([]*tensor.Tensor, error) {
	ordered, err := m.arrange(inputs)
	if err != nil {
		return nil, err
	}
	picks, err := m.pick(wanted)
	if err != nil {
		return nil, err
	}
	outputs, err := m.queue.Do(ctx, ordered)
	if err != nil {
		return nil, classify(err)
	}
	picked := make([]*tensor.Tensor, len(picks))
	for i, k := range picks {
		picked[i] = outputs[k]
	}
	return picked, nil
}

// arrange puts the inputs into the model's order.
func (m *Model) arrange(inputs []*tensor.Tensor) ([]*tensor.Tensor, error) {
	ordered := make([]*tensor.Tensor, len(m.Inputs))
	for _, t := range inputs {
		i := slices.IndexFunc(m.Inputs, func(spec tensor.Spec) bool { return spec.Name == t.Name })
		if i < 0 {
			return nil, Invalidf("the model has no input %q; it has %s", t.Name, namesOf(m.Inputs))
		}
		if ordered[i] != nil {
			return nil, Invalidf("input %q is given twice", t.Name)
		}
		if err := m.Inputs[i].Check(t); err != nil {
			return nil, Invalidf("input %q: %v", t.Name, err)
		}
		ordered[i] = t
	}
	for i, t := range ordered {
		if t == nil {
			return nil, Invalidf("input %q is missing", m.Inputs[i].Name)
		}
	}
	return ordered, nil
}

func (m *Model) pick(wanted []string) ([]int, error) {
	var picks []int
	for _, name := range wanted {
		i := slices.IndexFunc(m.Outputs, func(spec tensor.Spec) bool { return spec.Name == name })
		if i < 0 {
			return nil, Invalidf("the model has no output %q; it has %s", name, namesOf(m.Outputs))
		}
		if slices.Contains(picks, i) {
			return nil, Invalidf("output %q is asked for twice", name)
		}
		picks = append(picks, i)
	}
	if picks == nil {
		for i := range m.Outputs {
			picks = append(picks, i)
		}
	}
	return picks, nil
}

func namesOf(specs []tensor.Spec) string {
	text := ""
	for i, s := range specs {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%q", s.Name)
	}
	return text
}

func classify(err error) error {
	switch {
	case errors.Is(err, batch.ErrFull):
		return &Error{Kind: Busy, Message: err.Error()}
	case errors.Is(err, batch.ErrClosed):
		return &Error{Kind: Unavailable, Message: err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Kind: Late, Message: "the deadline passed before the model answered"}
	case errors.Is(err, context.Canceled):
		return &Error{Kind: Cancelled, Message: "the client went away"}
	}
	return &Error{Kind: Internal, Message: err.Error()}
}
