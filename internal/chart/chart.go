// SPDX-License-Identifier: Apache-2.0

// Package chart renders the Helm chart without a cluster, exactly as Helm does, so that the generator of the kustomize
// bases and the tests look at the same objects that a person installs. It knows nothing of what is in the chart, and
// nothing that is shipped may import it: Helm is not part of the manager.
package chart

import (
	"fmt"
	"maps"
	"path"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
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

// Render returns the objects of a release of the chart in dir, in the order in which Helm installs them. Values are
// checked against the chart's schema.
func Render(dir string, r Release) ([]Object, error) {
	files, err := execute(dir, r)
	if err != nil {
		return nil, err
	}
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
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
	objects := make([]Object, 0, len(manifests))
	for _, m := range manifests {
		object := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON([]byte(m.Content))
		if err == nil {
			err = object.UnmarshalJSON(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("an object of %s cannot be read: %w", m.Name, err)
		}
		objects = append(objects, Object{Unstructured: object, Template: path.Base(m.Name)})
	}
	return objects, nil
}

// Notes returns what Helm prints after an installation.
func Notes(dir string, r Release) (string, error) {
	files, err := execute(dir, r)
	if err != nil {
		return "", err
	}
	for name, content := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			return content, nil
		}
	}
	return "", fmt.Errorf("%s has no NOTES.txt", dir)
}

// execute runs the templates.
func execute(dir string, r Release) (map[string]string, error) {
	loaded, err := loader.LoadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
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
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(loaded, values)
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
