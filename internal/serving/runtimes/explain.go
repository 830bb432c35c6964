// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// Messages go into a status, so they stay short whatever the objects hold.
const (
	maxNamed = 3
	maxWord  = 80
)

// notRecognized is said of a runtime that nobody has made.
func notRecognized(model *v1beta1.ModelSpec, c Candidates) *Failure {
	text := fmt.Sprintf("Neither a ServingRuntime of this namespace nor a ClusterServingRuntime is called %q: create it, "+
		"or correct spec.predictor.model.runtime, or leave that empty to have one chosen.", clip(*model.Runtime))
	able, rest := []string{}, 0
	for found := range c.all {
		if !serves(found.spec, model.ModelFormat, false) || isTrue(found.spec.Disabled) {
			continue
		}
		if len(able) == maxNamed {
			rest++
			continue
		}
		able = append(able, clip(found.meta.Name))
	}
	if len(able) > 0 {
		text += fmt.Sprintf(" %s is served by %s.", formatName(model.ModelFormat), enumerate(able, rest))
	}
	return &Failure{Reason: v1beta1.RuntimeNotRecognized, Message: text}
}

// noneFits names the runtimes that came nearest and what each of them lacks.
func noneFits(model *v1beta1.ModelSpec, multiNode bool, c Candidates) *Failure {
	wanted := fmt.Sprintf("%s over protocol %s", formatName(model.ModelFormat), clip(string(protocolOf(model))))
	if multiNode {
		wanted += " on several nodes"
	}
	fail := func(format string, args ...any) *Failure {
		return &Failure{Reason: v1beta1.NoSupportingRuntime,
			Message: fmt.Sprintf("No runtime serves %s. ", wanted) + fmt.Sprintf(format, args...)}
	}

	type miss struct {
		candidate
		hindrance
	}
	var near []miss
	total := 0
	for found := range c.all {
		total++
		if h := obstacle(found.spec, model.ModelFormat, protocolOf(model), multiNode); h != otherFormat {
			near = append(near, miss{found, h})
		}
	}
	if total == 0 {
		return fail("There are no runtimes at all: install some, or create a ServingRuntime in this namespace.")
	}
	if len(near) == 0 {
		others := fmt.Sprintf("None of the %d runtimes knows", total)
		if total == 1 {
			others = "The only runtime does not know"
		}
		return fail("%s that format: check the spelling of spec.predictor.model.modelFormat.name, "+
			"or create a runtime that lists it in spec.supportedModelFormats.", others)
	}
	slices.SortFunc(near, func(a, b miss) int {
		return cmp.Or(cmp.Compare(b.hindrance, a.hindrance), cmp.Compare(a.meta.Name, b.meta.Name))
	})
	var said []string
	for _, m := range near[:min(len(near), maxNamed)] {
		said = append(said, clip(m.meta.Name)+" "+m.because(m.spec, model.ModelFormat.Name))
	}
	return fail("Nearest: %s. Change spec.predictor.model accordingly, or create a runtime that fits.",
		strings.Join(said, "; "))
}

// because finishes the sentence that begins with the name of the runtime.
func (h hindrance) because(rt *v1alpha1.ServingRuntimeSpec, format string) string {
	switch h {
	case otherVersion:
		return "serves " + formats(rt, format)
	case notOffered:
		return "does not offer it for automatic choice (name it in spec.predictor.model.runtime)"
	case manyModels:
		return "serves many models per pod"
	case otherProtocol:
		return "speaks " + list(rt.ProtocolVersions)
	case noWorkers:
		return "has no workerSpec"
	case workersOnly:
		return "needs spec.predictor.workerSpec"
	case disabled:
		return "is disabled"
	}
	return "serves other formats"
}

// formatName is how people say a format: its name and version.
func formatName(f v1beta1.ModelFormat) string {
	if f.Version != nil {
		return fmt.Sprintf("format %s version %s", clip(f.Name), clip(*f.Version))
	}
	return "format " + clip(f.Name)
}

// formats lists what a runtime serves, of one format or, without a name, of all.
func formats(rt *v1alpha1.ServingRuntimeSpec, only string) string {
	var names []string
	for _, f := range rt.SupportedModelFormats {
		if only != "" && f.Name != only {
			continue
		}
		name := clip(f.Name)
		if f.Version != nil {
			name += " " + clip(*f.Version)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if len(names) > maxNamed {
			break
		}
	}
	return list(names)
}

// list joins the first few and says how many were left out.
func list[S ~string](items []S) string {
	if len(items) == 0 {
		return "nothing"
	}
	var words []string
	for _, item := range items[:min(len(items), maxNamed)] {
		words = append(words, clip(string(item)))
	}
	return enumerate(words, len(items)-len(words))
}

func enumerate(words []string, more int) string {
	text := strings.Join(words, ", ")
	if more > 0 {
		text += " and others"
	}
	return text
}

// clip keeps a name that somebody else chose from filling the message.
func clip(s string) string {
	if len(s) <= maxWord {
		return s
	}
	return strings.ToValidUTF8(s[:maxWord], "") + "…"
}
