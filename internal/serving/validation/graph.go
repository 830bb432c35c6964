// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/admission"
)

// validateGraph refuses graphs in which a request would get lost.
func (r Rules) validateGraph(ctx context.Context, old, obj client.Object) ([]string, error) {
	found := admission.Check(old, obj, examineGraph)
	if old != nil {
		return found.Result()
	}
	cfg, err := r.config(ctx)
	if err != nil {
		return nil, err
	}
	found.Refuse(clashes(ctx, obj, graphClaims(obj.(*v1alpha1.InferenceGraph)), nil, cfg)...)
	return found.Result()
}

func examineGraph(g *v1alpha1.InferenceGraph) *report {
	found := &report{}
	name, at := g.Name, field.NewPath("metadata", "name")
	if name == "" && g.GenerateName != "" {
		name, at = g.GenerateName+"xxxxx", field.NewPath("metadata", "generateName")
	}
	if !nameRegexp.MatchString(name) {
		found.Refuse(field.Invalid(at, name, fmt.Sprintf("a name must consist of lower case alphanumeric characters or '-', must start "+
			"with a letter and end with a letter or digit (regex used for validation is '%s')", nameFormat)))
	}
	examineGraphNumbers(found, &g.Spec, field.NewPath("spec"))
	nodes := field.NewPath("spec", "nodes")
	if _, ok := g.Spec.Nodes[v1alpha1.GraphRootNodeName]; !ok {
		found.Refuse(field.Required(nodes.Key(v1alpha1.GraphRootNodeName), "root node not found: every request starts at the node called root; add it"))
	}
	for _, name := range slices.Sorted(maps.Keys(g.Spec.Nodes)) {
		examineNode(found, g.Spec.Nodes, g.Spec.Nodes[name], nodes.Key(name))
	}
	return found
}

// examineGraphNumbers refuses what the router, or its autoscaler, would make something else of.
func examineGraphNumbers(found *report, spec *v1alpha1.InferenceGraphSpec, at *field.Path) {
	times := []struct {
		at *field.Path
		is *int64
	}{{at.Child("timeout"), spec.TimeoutSeconds}}
	if r := spec.RouterTimeouts; r != nil {
		at := at.Child("routerTimeouts")
		times = append(times, []struct {
			at *field.Path
			is *int64
		}{{at.Child("serverRead"), r.ServerRead}, {at.Child("serverWrite"), r.ServerWrite}, {at.Child("serverIdle"), r.ServerIdle}, {at.Child("serviceClient"), r.ServiceClient}}...)
	}
	for _, t := range times {
		if n := ptr.Deref(t.is, 0); n < 0 {
			found.Refuse(field.Invalid(t.at, n, "must be a number of seconds, not less than 0; 0 means no limit"))
		}
	}
	least := ptr.Deref(spec.MinReplicas, 1)
	for _, n := range []struct {
		at *field.Path
		is int32
	}{{at.Child("minReplicas"), least}, {at.Child("maxReplicas"), spec.MaxReplicas}} {
		if n.is < 0 {
			found.Refuse(field.Invalid(n.at, n.is, "cannot be less than 0"))
		}
	}
	if spec.MaxReplicas > 0 && least > spec.MaxReplicas {
		found.Refuse(field.Invalid(at.Child("minReplicas"), least, fmt.Sprintf("cannot be greater than maxReplicas, which is %d; lower the one or raise the other", spec.MaxReplicas)))
	}
}

func examineNode(found *report, nodes map[string]v1alpha1.InferenceRouter, node v1alpha1.InferenceRouter, at *field.Path) {
	names, total, weighted := map[string]bool{}, int64(0), true
	for i, step := range node.Steps {
		path := at.Child("steps").Index(i)
		if step.StepName != "" && names[step.StepName] {
			found.Refuse(explain(field.Duplicate(path.Child("name"), step.StepName), "step names must be unique in a node; choose another"))
		}
		names[step.StepName] = true
		examineTarget(found, nodes, step.InferenceTarget, path)
		if node.RouterType != v1alpha1.Splitter {
			continue
		}
		if step.Weight == nil {
			weighted = false
			found.Refuse(field.Required(path.Child("weight"), "every step of a Splitter needs a weight, and all weights make 100"))
			continue
		}
		if *step.Weight < 0 || *step.Weight > 100 {
			found.Refuse(field.Invalid(path.Child("weight"), *step.Weight, "must be from 0 to 100"))
		}
		total += *step.Weight
	}
	if node.RouterType == v1alpha1.Splitter && weighted && total != 100 {
		found.Refuse(field.Invalid(at.Child("steps"), total, "the sum of traffic weights for all routing targets of a Splitter should be 100"))
	}
}

// examineTarget wants each step to lead to one place, which exists if it is a
// node.
func examineTarget(found *report, nodes map[string]v1alpha1.InferenceRouter, t v1alpha1.InferenceTarget, at *field.Path) {
	var set []string
	for _, f := range []struct{ name, value string }{{"nodeName", t.NodeName}, {"serviceName", t.ServiceName}, {"serviceUrl", t.ServiceURL}} {
		if f.value != "" {
			set = append(set, f.name)
		}
	}
	const want = "exactly one of [nodeName, serviceName, serviceUrl] must be specified"
	switch len(set) {
	case 0:
		found.Refuse(field.Required(at, want+"; say where the step leads"))
	case 1:
	default:
		found.Refuse(field.Invalid(at, strings.Join(set, ", "), want+"; keep one and remove the others"))
	}
	if _, ok := nodes[t.NodeName]; t.NodeName != "" && !ok {
		found.Refuse(explain(field.NotFound(at.Child("nodeName"), t.NodeName), "the graph has no such node; add it to spec.nodes, or correct the name"))
	}
}
