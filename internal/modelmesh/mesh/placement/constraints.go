// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Constraints says which instances may load which type of model, by labels. The zero value lets every type go anywhere.
type Constraints struct {
	types    map[string]constraint
	fallback *constraint
}

// constraint is one entry of the ConfigMap's type_constraints.
type constraint struct {
	Required  []string `json:"required"`
	Preferred []string `json:"preferred"`
}

// defaultType is the entry for types that have none of their own.
const defaultType = "_default"

// maxConstraints bounds the file, which holds some entries per runtime and format.
const maxConstraints = 4 << 20

// ParseConstraints reads what a ConfigMap has at type_constraints. No content is no constraint.
func ParseConstraints(content []byte) (Constraints, error) {
	if len(content) > maxConstraints {
		return Constraints{}, fmt.Errorf("the type constraints have %d bytes; at most %d are read", len(content), maxConstraints)
	}
	if len(strings.TrimSpace(string(content))) == 0 {
		return Constraints{}, nil
	}
	var types map[string]constraint
	if err := json.Unmarshal(content, &types); err != nil {
		return Constraints{}, fmt.Errorf(`the type constraints are no JSON object of {"type": {"required": ["label"]}}: %w`, err)
	}
	c := Constraints{types: types}
	if fallback, ok := types[defaultType]; ok {
		c.fallback = &fallback
		delete(types, defaultType)
	}
	return c, nil
}

func (c Constraints) of(modelType string) (constraint, bool) {
	if own, ok := c.types[modelType]; ok {
		return own, true
	}
	if c.fallback != nil {
		return *c.fallback, true
	}
	return constraint{}, false
}

// Allows tells whether an instance with these labels may load models of the type: it must have all that are required.
func (c Constraints) Allows(modelType string, labels []string) bool {
	own, _ := c.of(modelType)
	return hasAll(labels, own.Required)
}

// Required are the labels that an instance must have, sorted.
func (c Constraints) Required(modelType string) []string {
	own, _ := c.of(modelType)
	return slices.Sorted(slices.Values(own.Required))
}

// prefers tells whether the type names labels that it would rather have, and whether these are they.
func (c Constraints) prefers(modelType string, labels []string) (asks, met bool) {
	own, _ := c.of(modelType)
	return len(own.Preferred) > 0, hasAll(labels, own.Preferred)
}

// NoInstances is what callers are told when no instance may load the type. Controllers read its beginning, and its end when
// no runtime is known for the type; neither may change.
func (c Constraints) NoInstances(modelType string) string {
	return fmt.Sprintf("There are no running instances that meet the label requirements of type %s: [%s]",
		modelType, strings.Join(c.Required(modelType), ", "))
}

// Partition names the set of types that an instance with these labels may load. Instances of one partition can stand in for
// each other, so what is free or how old models are is counted per partition.
func (c Constraints) Partition(labels []string) string {
	if len(c.types) == 0 && c.fallback == nil {
		return ""
	}
	var prohibited []string
	for _, modelType := range slices.Sorted(maps.Keys(c.types)) {
		if !c.Allows(modelType, labels) {
			prohibited = append(prohibited, modelType)
		}
	}
	if c.fallback != nil && !hasAll(labels, c.fallback.Required) {
		prohibited = append(prohibited, defaultType)
	}
	return strings.Join(prohibited, "\n")
}

// reserved is how much an instance should be left to others: it counts the types that it may not load, which makes it special,
// four times against those that ask for it. An instance that can do little is the better place for what it can do.
func (c Constraints) reserved(labels []string) int {
	score := 0
	for modelType := range c.types {
		if !c.Allows(modelType, labels) {
			score += 4
			continue
		}
		if asks, met := c.prefers(modelType, labels); asks && met {
			score--
		}
	}
	return score
}

func hasAll(labels, wanted []string) bool {
	for _, label := range wanted {
		if !slices.Contains(labels, label) {
			return false
		}
	}
	return true
}
