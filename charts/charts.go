// SPDX-License-Identifier: Apache-2.0

// Package charts carries the packaged CustomResourceDefinitions into the
// binary, so that defaulting and validation work without a cluster from the
// same files that are installed into one, and the chart that MLflow is run
// with. It holds files and nothing else.
package charts

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed modelplane/files/crds/*_*.yaml
var files embed.FS

//go:embed mlflow/Chart.yaml mlflow/values.yaml mlflow/values.schema.json mlflow/templates
//go:embed mlflow/templates/_*.tpl
var mlflow embed.FS

// MLflow is the chart of the MLflow server.
func MLflow() fs.FS {
	sub, err := fs.Sub(mlflow, "mlflow")
	if err != nil {
		panic(err) // a constant that is a valid path
	}
	return sub
}

const crdDir = "modelplane/files/crds"

// CRDs returns the definitions of all kinds, ordered by file name. The result is
// shared and must not be changed. It stays in memory, some ten MiB: a process
// that runs for long and needs only names asks for Resources.
var CRDs = sync.OnceValues(func() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return read[apiextensionsv1.CustomResourceDefinition](yaml.DisallowUnknownFields)
})

// Resource is what a definition is called.
type Resource struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind   string `json:"kind"`
			Plural string `json:"plural"`
		} `json:"names"`
		Versions []struct {
			Name string `json:"name"`
		} `json:"versions"`
	} `json:"spec"`
}

// Resources returns the names of all kinds, in the order of CRDs. The result is
// shared and must not be changed.
var Resources = sync.OnceValues(func() ([]*Resource, error) { return read[Resource]() })

func read[T any](opts ...yaml.JSONOpt) ([]*T, error) {
	entries, err := files.ReadDir(crdDir)
	if err != nil {
		return nil, err
	}
	out := make([]*T, 0, len(entries))
	for _, entry := range entries {
		raw, err := files.ReadFile(path.Join(crdDir, entry.Name()))
		if err != nil {
			return nil, err
		}
		def := new(T)
		if err := yaml.Unmarshal(raw, def, opts...); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name(), err)
		}
		out = append(out, def)
	}
	return out, nil
}
