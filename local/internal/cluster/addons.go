// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/base64"
	"fmt"
	"os"
)

// AddonManifests are the class of volumes that claims get when they name none, and what the addons may do. A claim gets
// its volume at once: there is no choice of nodes to wait for.
func AddonManifests() string {
	return fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: modelplane.dev/local
reclaimPolicy: Delete
volumeBindingMode: Immediate
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]q}
rules:
- {apiGroups: [""], resources: [persistentvolumes], verbs: [list, watch, create, delete]}
- {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [list, watch]}
- {apiGroups: [storage.k8s.io], resources: [storageclasses], verbs: [list, watch]}
- {apiGroups: [""], resources: [services], verbs: [list, watch]}
- {apiGroups: [""], resources: [services/status], verbs: [update]}
- {apiGroups: [""], resources: [events], verbs: [create, patch]}
- {apiGroups: [""], resources: [pods, nodes], verbs: [list]}
- {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]q}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]q}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]q}]
`, addonsUser)
}

// metricsManifests have the API server hand on what is asked of metrics.k8s.io. It finds the addons by their address, so
// that it does not depend on kube-proxy, which starts later.
func (b *bringUp) metricsManifests() (string, error) {
	authority, err := os.ReadFile(b.pki.cert(caCluster))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: kube-system}
spec: {type: ExternalName, externalName: %[2]s}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: %[1]s, namespace: kube-system, port: %[3]d}
  caBundle: %[4]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:aggregated-metrics-reader, labels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}}
rules: [{apiGroups: [metrics.k8s.io], resources: [pods, nodes], verbs: [get, list]}]
`, nameAddons, nodeIP, b.state.Ports[portAddonsMetrics], base64.StdEncoding.EncodeToString(authority)), nil
}
