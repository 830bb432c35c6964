// SPDX-License-Identifier: Apache-2.0

// Package activation is what the plan of a service and the activator tell each other: which Services are the activator's,
// how their pods are scaled, and by what a request says whom it is for. It is plain data; who decides by it is the room of
// Standard mode on one side and the activator on the other.
package activation

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
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
	// Header names the component that a request is for, as Address makes it. Routes set it where hosts do not tell.
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
	// Key is what a request has to know that says by Header whom it is for; empty: no request is believed.
	Key string `json:"key,omitempty"`
}

// KeyOf is the key of a component. It comes from the UID of its service, which nobody outside the cluster learns and which
// nobody in it can choose: whoever may read the service, or its routes, may say that a request is for it.
func KeyOf(uid types.UID, component string) string {
	if uid == "" { // it is not in a cluster
		return ""
	}
	sum := sha256.Sum256([]byte("modelplane.dev/activation " + string(uid) + " " + component))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:keyLength]
}

// keyLength keeps 130 bits.
const keyLength = 26

// Address is the value of Header for a component.
func (s Settings) Address(namespace, component string) string {
	return component + "." + namespace + "/" + s.Key
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
	// MostHosts is a thousand of a service's own, that of the component, and its address.
	MostHosts   = 1002
	longestHost = 253
	longestIdle = 7 * 24 * 3600
	// longestText leaves room for other annotations: all of an object together take 256 KiB.
	longestText = 160 << 10
	// spareText is for what is beside hosts.
	spareText = 1 << 10
)

// Fit takes as many hosts as can be told to the activator, and a last one in any case, if it is not empty. It says how many are
// left out.
func (s *Settings) Fit(hosts []string, last string) (left int) {
	room, most := longestText-spareText, MostHosts
	if last != "" {
		room, most = room-longestHost, most-1
	}
	for i, host := range hosts {
		if room -= len(host) + len(`"",`); room < 0 || i == most {
			left, hosts = len(hosts)-i, hosts[:i]
			break
		}
	}
	if last != "" {
		hosts = append(slices.Clone(hosts), last)
	}
	s.Hosts = hosts
	return left
}

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
	case len(s.Hosts) > MostHosts || slices.ContainsFunc(s.Hosts, func(h string) bool { return h == "" || len(h) > longestHost }):
		return Settings{}, errors.New("its hosts are too many, too long or empty")
	case s.Key != "" && len(s.Key) != keyLength:
		return Settings{}, errors.New("its key is none")
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
