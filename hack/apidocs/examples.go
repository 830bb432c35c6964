// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// example is a manifest to link to, with the sentence that it starts with.
type example struct{ path, text string }

// readExamples finds the examples of every kind, in the order of their paths.
func readExamples(dir string) (map[schema.GroupVersionKind][]example, error) {
	out := map[schema.GroupVersionKind][]example{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var what metav1.TypeMeta
		if err := yaml.Unmarshal(text, &what); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		gvk := what.GroupVersionKind()
		out[gvk] = append(out[gvk], example{path: filepath.ToSlash(path), text: strings.TrimPrefix(first, "# ")})
		return nil
	})
	return out, err
}
