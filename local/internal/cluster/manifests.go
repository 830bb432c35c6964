// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// partOf marks the objects that the manager completes with its own certificate authority.
var partOf = [2]string{"app.kubernetes.io/part-of", "modelplane"}

// manifestFiles lists the YAML files of a path in a fixed order. Files for other tools are left out.
func manifestFiles(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	var files []string
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(p) == ".yaml" && d.Name() != "kustomization.yaml" {
			files = append(files, p)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; `make generate` writes the manifests", err)
	}
	return files, err
}

// localManifests reads every object of a path and addresses its webhooks by URL, since the local
// cluster has no Service that leads to the manager. Doing this here, and not in the manager alone,
// lets kubectl apply the same objects again later without a quarrel over who owns the address.
func localManifests(path, url string) ([]byte, error) {
	files, err := manifestFiles(path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := localize(&out, data, url); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return out.Bytes(), nil
}

func localize(out io.Writer, data []byte, url string) error {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var obj map[string]any
		if err := yaml.Unmarshal(doc, &obj); err != nil {
			return err
		}
		if len(obj) == 0 {
			continue
		}
		label(obj)
		for _, config := range clientConfigs(obj) {
			useURL(config, url)
		}
		text, err := json.Marshal(obj)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s\n", text); err != nil {
			return err
		}
	}
}

func label(obj map[string]any) {
	labels := child(child(obj, "metadata"), "labels")
	labels[partOf[0]] = partOf[1]
}

// child returns the object under key, making it when it is missing.
func child(obj map[string]any, key string) map[string]any {
	if c, ok := obj[key].(map[string]any); ok {
		return c
	}
	c := map[string]any{}
	obj[key] = c
	return c
}

// clientConfigs finds the places from which the API server would call a webhook.
func clientConfigs(obj map[string]any) []map[string]any {
	var found []map[string]any
	hooks, _ := obj["webhooks"].([]any)
	for _, hook := range hooks {
		if h, ok := hook.(map[string]any); ok {
			found = append(found, child(h, "clientConfig"))
		}
	}
	spec, _ := obj["spec"].(map[string]any)
	conversion, _ := spec["conversion"].(map[string]any)
	if hook, ok := conversion["webhook"].(map[string]any); ok {
		found = append(found, child(hook, "clientConfig"))
	}
	return found
}

func useURL(config map[string]any, url string) {
	service, ok := config["service"].(map[string]any)
	if !ok {
		return
	}
	path, _ := service["path"].(string)
	delete(config, "service")
	config["url"] = url + path
}
