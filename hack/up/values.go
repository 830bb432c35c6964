// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

const chartDir = "charts/modelplane"

// imageValues are the chart's values for images, or none for the chart's own.
func imageValues(manager, pod string) map[string]any {
	values := map[string]any{}
	for key, reference := range map[string]string{"image": manager, "podImage": pod} {
		if repository, tag, found := cutTag(reference); found {
			values[key] = map[string]any{"repository": repository, "tag": tag}
		}
	}
	return values
}

// cutTag minds that a registry may have a port.
func cutTag(reference string) (repository, tag string, found bool) {
	i := strings.LastIndexByte(reference, ':')
	if i < 0 || strings.Contains(reference[i:], "/") {
		return reference, "", false
	}
	return reference[:i], reference[i+1:], true
}

// localValues also make room: what a model server asks for by default would fill a small machine with one model.
func localValues(manager, pod, server, etcd string, withGateway bool) map[string]any {
	values := imageValues(manager, pod)
	values["runtimes"] = map[string]any{"servers": map[string]any{serverImage: imageValues(server, ""), meshRuntime: imageValues(server, "")}}
	own := imageValues(etcd, "")
	own["enabled"] = true
	own["resources"] = map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}}
	own["storage"] = map[string]any{"size": "512Mi"}
	values["modelmesh"] = map[string]any{"etcd": own, "config": smallMesh()}
	config := map[string]any{
		"inferenceService": map[string]any{"resource": map[string]any{
			"cpuRequest": "50m", "cpuLimit": "1", "memoryRequest": "64Mi", "memoryLimit": "1Gi",
		}},
	}
	if withGateway {
		config["ingress"] = gatewayValues()
	}
	values["serving"] = map[string]any{"config": config}
	return values
}

// withActivator adds one replica of it where that was asked for: on one machine another would not outlive it.
func (u *up) withActivator(values map[string]any) map[string]any {
	if u.activator {
		values["activator"] = map[string]any{"enabled": true, "replicas": 1,
			"resources": map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}, "limits": map[string]any{"memory": "256Mi"}}}
	}
	return values
}

// smallMesh asks for little beside each model server, and has one pod of them.
func smallMesh() map[string]any {
	little := func() map[string]any {
		return map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}, "limits": map[string]any{"cpu": "1", "memory": "448Mi"}}
	}
	return map[string]any{
		"podsPerRuntime": 1, "modelMeshResources": little(), "storageHelperResources": little(), "restProxy": map[string]any{"resources": little()},
		// Rather load a model again and again than refuse it, where memory is small and nobody else waits.
		"internalModelMeshEnvVars": []any{map[string]any{"name": "MM_MIN_CHURN_AGE", "value": "1s"}},
	}
}
