// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/kube/address"
)

// Pick finds the ClusterStorageContainer for an address: the named one, or the
// first by name that supports it, whatever the order of the list; nil when none
// does. A named one must fit.
func Pick(uri, name string, containers []v1alpha1.ClusterStorageContainer) (*v1alpha1.ClusterStorageContainer, error) {
	if name != "" {
		return pickNamed(uri, name, containers)
	}
	var broken error
	for _, c := range byName(containers) {
		if disabled(c) || !initContainer(c) {
			continue
		}
		ok, err := supports(c, uri)
		if ok {
			return c, nil
		}
		if err != nil && broken == nil {
			broken = err
		}
	}
	// A broken one matters only where no other fits: it may have been meant.
	return nil, broken
}

func byName(containers []v1alpha1.ClusterStorageContainer) []*v1alpha1.ClusterStorageContainer {
	out := make([]*v1alpha1.ClusterStorageContainer, len(containers))
	for i := range containers {
		out[i] = &containers[i]
	}
	slices.SortFunc(out, func(a, b *v1alpha1.ClusterStorageContainer) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func pickNamed(uri, name string, containers []v1alpha1.ClusterStorageContainer) (*v1alpha1.ClusterStorageContainer, error) {
	for i := range containers {
		c := &containers[i]
		if c.Name != name {
			continue
		}
		ok, err := supports(c, uri)
		switch {
		case disabled(c):
			return nil, fmt.Errorf("ClusterStorageContainer %s is disabled; set its disabled to false or name another", name)
		case !initContainer(c):
			return nil, fmt.Errorf("ClusterStorageContainer %s has workloadType %s and cannot run in a pod; name one with workloadType %s",
				name, c.Spec.WorkloadType, v1alpha1.InitContainer)
		case ok:
			return c, nil
		case err != nil:
			return nil, err
		}
		return nil, fmt.Errorf("ClusterStorageContainer %s does not support %s; add the address to its supportedUriFormats or name another", name, address.Shown(uri))
	}
	return nil, fmt.Errorf("there is no ClusterStorageContainer %s; create it or name another", name)
}

func disabled(c *v1alpha1.ClusterStorageContainer) bool { return c.Disabled != nil && *c.Disabled }

func initContainer(c *v1alpha1.ClusterStorageContainer) bool {
	return c.Spec.WorkloadType == "" || c.Spec.WorkloadType == v1alpha1.InitContainer
}

func supports(c *v1alpha1.ClusterStorageContainer, uri string) (bool, error) {
	var broken error
	for i, f := range c.Spec.SupportedUriFormats {
		if f.Prefix != "" {
			if strings.HasPrefix(uri, f.Prefix) {
				return true, nil
			}
			continue
		}
		if f.Regex == "" {
			continue
		}
		expr, err := regexp.Compile(f.Regex)
		if err != nil {
			broken = fmt.Errorf("ClusterStorageContainer %s: spec.supportedUriFormats[%d].regex: %w; correct it", c.Name, i, err)
			continue
		}
		if expr.MatchString(uri) {
			return true, nil
		}
	}
	return false, broken
}

// pickAll finds the one container that downloads several models. All run in one
// init container, so that two different ones cannot be had.
func pickAll(uris []string, name string, containers []v1alpha1.ClusterStorageContainer) (*v1alpha1.ClusterStorageContainer, error) {
	var found *v1alpha1.ClusterStorageContainer
	for _, uri := range uris {
		c, err := Pick(uri, name, containers)
		if err != nil {
			return nil, err
		}
		if c == nil {
			continue
		}
		if found != nil && found.Name != c.Name {
			return nil, fmt.Errorf("storageUris: one container downloads all models, but they need ClusterStorageContainers %s and %s; "+
				"name one that supports all in storageContainerName", found.Name, c.Name)
		}
		found = c
	}
	if found != nil && (found.Spec.SupportsMultiModelDownload == nil || !*found.Spec.SupportsMultiModelDownload) {
		return nil, fmt.Errorf("storageUris: ClusterStorageContainer %s downloads one model only; set its supportsMultiModelDownload "+
			"to true if it can download several, or name another in storageContainerName", found.Name)
	}
	return found, nil
}

// overlay lays a ClusterStorageContainer's container over the generated one, as
// a strategic merge patch would. The name stays. A command goes with its image:
// another image is started as its container says, or as it starts by itself.
func overlay(c *corev1.Container, over *v1alpha1.ClusterStorageContainer) error {
	if over == nil {
		return nil
	}
	if image := over.Spec.Container.Image; image != "" && image != c.Image {
		c.Command = nil
	}
	merged, err := strategicMerge(*c, over.Spec.Container)
	if err != nil {
		return fmt.Errorf("ClusterStorageContainer %s: spec.container cannot be merged: %w", over.Name, err)
	}
	merged.Name = c.Name
	*c = merged
	return nil
}

func strategicMerge(base, over corev1.Container) (corev1.Container, error) {
	var out corev1.Container
	original, err := json.Marshal(base)
	if err != nil {
		return out, err
	}
	patch, err := json.Marshal(over)
	if err != nil {
		return out, err
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Container{})
	if err != nil {
		return out, err
	}
	err = json.Unmarshal(merged, &out)
	return out, err
}
