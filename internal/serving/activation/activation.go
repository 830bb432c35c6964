// SPDX-License-Identifier: Apache-2.0

// Package activation is what the plan of a service and the activator tell each other: which Services are the activator's,
// how their pods are scaled, and by what a request says whom it is for. It is plain data; who decides by it is the room of
// Standard mode on one side and the activator on the other.
package activation

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// Label is on the Service that leads to the pods of a component behind the activator and, because Kubernetes copies
	// the labels of a Service, on its EndpointSlices.
	Label = "modelplane.dev/activation"
	// LabelValue of it.
	LabelValue = "pods"
	// Annotation of that Service holds its Settings.
	Annotation = "modelplane.dev/activation"
	// Suffix is what the name of that Service ends in, after the name of the component.
	Suffix = "-pods"
	// LabelBehind is in the selector of the component's own Service while requests go through the activator. No pod has
	// it, so that Kubernetes takes the pods off the Service, and brings them back when the label goes.
	LabelBehind = "modelplane.dev/behind"
	// ValueBehind of it.
	ValueBehind = "activator"
	// LabelActivator is, with the value ValueActivator, on the Service of the activator itself and, with ValueLeaving, on that of a component whose
	// requests are about to go to its pods again: by it both have EndpointSlices that are found.
	LabelActivator = "modelplane.dev/activator"
	// ValueActivator and ValueLeaving of it.
	ValueActivator = "true"
	ValueLeaving   = "leaving"
	// Header names the component that a request is for, as service.namespace. Routes set it where hosts do not tell.
	Header = "Modelplane-Service"
	// PortName is that of the activator's port for requests.
	PortName = "http"
)

// What pods are counted by.
const (
	Concurrency = "concurrency"
	RPS         = "rps"
)

// Settings are how one component is scaled.
type Settings struct {
	// Metric is Concurrency or RPS, and Target how much of it a pod is meant to have.
	Metric string `json:"metric"`
	Target int32  `json:"target"`
	// Limit is the most requests that a pod may have at a time; 0: any number.
	Limit int64 `json:"limit,omitempty"`
	Min   int32 `json:"min"`
	Max   int32 `json:"max"`
	// IdleSeconds without a request come before the last pod goes; 0: as the activator is set up.
	IdleSeconds int64 `json:"idleSeconds,omitempty"`
	// Hosts lead to the component from outside.
	Hosts []string `json:"hosts,omitempty"`
}

// Encode is the annotation.
func (s Settings) Encode() string {
	text, err := json.Marshal(s)
	if err != nil {
		return "" // numbers and texts can be written
	}
	return string(text)
}

const (
	mostHosts   = 100
	longestHost = 253
	longestIdle = 7 * 24 * 3600
	longestText = 64 << 10
)

// Decode reads the annotation, which anybody may have written who may write Services.
func Decode(text string) (Settings, error) {
	var s Settings
	if len(text) > longestText {
		return s, errors.New("it is too long")
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Settings{}, fmt.Errorf("it is no JSON object of settings: %w", err)
	}
	switch {
	case s.Metric != Concurrency && s.Metric != RPS:
		return Settings{}, fmt.Errorf("metric is %q, and must be %s or %s", s.Metric, Concurrency, RPS)
	case s.Target < 1, s.Limit < 0, s.Min < 0, s.Max < 1, s.Min > s.Max, s.IdleSeconds < 0, s.IdleSeconds > longestIdle:
		return Settings{}, errors.New("its numbers contradict each other or are out of range")
	case len(s.Hosts) > mostHosts || slices.ContainsFunc(s.Hosts, func(h string) bool { return h == "" || len(h) > longestHost }):
		return Settings{}, errors.New("its hosts are too many, too long or empty")
	case len(s.Hosts) == 0:
		s.Hosts = nil
	}
	return s, nil
}

// PodsService is the name of the Service that leads to the pods of a component.
func PodsService(component string) string { return component + Suffix }

// Component is the other way round; empty for a Service that has another name.
func Component(service string) string {
	name, ok := strings.CutSuffix(service, Suffix)
	if !ok {
		return ""
	}
	return name
}
