// SPDX-License-Identifier: Apache-2.0

package aihub

import (
	_ "embed"
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/internal/engine"
)

const (
	// sourcesKey is the key of every ConfigMap with sources.
	sourcesKey = "sources.yaml"
	// labelledPrefix begins the names of volumes of labelled ConfigMaps.
	labelledPrefix = "labeled-"
	labelledDir    = "/data/labeled-sources"
	dataDir        = "/shared-data"
	benchmarkDir   = "/shared-benchmark-data"
)

// What the catalog shows by default: labels and queries, and the platform's own sources where it ships their data.
var (
	//go:embed default-plain.yaml
	defaultPlain string
	//go:embed default-catalogs.yaml
	defaultCatalogs string
)

// userSource is a ConfigMap in which people list sources of one kind.
type userSource struct{ configMap, volume, dir, empty string }

// users are those ConfigMaps, in the order in which they count.
var users = []userSource{
	{"model-catalog-sources", "user-sources", "/data/user-sources", "catalogs: []\n"},
	{"mcp-catalog-sources", "user-mcp-sources", "/data/user-mcp-sources", "mcp_catalogs: []\n"},
	{"agent-catalog-sources", "user-agent-sources", "/data/user-agent-sources", "agent_catalogs: []\n"},
}

func userSources() []string {
	var out []string
	for _, u := range users {
		out = append(out, u.configMap)
	}
	return out
}

// sources are the ConfigMaps that the catalog reads. Those of people are made once and are theirs from then on, whatever
// becomes of the catalog.
func (p *planner) sources() []engine.Child {
	text := defaultPlain
	if p.seen.Settings.DataImage != "" {
		text = defaultCatalogs
	}
	// Pods that are kept follow what they were made with: files that other images brought along.
	out := []engine.Child{{Object: p.configMap(defaultSources, text), Stage: stageNeeds, Adopt: true, CreateOnly: p.held.On()}}
	for _, u := range users {
		out = append(out, engine.Child{Object: p.configMap(u.configMap, u.empty), Stage: stageNeeds, CreateOnly: true, Retain: true})
	}
	return out
}

func (p *planner) configMap(object, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: p.meta(object), Data: map[string]string{sourcesKey: text},
	}
}

// mounted is a ConfigMap with sources and where the server finds it.
type mounted struct{ volume, configMap, dir string }

// mounts are all of them, in the order in which they count.
func (p *planner) mounts() []mounted {
	out := []mounted{{"default-sources", defaultSources, "/data/default-sources"}}
	for _, u := range users {
		out = append(out, mounted{u.volume, u.configMap, u.dir})
	}
	for _, cm := range p.seen.Sources {
		out = append(out, mounted{labelledPrefix + cm, cm, path.Join(labelledDir, cm)})
	}
	return out
}

// source is the volume. The server starts without it, should it be gone.
func (m mounted) source() corev1.Volume {
	return corev1.Volume{Name: m.volume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: m.configMap}, Optional: ptr.To(true)}}}
}
