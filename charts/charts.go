// SPDX-License-Identifier: Apache-2.0

// Package charts carries the packaged CustomResourceDefinitions into the
// binary, so that defaulting and validation work without a cluster from the
// same files that are installed into one. It holds files and nothing else.
package charts

import (
	"embed"
	"fmt"
	"path"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed modelplane/files/crds/*_*.yaml
var files embed.FS

const crdDir = "modelplane/files/crds"

// CRDs returns the definitions of all kinds, ordered by file name. The result is
// shared and must not be changed.
var CRDs = sync.OnceValues(func() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	entries, err := files.ReadDir(crdDir)
	if err != nil {
		return nil, err
	}
	out := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(entries))
	for _, entry := range entries {
		raw, err := files.ReadFile(path.Join(crdDir, entry.Name()))
		if err != nil {
			return nil, err
		}
		def := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, def); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name(), err)
		}
		out = append(out, def)
	}
	return out, nil
})
