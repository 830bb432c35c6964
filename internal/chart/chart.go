// SPDX-License-Identifier: Apache-2.0

// Package chart renders the Helm chart without a cluster, exactly as Helm does, so that the generator of the kustomize
// bases, the tests and the installer look at the same objects that a person installs. It knows nothing of what is in the
// chart, and nothing that is shipped may import it: Helm is not part of the manager.
package chart

import (
	"context"
	"fmt"
	"maps"
	"path"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The release that documentation and kustomize bases speak of.
const (
	DefaultRelease   = "modelplane"
	DefaultNamespace = "modelplane-system"
)

// Release says what a person would say on Helm's command line. Empty names take the defaults.
type Release struct {
	Name, Namespace string
	Values          map[string]any
}

// Object is one object of a release.
type Object struct {
	*unstructured.Unstructured
	// Template is the file in the chart's templates folder that it comes from.
	Template string
}

// Made is everything that a release of the chart consists of.
type Made struct {
	Chart *chartv2.Chart
	// Objects in the order in which Helm installs them, and the same as the text that Helm keeps of a release.
	Objects  []Object
	Manifest string
	// Notes is what Helm prints after an installation.
	Notes string
}

// Render returns the objects of a release of the chart in dir, in the order in which Helm installs them. Values are
// checked against the chart's schema.
func Render(dir string, r Release) ([]Object, error) {
	made, err := Make(dir, r)
	if err != nil {
		return nil, err
	}
	return made.Objects, nil
}

// Make renders all of a release.
func Make(dir string, r Release) (*Made, error) {
	loaded, files, err := execute(dir, r)
	if err != nil {
		return nil, err
	}
	made := &Made{Chart: loaded}
	for name, content := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			made.Notes = content
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, fmt.Errorf("sort the chart's objects: %w", err)
	}
	if len(hooks) > 0 {
		return nil, fmt.Errorf("%s is a Helm hook, which only Helm would run", hooks[0].Path)
	}
	var text strings.Builder
	for _, m := range manifests {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", m.Name, m.Content)
		object, err := parse(m.Content)
		if err != nil {
			return nil, fmt.Errorf("an object of %s cannot be read: %w", m.Name, err)
		}
		made.Objects = append(made.Objects, Object{Unstructured: object, Template: path.Base(m.Name)})
	}
	made.Manifest = text.String()
	return made, nil
}

func parse(text string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	return object, nil
}

// Objects reads what Helm keeps of a release as text.
func Objects(manifest string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, text := range releaseutil.SplitManifests(manifest) {
		object, err := parse(text)
		if err != nil {
			return nil, err
		}
		out = append(out, object)
	}
	return out, nil
}

// Notes returns what Helm prints after an installation.
func Notes(dir string, r Release) (string, error) {
	made, err := Make(dir, r)
	if err == nil && made.Notes == "" {
		err = fmt.Errorf("%s has no NOTES.txt", dir)
	}
	if err != nil {
		return "", err
	}
	return made.Notes, nil
}

// execute runs the templates.
func execute(dir string, r Release) (*chartv2.Chart, map[string]string, error) {
	loaded, err := loader.LoadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("load the chart: %w", err)
	}
	if r.Name == "" {
		r.Name = DefaultRelease
	}
	if r.Namespace == "" {
		r.Namespace = DefaultNamespace
	}
	options := common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}
	values, err := util.ToRenderValues(loaded, r.Values, options, common.DefaultCapabilities)
	if err != nil {
		return nil, nil, err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(context.Background(), loaded, values) // no template of ours asks the network
	return loaded, files, err
}

// WithoutHelm takes away from an object what only means something to Helm: its labels and its policies.
func WithoutHelm(object *unstructured.Unstructured) {
	for field, set := range map[string]func(map[string]string){
		"labels": object.SetLabels, "annotations": object.SetAnnotations,
	} {
		values, _, _ := unstructured.NestedStringMap(object.Object, "metadata", field)
		maps.DeleteFunc(values, func(key, value string) bool {
			return strings.HasPrefix(key, "helm.sh/") || key == "app.kubernetes.io/managed-by" && value == "Helm"
		})
		set(values)
		if len(values) == 0 {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
	}
}
