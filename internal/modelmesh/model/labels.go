// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// First letters of labels. Runtimes have them, and types of models are made of them.
const (
	formatLabel   = "mt:"
	protocolLabel = "pv:"
	runtimeLabel  = "rt:"
	and           = "|"
)

// label is the type of a model: the runtime that it is pinned to, or else its format and protocol.
func (s *spec) label() string {
	if s.Runtime != nil && s.Runtime.Name != "" {
		return runtimeLabel + s.Runtime.Name
	}
	label := formatLabel + s.Type.Name
	if s.Type.Version != nil {
		label += ":" + *s.Type.Version
	}
	if s.ProtocolVersion != nil && *s.ProtocolVersion != "" {
		label += and + protocolLabel + *s.ProtocolVersion
	}
	return label
}

// Pinned tells whether a type names a runtime rather than a format.
func Pinned(typ string) bool { return strings.HasPrefix(typ, runtimeLabel) }

// Labels says what a runtime can serve, sorted. Formats that are not to be chosen automatically count only for models that
// name the runtime. With rest, a proxy beside the runtime translates from REST.
func Labels(name string, of *v1alpha1.ServingRuntimeSpec, rest bool) []string {
	labels := []string{runtimeLabel + name}
	labels = append(labels, Formats(of)...)
	labels = append(labels, Protocols(of, rest)...)
	slices.Sort(labels)
	return slices.Compact(labels)
}

// Formats are the labels of the formats for which a runtime is chosen, sorted.
func Formats(of *v1alpha1.ServingRuntimeSpec) []string {
	var labels []string
	for _, f := range of.SupportedModelFormats {
		if f.AutoSelect == nil || !*f.AutoSelect {
			continue
		}
		labels = append(labels, formatLabel+f.Name)
		if f.Version != nil {
			labels = append(labels, formatLabel+f.Name+":"+*f.Version)
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// Protocols are the labels of the protocols that a runtime speaks, sorted.
func Protocols(of *v1alpha1.ServingRuntimeSpec, rest bool) []string {
	var labels []string
	for _, p := range of.ProtocolVersions {
		labels = append(labels, protocolLabel+string(p))
		if rest && p == v1beta1.ProtocolGRPCV2 {
			labels = append(labels, protocolLabel+string(v1beta1.ProtocolV2))
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// Supports tells whether a runtime with these labels can serve models of a type: it has every label that the type asks for.
func Supports(labels []string, typ string) bool {
	for asked := range strings.SplitSeq(typ, and) {
		if !slices.Contains(labels, asked) {
			return false
		}
	}
	return true
}
