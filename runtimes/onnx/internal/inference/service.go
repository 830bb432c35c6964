// SPDX-License-Identifier: Apache-2.0

// Package inference is what all protocols share: which models there are, whether they take requests, the check of inputs
// against them, the limits and the families of errors. It knows no protocol.
package inference

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Version is the one version that a served model has.
const Version = "1"

// Platform is what the protocol calls the framework of the model.
const Platform = "onnx_onnxv1"

// ServerName is how the server introduces itself.
const ServerName = "modelplane-onnx"

// Extensions are the parts of the protocol that a server may leave out and this one has.
var Extensions = []string{"binary_tensor_data"}

// Models are what a service answers for.
type Models interface {
	// Use finds a model, which stays until the function is called that comes with it.
	Use(name string) (*Model, func(), error)
	// Names are those of all models, in order.
	Names() []string
	// Waiting is how many requests wait for their turn.
	Waiting() int
}

// Service answers for models.
type Service struct {
	Metrics *Metrics
	Budget  *Budget
	// ClientTimeout is how long a client may take to read a piece of its answer.
	ClientTimeout time.Duration

	models Models
	ready  atomic.Bool
}

// New makes a service that is ready.
func New(models Models, metrics *Metrics, budget *Budget) *Service {
	s := &Service{models: models, Metrics: metrics, Budget: budget, ClientTimeout: 30 * time.Second}
	metrics.service(models.Waiting, s.Ready)
	s.ready.Store(true)
	return s
}

// Ready says whether new requests should be sent here.
func (s *Service) Ready() bool { return s.ready.Load() }

// Drain makes the service say that it is not ready. Requests that come nevertheless are answered.
func (s *Service) Drain() { s.ready.Store(false) }

// Names are those of all models.
func (s *Service) Names() []string { return s.models.Names() }

// Use finds a model and refuses names and versions that are not here. The model stays until the function is called that
// comes with it.
func (s *Service) Use(name, version string) (*Model, func(), error) {
	m, done, err := s.models.Use(name)
	if err != nil {
		return nil, nil, err
	}
	if version != "" && version != Version {
		done()
		return nil, nil, &Error{Kind: NotFound, Message: fmt.Sprintf("model %q has no version %q; it has %q", name, version, Version)}
	}
	return m, done, nil
}

// Only is the models of a server that has one.
type Only struct{ Model *Model }

// Use implements Models.
func (o Only) Use(name string) (*Model, func(), error) {
	if name != o.Model.Name {
		return nil, nil, &Error{Kind: NotFound, Message: fmt.Sprintf("there is no model %q here; this server has %q", name, o.Model.Name)}
	}
	return o.Model, func() {}, nil
}

// Names implements Models.
func (o Only) Names() []string { return []string{o.Model.Name} }

// Waiting implements Models.
func (o Only) Waiting() int { return o.Model.Waiting() }
