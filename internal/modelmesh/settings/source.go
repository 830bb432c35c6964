// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/internal/engine"
)

// The ConfigMaps in the manager's own namespace, and their keys.
const (
	Name         = "model-serving-config"
	Key          = "config.yaml"
	DefaultsName = "model-serving-config-defaults"
	DefaultsKey  = "config-defaults.yaml"
)

// Current is what holds now, and what is wrong with what people wrote.
type Current struct {
	*Settings
	// Faults are why the texts cannot be used; what held before goes on. Unknown are keys that have no effect.
	Faults, Unknown []string
	// InDoubt is set when what held before is not known, so that nothing that exists may be changed.
	InDoubt bool
}

// Problem is what stands in the way of a decision, nil if nothing does.
func (c Current) Problem() *engine.Problem {
	if !c.InDoubt {
		return nil
	}
	return engine.WaitFor("InvalidConfiguration", "ConfigMap %s cannot be used: %s. Mend it; until then everything is left as it is.",
		Name, strings.Join(c.Faults, "; "))
}

// Source reads the ConfigMaps through the engine, which wakes whoever has asked when they change. It remembers the last
// texts that could be used. It may be used by many at the same time, and must not be copied.
type Source struct {
	mu       sync.Mutex
	platform Platform
	texts    string // as they were when current was made
	read     bool
	current  Current
}

// NewSource knows nothing but the defaults.
func NewSource() *Source { return &Source{platform: Platform{}.withDefaults()} }

// WithPlatform tells it where it runs.
func (s *Source) WithPlatform(p Platform) *Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.platform, s.read = p.withDefaults(), false
	return s
}

// Platform is where it runs.
func (s *Source) Platform() Platform {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.platform
}

// Observe reads what holds now.
func (s *Source) Observe(ctx context.Context, r engine.Reader) (Current, error) {
	defaults, err := s.text(ctx, r, DefaultsName, DefaultsKey)
	if err != nil {
		return Current{}, err
	}
	user, err := s.text(ctx, r, Name, Key)
	if err != nil {
		return Current{}, err
	}
	return s.take(slices.Concat(defaults, user)), nil
}

// Enabled tells whether multi-model runtimes run in a namespace. In the manager's own, where nobody has asked for them, they
// do only if there is a place to keep what they have loaded.
func (s *Source) Enabled(ctx context.Context, r engine.Reader, ns metav1.Object, now Current) (bool, error) {
	p := s.Platform()
	if !p.Enabled(ns) {
		return false, nil
	}
	if _, asked := ns.GetLabels()[LabelEnabled]; asked {
		return true, nil
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.EtcdSecretName(now.Settings)}, secret)
	return err == nil, client.IgnoreNotFound(err)
}

func (s *Source) text(ctx context.Context, r engine.Reader, name, key string) ([]Layer, error) {
	cm := &corev1.ConfigMap{}
	err := r.GetUncached(ctx, types.NamespacedName{Namespace: s.Platform().Namespace, Name: name}, cm)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	text, ok := cm.Data[key]
	if !ok {
		return nil, nil
	}
	return []Layer{{name, key, text}}, nil
}

// take makes texts the ones that hold, if they can be used.
func (s *Source) take(layers []Layer) Current {
	var all strings.Builder
	for _, l := range layers {
		all.WriteString(l.Name + "\x00" + l.Text + "\x00")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read && s.texts == all.String() {
		return s.current
	}
	next, unknown, faults := Parse(s.platform.PodImage, layers...)
	last, known := s.current.Settings, s.read && !s.current.InDoubt
	switch {
	case len(faults) == 0:
		s.current = Current{Settings: next, Unknown: unknown}
	case known:
		s.current = Current{Settings: last, Faults: faults, Unknown: unknown}
	default:
		s.current = Current{Settings: Default(s.platform.PodImage), Faults: faults, Unknown: unknown, InDoubt: true}
	}
	s.texts, s.read = all.String(), true
	return s.current
}
