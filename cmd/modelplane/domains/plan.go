// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelplane/modelplane/charts"
	"github.com/modelplane/modelplane/internal/admission"
	"github.com/modelplane/modelplane/internal/cli"
	"github.com/modelplane/modelplane/internal/config"
	"github.com/modelplane/modelplane/internal/manager"
)

// NewPlanner plans the kinds of every room.
func NewPlanner() (*cli.Planner, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	p := &cli.Planner{}
	if p.Scheme, err = NewScheme(); err != nil {
		return nil, err
	}
	if p.Schemas, err = admission.Embedded(); err != nil {
		return nil, err
	}
	p.Kinds = manager.Kinds(all)
	for _, d := range all {
		p.Controllers = append(p.Controllers, d.Controllers...)
		p.Kinds = admission.Guarded(p.Kinds, d.Guards...)
	}
	p.Shipped, err = shipped()
	return p, err
}

// shipped is what a release brings for services to use, with the configuration that holds for them.
func shipped() ([]*unstructured.Unstructured, error) {
	objects, err := charts.Shipped()
	if err != nil {
		return nil, err
	}
	data, err := charts.ServingConfig()
	if err != nil {
		return nil, err
	}
	objects = append(objects, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": data,
		"metadata": map[string]any{"name": config.Name, "namespace": "modelplane-system"},
	})
	var out []*unstructured.Unstructured
	for _, object := range objects {
		out = append(out, &unstructured.Unstructured{Object: object})
	}
	return out, nil
}
