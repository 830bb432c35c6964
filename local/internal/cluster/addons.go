// SPDX-License-Identifier: Apache-2.0

package cluster

import "fmt"

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
- {apiGroups: [""], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]q}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]q}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]q}]
`, addonsUser)
}
