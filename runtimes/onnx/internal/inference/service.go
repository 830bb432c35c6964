// SPDX-License-Identifier: Apache-2.0

// Package inference is what all protocols share: which model there is, whether it takes requests, the check of inputs
// against it, the limits and the families of errors. It knows no protocol.
package inference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/modelplane/modelplane/internal/openinference/tensor"
	"github.com/modelplane/modelplane/runtimes/onnx/internal/batch"
)

// Version is the one version that a served model has.
const Version = "1"

// Platform is what the protocol calls the framework of the model.
const Platform = "onnx_onnxv1"

// ServerName is how the server introduces itself.
const ServerName = "modelplane-onnx"

// Extensions are the parts of the protocol that a server may leave out and this one has.
var Extensions = []string{"binary_tensor_data"}

// Service answers for one model.
type Service struct {
	Name    string
	Inputs  []tensor.Spec
	Outputs []tensor.Spec
	Metrics *Metrics
	Budget  *Budget
	// ClientTimeout is how long a client may take to read a piece of its answer.
	ClientTimeout time.Duration

	queue *batch.Queue
	ready atomic.Bool
}

// New makes a service that is ready.
func New(name string, inputs, outputs []tensor.Spec, runner batch.Runner, options batch.Options, budget *Budget) *Service {
	s := &Service{Name: name, Inputs: inputs, Outputs: outputs, Budget: budget, ClientTimeout: 30 * time.Second}
	s.Metrics = newMetrics(name, func() float64 { return float64(s.queue.Len()) }, s.Ready)
	s.queue = batch.New(runner, options, batch.Watch{Waited: s.Metrics.waited, Ran: s.Metrics.ran})
	s.ready.Store(true)
	return s
}

// Divisible says whether requests for a model may be put together: all its inputs and outputs have a first dimension of
// any size.
func Divisible(inputs, outputs []tensor.Spec) bool {
	return !slices.ContainsFunc(slices.Concat(inputs, outputs), func(s tensor.Spec) bool {
		return len(s.Shape) == 0 || s.Shape[0] >= 0
	})
}

// Ready says whether new requests should be sent here.
func (s *Service) Ready() bool { return s.ready.Load() }

// Drain makes the service say that it is not ready. Requests that come nevertheless are answered until Close.
func (s *Service) Drain() { s.ready.Store(false) }

// Close answers what waits and refuses the rest.
func (s *Service) Close() {
	s.Drain()
	s.queue.Close()
}

// Find refuses names and versions of models that are not here.
func (s *Service) Find(name, version string) error {
	if name != s.Name {
		return &Error{Kind: NotFound, Message: fmt.Sprintf("there is no model %q here; this server has %q", name, s.Name)}
	}
	if version != "" && version != Version {
		return &Error{Kind: NotFound, Message: fmt.Sprintf("model %q has no version %q; it has %q", name, version, Version)}
	}
	return nil
}

// Infer checks the inputs, runs the model and returns the outputs that are wanted, or all when none are named.
func (s *Service) Infer(ctx context.Context, inputs []*tensor.Tensor, wanted []string) ([]*tensor.Tensor, error) {
	ordered, err := s.arrange(inputs)
	if err != nil {
		return nil, err
	}
	picks, err := s.pick(wanted)
	if err != nil {
		return nil, err
	}
	outputs, err := s.queue.Do(ctx, ordered)
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
func (s *Service) arrange(inputs []*tensor.Tensor) ([]*tensor.Tensor, error) {
	ordered := make([]*tensor.Tensor, len(s.Inputs))
	for _, t := range inputs {
		i := slices.IndexFunc(s.Inputs, func(spec tensor.Spec) bool { return spec.Name == t.Name })
		if i < 0 {
			return nil, Invalidf("the model has no input %q; it has %s", t.Name, namesOf(s.Inputs))
		}
		if ordered[i] != nil {
			return nil, Invalidf("input %q is given twice", t.Name)
		}
		if err := s.Inputs[i].Check(t); err != nil {
			return nil, Invalidf("input %q: %v", t.Name, err)
		}
		ordered[i] = t
	}
	for i, t := range ordered {
		if t == nil {
			return nil, Invalidf("input %q is missing", s.Inputs[i].Name)
		}
	}
	return ordered, nil
}

func (s *Service) pick(wanted []string) ([]int, error) {
	var picks []int
	for _, name := range wanted {
		i := slices.IndexFunc(s.Outputs, func(spec tensor.Spec) bool { return spec.Name == name })
		if i < 0 {
			return nil, Invalidf("the model has no output %q; it has %s", name, namesOf(s.Outputs))
		}
		if slices.Contains(picks, i) {
			return nil, Invalidf("output %q is asked for twice", name)
		}
		picks = append(picks, i)
	}
	if picks == nil {
		for i := range s.Outputs {
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
