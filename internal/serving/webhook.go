// SPDX-License-Identifier: Apache-2.0

// Package serving turns InferenceServices and what they refer to into running
// model servers. It decides; reading and writing the cluster is the engine's,
// and other domains are not its business.
package serving

import (
	"sync/atomic"

	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/serving/validation"
)

// Settings hand the configuration to webhooks, which are put together before
// there is a cluster to read it from. Without a cluster they have none, and the
// rules look among the manifests.
type Settings struct{ source atomic.Pointer[config.Source] }

// Current implements config.Source; it is nil until there is a source.
func (s *Settings) Current() *config.Config {
	if source := s.source.Load(); source != nil {
		return (*source).Current()
	}
	return nil
}

// SetSource takes the configuration from a source from now on.
func (s *Settings) SetSource(source config.Source) { s.source.Store(&source) }

// Admission returns the kinds of the domain with the rules that their schemas
// cannot express.
func (s *Settings) Admission() ([]admission.Kind, error) {
	kinds, err := admission.Kinds(admission.Serving)
	if err != nil {
		return nil, err
	}
	validation.Rules{Config: s}.Apply(kinds)
	return kinds, nil
}

// Admission returns the kinds with settings that are found among the manifests.
func Admission() ([]admission.Kind, error) { return new(Settings).Admission() }
