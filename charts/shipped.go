// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed modelplane/values.yaml modelplane/files/config.yaml modelplane/files/runtimes/*.yaml modelplane/files/meshruntimes/*.yaml modelplane/files/storagecontainers/*.yaml
var shipped embed.FS

// Shipped are the runtimes and storage containers of a release that says nothing of them.
func Shipped() ([]map[string]any, error) {
	var values struct {
		Runtimes struct {
			Servers map[string]struct {
				Enabled *bool `json:"enabled"`
			} `json:"servers"`
		} `json:"runtimes"`
	}
	if err := readShipped("modelplane/values.yaml", &values); err != nil {
		return nil, err
	}
	var out []map[string]any
	err := fs.WalkDir(shipped, "modelplane/files", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == configFile {
			return err
		}
		name := strings.TrimSuffix(entry.Name(), ".yaml")
		if enabled := values.Runtimes.Servers[name].Enabled; enabled != nil && !*enabled {
			return nil
		}
		object := map[string]any{}
		out = append(out, object)
		return readShipped(path, &object)
	})
	return out, err
}

const configFile = "modelplane/files/config.yaml"

// ServingConfig is what the ConfigMap inferenceservice-config of such a release holds.
func ServingConfig() (map[string]any, error) {
	config := map[string]map[string]any{}
	if err := readShipped(configFile, &config); err != nil {
		return nil, err
	}
	// As the chart fills in the image of the release, which has no name here.
	if download := config["storageInitializer"]; download["image"] == "" {
		download["image"], download["command"] = "modelplane-pod", []string{"/modelplane-pod", "storage-initializer"}
	}
	if agent := config["agent"]; agent["image"] == "" {
		agent["image"], agent["command"] = "modelplane-pod", []string{"/modelplane-pod", "agent"}
	}
	if router := config["router"]; router["image"] == "" {
		router["image"], router["command"] = "modelplane-pod", []string{"/modelplane-pod", "router"}
	}
	out := map[string]any{}
	for key, value := range config {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		out[key] = string(text)
	}
	return out, nil
}

func readShipped(path string, into any) error {
	raw, err := shipped.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
