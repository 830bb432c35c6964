// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of nodes, and the node that requests begin at.
const (
	Sequence = "Sequence"
	Splitter = "Splitter"
	Switch   = "Switch"
	Ensemble = "Ensemble"

	root = "root"
)

// Graph is the spec of an InferenceGraph as far as the router needs it. Fields that it does not know are somebody else's.
type Graph struct {
	Nodes    map[string]*Node `json:"nodes"`
	Timeouts Timeouts         `json:"routerTimeouts"`
}

// Node is a set of steps and how they are taken.
type Node struct {
	Type  string `json:"routerType"`
	Steps []Step `json:"steps"`
}

// Step asks a service, or is a node of its own.
type Step struct {
	Name           string `json:"name"`
	NodeName       string `json:"nodeName"`
	ServiceURL     string `json:"serviceUrl"`
	Data           string `json:"data"`
	MapPredictions bool   `json:"mapPredictionsToInstances"`
	Weight         int64  `json:"weight"`
	Condition      string `json:"condition"`
	Dependency     string `json:"dependency"`

	// label is the name, or else the place in the list; node is where it stands.
	label, node string
	condition   condition
	// response says that the step gets the reply before it, and part the path of what of that; empty for all.
	response bool
	part     string
}

func (s *Step) hard() bool { return s.Dependency == "Hard" }

// Timeouts are seconds. What is not said has a default; nothing or less is no limit.
type Timeouts struct {
	ServerRead    *int64 `json:"serverRead"`
	ServerWrite   *int64 `json:"serverWrite"`
	ServerIdle    *int64 `json:"serverIdle"`
	ServiceClient *int64 `json:"serviceClient"`
}

// mostSeconds is as good as no limit, and can be reckoned with.
const mostSeconds = 10 * 365 * 24 * 3600

// seconds is a limit, negative for none.
func seconds(said *int64, fallback time.Duration) time.Duration {
	switch {
	case said == nil:
		return fallback
	case *said <= 0:
		return -1
	}
	return time.Duration(min(*said, mostSeconds)) * time.Second
}

// Parse reads a graph. Like the known router it asks for JSON and nothing more; what will not work is told by Doubts.
func Parse(text string) (*Graph, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("--graph-json is empty; give the spec of an InferenceGraph as JSON")
	}
	g := &Graph{}
	if err := json.Unmarshal([]byte(text), g); err != nil {
		return nil, fmt.Errorf("--graph-json is no InferenceGraph: %w", err)
	}
	for name, node := range g.Nodes {
		if node == nil {
			g.Nodes[name] = &Node{}
			continue
		}
		for i := range node.Steps {
			node.Steps[i].prepare(name, i)
		}
	}
	return g, nil
}

const wholeResponse = "$response"

func (s *Step) prepare(node string, index int) {
	s.node, s.label = node, s.Name
	if s.label == "" {
		s.label = strconv.Itoa(index)
	}
	s.condition = readCondition(s.Condition)
	s.part, s.response = strings.CutPrefix(s.Data, wholeResponse+".")
	if !s.response || s.part == "" {
		s.part, s.response = "", s.Data == wholeResponse
	}
}

// Doubts are what in the graph can never work, or not as it looks, in the order of nodes and steps.
func (g *Graph) Doubts() []string {
	var out []string
	if g.Nodes[root] == nil {
		out = append(out, "there is no node root, where every request begins")
	}
	for _, name := range slices.Sorted(maps.Keys(g.Nodes)) {
		out = append(out, g.doubtsOf(name)...)
	}
	return out
}

func (g *Graph) doubtsOf(name string) []string {
	var out []string
	node := g.Nodes[name]
	switch node.Type {
	case Sequence, Splitter, Switch, Ensemble:
	default:
		out = append(out, fmt.Sprintf("node %s has the type %q, which is none of Sequence, Splitter, Switch and Ensemble", name, node.Type))
	}
	if len(node.Steps) == 0 && node.Type != Ensemble {
		out = append(out, fmt.Sprintf("node %s has no steps", name))
	}
	for i := range node.Steps {
		step := &node.Steps[i]
		at := fmt.Sprintf("step %s of node %s", step.label, name)
		if step.NodeName != "" && g.Nodes[step.NodeName] == nil {
			out = append(out, fmt.Sprintf("%s leads to the node %s, which does not exist", at, step.NodeName))
		}
		if step.NodeName == "" && step.ServiceURL == "" {
			out = append(out, at+" leads nowhere: it has neither nodeName nor serviceUrl")
		}
		if doubt := step.condition.doubt; doubt != "" {
			out = append(out, fmt.Sprintf("the condition of %s %s", at, doubt))
		}
		if node.Type == Switch && step.Condition == "" {
			out = append(out, at+" has no condition, so that it is never chosen")
		}
	}
	if g.circles(name) {
		out = append(out, fmt.Sprintf("node %s leads to itself without a condition on the way", name))
	}
	return out
}

// circles tells whether a node is reached from itself by steps that are always taken.
func (g *Graph) circles(start string) bool {
	seen := map[string]bool{}
	next := []string{start}
	for len(next) > 0 {
		node := g.Nodes[next[0]]
		next = next[1:]
		if node == nil || node.Type == Switch || node.Type == Splitter {
			continue
		}
		for i := range node.Steps {
			step := &node.Steps[i]
			if step.Condition != "" && node.Type == Sequence {
				break // whether it is taken, and what follows, depends on a reply
			}
			if step.NodeName == start {
				return true
			}
			if step.NodeName != "" && !seen[step.NodeName] {
				seen[step.NodeName] = true
				next = append(next, step.NodeName)
			}
		}
	}
	return false
}

// leavesBy tells whether a service is called at an address of this scheme.
func (g *Graph) leavesBy(scheme string) bool {
	for _, node := range g.Nodes {
		for i := range node.Steps {
			if node.Steps[i].NodeName == "" && strings.HasPrefix(node.Steps[i].ServiceURL, scheme+"://") {
				return true
			}
		}
	}
	return false
}
