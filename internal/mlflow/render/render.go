// SPDX-License-Identifier: Apache-2.0

// Package render turns values into the objects of the chart that runs MLflow. The chart is in the binary; it is parsed
// once, and what was rendered lately is remembered by its values. It knows nothing of MLflow objects and of the cluster,
// and it is the one place of the manager that uses Helm.
package render

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	helmchart "helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/lru"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/charts"
)

// release is the name that the chart is rendered for.
const release = "mlflow"

// kept is how many results are remembered. There is one MLflow in a cluster; a change of it needs a second one, and its
// way back the first again.
const kept = 8

// Chart renders. It is safe for use by several at once.
type Chart struct {
	parse func() (helmchart.Charter, error)
	lru   *lru.Cache

	parsed, rendered atomic.Int64
}

// New returns the chart that is in the binary. It is parsed when it is first needed.
func New() *Chart {
	c := &Chart{lru: lru.New(kept)}
	c.parse = sync.OnceValues(func() (helmchart.Charter, error) {
		c.parsed.Add(1)
		files, err := read(charts.MLflow())
		if err != nil {
			return nil, err
		}
		return loader.LoadFiles(files)
	})
	return c
}

func read(from fs.FS) ([]*archive.BufferedFile, error) {
	var files []*archive.BufferedFile
	err := fs.WalkDir(from, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, path)
		files = append(files, &archive.BufferedFile{Name: path, Data: data})
		return err
	})
	return files, err
}

// Values are the chart's own, for the caller to change.
func (c *Chart) Values() (map[string]any, error) {
	chart, err := c.parse()
	if err != nil {
		return nil, fmt.Errorf("parse the chart: %w", err)
	}
	accessor, err := helmchart.NewAccessor(chart)
	if err != nil {
		return nil, err
	}
	return runtime.DeepCopyJSON(accessor.Values()), nil
}

// Objects are those of the chart with these values, which must be complete: the chart's own are not merged in. They
// come in the order of their templates' names, and belong to the caller.
func (c *Chart) Objects(namespace string, values map[string]any) ([]*unstructured.Unstructured, error) {
	raw, err := json.Marshal(values) // maps in the order of their keys
	if err != nil {
		return nil, fmt.Errorf("encode the chart's values: %w", err)
	}
	key := sha256.Sum256(append([]byte(namespace+"\n"), raw...))
	if found, ok := c.lru.Get(key); ok {
		return copies(found.([]*unstructured.Unstructured)), nil
	}
	objects, err := c.render(namespace, raw)
	if err != nil {
		return nil, err
	}
	c.lru.Add(key, objects)
	return copies(objects), nil
}

// Parsed is how often the chart was parsed, and Rendered how often its templates were run.
func (c *Chart) Parsed() int { return int(c.parsed.Load()) }

// Rendered is explained with Parsed.
func (c *Chart) Rendered() int { return int(c.rendered.Load()) }

func (c *Chart) render(namespace string, raw []byte) ([]*unstructured.Unstructured, error) {
	chart, err := c.parse()
	if err != nil {
		return nil, fmt.Errorf("parse the chart: %w", err)
	}
	accessor, err := helmchart.NewAccessor(chart)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := utiljson.Unmarshal(raw, &values); err != nil { // whole numbers stay whole
		return nil, fmt.Errorf("decode the chart's values: %w", err)
	}
	c.rendered.Add(1)
	files, err := engine.Engine{Strict: true}.RenderWithContext(context.Background(), chart, common.Values{
		"Chart": accessor.MetadataAsMap(), "Capabilities": common.DefaultCapabilities,
		"Release": map[string]any{
			"Name": release, "Namespace": namespace, "IsInstall": true, "IsUpgrade": false, "Revision": 1, "Service": "Helm",
		},
		"Values": common.Values(values),
	})
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		objects, err := decode(files[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, objects...)
	}
	return out, nil
}

// decode reads the documents of one template.
func decode(text string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq("\n"+text, "\n---") {
		raw, err := yaml.YAMLToJSON([]byte(doc + "\n")) // texts in it end as they were written
		if err != nil {
			return nil, err
		}
		if string(raw) == "null" {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

func copies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(objects))
	for i, u := range objects {
		out[i] = u.DeepCopy()
	}
	return out
}
