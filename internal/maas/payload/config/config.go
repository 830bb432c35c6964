// SPDX-License-Identifier: Apache-2.0

// Package config reads a PayloadProcessorConfig (llm-d.ai/v1alpha1): which plugins there are, with which parameters, and in
// which order requests and answers go through them. Whatever is not understood is refused with the line it is on; which
// plugins exist, and what their parameters mean, is for others to say.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"
)

// What the first two lines of a configuration say.
const (
	APIVersion = "llm-d.ai/v1alpha1"
	Kind       = "PayloadProcessorConfig"
)

// pickers are the plugins that choose among profiles where there is only one to choose; they do nothing.
var pickers = []string{"single-profile-picker", "passthrough-profile-picker"}

// most bounds what is read.
const most = 1 << 20

// Plugin is one that a request or an answer goes through.
type Plugin struct {
	Name, Type string
	Line       int
	parameters yaml.Node
}

// Parameters reads the plugin's parameters into a struct with yaml tags; a field that it does not have is an error with its line.
func (p Plugin) Parameters(into any) error {
	if p.parameters.Kind == 0 {
		return nil
	}
	if err := strictly(&p.parameters, into); err != nil {
		return p.Errorf("%w", err)
	}
	return nil
}

// Errorf says what is wrong with the plugin and where it is.
func (p Plugin) Errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: plugin %s: %w", p.Line, p.Name, fmt.Errorf(format, args...))
}

// strictly refuses fields that are not known. The encoder is the only way to have yaml refuse fields of a node; lines are then those of the
// parameters, so that the node's own is told.
func strictly(node *yaml.Node, into any) error {
	text, err := yaml.Marshal(node)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("its parameters (from line %d) cannot be used: %w", node.Line, err)
	}
	return nil
}

// Pipeline is what requests and answers go through, in this order.
type Pipeline struct{ Request, Response []Plugin }

type document struct {
	APIVersion     string    `yaml:"apiVersion"`
	Kind           string    `yaml:"kind"`
	Plugins        []spec    `yaml:"plugins"`
	PreProcessing  []ref     `yaml:"preProcessing"`
	ProfilePicker  *ref      `yaml:"profilePicker"`
	Profiles       []profile `yaml:"profiles"`
	PostProcessing []ref     `yaml:"postProcessing"`
}

type profile struct {
	Name    string `yaml:"name"`
	Plugins struct {
		Request  []ref `yaml:"request"`
		Response []ref `yaml:"response"`
	} `yaml:"plugins"`
}

// spec and ref keep the line they are on.
type spec struct {
	Name       string    `yaml:"name"`
	Type       string    `yaml:"type"`
	Parameters yaml.Node `yaml:"parameters"`
	line       int
}

type ref struct {
	PluginRef string `yaml:"pluginRef"`
	line      int
}

// UnmarshalYAML takes the line.
func (s *spec) UnmarshalYAML(node *yaml.Node) error {
	type plain spec
	if err := fields(node, "name", "type", "parameters"); err != nil {
		return err
	}
	if err := node.Decode((*plain)(s)); err != nil {
		return err
	}
	s.line = node.Line
	return nil
}

// UnmarshalYAML takes the line.
func (r *ref) UnmarshalYAML(node *yaml.Node) error {
	type plain ref
	if err := fields(node, "pluginRef"); err != nil {
		return err
	}
	if err := node.Decode((*plain)(r)); err != nil {
		return err
	}
	r.line = node.Line
	return nil
}

// fields refuses names that are not known: decoders of their own do not inherit the strictness of the whole.
func fields(node *yaml.Node, names ...string) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: expected %v", node.Line, names)
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i]; !slices.Contains(names, key.Value) {
			return fmt.Errorf("line %d: field %q is unknown; use %v", key.Line, key.Value, names)
		}
	}
	return nil
}

// Parse reads a configuration. Known tells which types of plugins there are.
func Parse(text []byte, known func(pluginType string) bool) (Pipeline, error) {
	p, err := parse(text, known)
	if err != nil {
		return Pipeline{}, fmt.Errorf("the configuration of the plugins cannot be used: %w", err)
	}
	return p, nil
}

func parse(text []byte, known func(string) bool) (Pipeline, error) {
	if len(text) > most {
		return Pipeline{}, fmt.Errorf("it is longer than %d bytes", most)
	}
	var d document
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&d); err != nil {
		return Pipeline{}, err
	}
	if err := decoder.Decode(&document{}); !errors.Is(err, io.EOF) {
		return Pipeline{}, errors.New("it holds more than one document")
	}
	switch {
	case d.APIVersion != APIVersion || d.Kind != Kind:
		return Pipeline{}, fmt.Errorf("line 1: it must begin with apiVersion: %s and kind: %s", APIVersion, Kind)
	case len(d.Profiles) != 1:
		return Pipeline{}, fmt.Errorf("it has %d profiles; exactly one is supported", len(d.Profiles))
	}
	plugins, err := declared(d.Plugins, known)
	if err != nil {
		return Pipeline{}, err
	}
	return d.order(plugins)
}

// declared are the plugins by name.
func declared(specs []spec, known func(string) bool) (map[string]Plugin, error) {
	out := map[string]Plugin{}
	for _, s := range specs {
		if s.Type == "" {
			return nil, fmt.Errorf("line %d: a plugin has no type", s.line)
		}
		if !known(s.Type) && !slices.Contains(pickers, s.Type) {
			return nil, fmt.Errorf("line %d: plugin type %q is unknown", s.line, s.Type)
		}
		if s.Name == "" {
			s.Name = s.Type
		}
		if first, has := out[s.Name]; has {
			return nil, fmt.Errorf("line %d: plugin %s is there already, on line %d; give one of them another name", s.line, s.Name, first.Line)
		}
		out[s.Name] = Plugin{Name: s.Name, Type: s.Type, Line: s.line, parameters: s.Parameters}
	}
	return out, nil
}

// order resolves the references.
func (d document) order(plugins map[string]Plugin) (Pipeline, error) {
	resolve := func(refs []ref) ([]Plugin, error) {
		var out []Plugin
		for _, r := range refs {
			plugin, has := plugins[r.PluginRef]
			switch {
			case !has:
				return nil, fmt.Errorf("line %d: pluginRef %q names no plugin of the list above", r.line, r.PluginRef)
			case slices.Contains(pickers, plugin.Type):
				return nil, fmt.Errorf("line %d: %q chooses profiles and cannot be in a list of a profile", r.line, r.PluginRef)
			}
			out = append(out, plugin)
		}
		return out, nil
	}
	if d.ProfilePicker != nil {
		if p, has := plugins[d.ProfilePicker.PluginRef]; !has || !slices.Contains(pickers, p.Type) {
			return Pipeline{}, fmt.Errorf("line %d: profilePicker %q is none of %v", d.ProfilePicker.line, d.ProfilePicker.PluginRef, pickers)
		}
	}
	request, err := resolve(slices.Concat(d.PreProcessing, d.Profiles[0].Plugins.Request, d.PostProcessing))
	if err != nil {
		return Pipeline{}, err
	}
	response, err := resolve(d.Profiles[0].Plugins.Response)
	return Pipeline{Request: request, Response: response}, err
}
