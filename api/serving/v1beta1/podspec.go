// SPDX-License-Identifier: Apache-2.0

package v1beta1

import corev1 "k8s.io/api/core/v1"

// PodSpec is the pod template that a component of an InferenceService inlines.
// It has the fields of the Kubernetes type, but no list of containers is
// required: a framework block and a runtime may provide them. The two types are
// field by field the same, which the compiler checks in Core.
type PodSpec struct {
	// Volumes that the containers of the pod may mount.
	// +optional
	Volumes []corev1.Volume `json:"volumes,omitempty" patchStrategy:"merge,retainKeys" patchMergeKey:"name"`
	// InitContainers run to completion, in order, before the containers start.
	// +optional
	InitContainers []corev1.Container `json:"initContainers,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// Containers of the pod.
	// +optional
	Containers []corev1.Container `json:"containers,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// EphemeralContainers is not on the wire here; where a kind has it, it stands beside this struct.
	EphemeralContainers []corev1.EphemeralContainer `json:"-"`
	// RestartPolicy of the containers: Always, OnFailure or Never.
	// +optional
	RestartPolicy corev1.RestartPolicy `json:"restartPolicy,omitempty"`
	// TerminationGracePeriodSeconds is how long the pod may take to stop.
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	// ActiveDeadlineSeconds is how long the pod may be active on a node.
	// +optional
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// DNSPolicy of the pod, ClusterFirst when empty.
	// +optional
	DNSPolicy corev1.DNSPolicy `json:"dnsPolicy,omitempty"`
	// NodeSelector names labels that a node must have to run the pod.
	// +optional
	// +mapType=atomic
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// ServiceAccountName is the identity the pod runs as.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// DeprecatedServiceAccount is the former name of serviceAccountName.
	// +optional
	DeprecatedServiceAccount string `json:"serviceAccount,omitempty"`
	// AutomountServiceAccountToken tells whether a service account token is mounted.
	// +optional
	AutomountServiceAccountToken *bool `json:"automountServiceAccountToken,omitempty"`
	// NodeName pins the pod to one node, past the scheduler.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// HostNetwork gives the pod the network of its node.
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// HostPID gives the pod the process table of its node.
	// +optional
	HostPID bool `json:"hostPID,omitempty"`
	// HostIPC gives the pod the interprocess communication of its node.
	// +optional
	HostIPC bool `json:"hostIPC,omitempty"`
	// ShareProcessNamespace lets the containers see the processes of each other.
	// +optional
	ShareProcessNamespace *bool `json:"shareProcessNamespace,omitempty"`
	// SecurityContext holds security settings for the whole pod.
	// +optional
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`
	// ImagePullSecrets name the secrets used to pull the images.
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// Hostname of the pod.
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// Subdomain of the pod's fully qualified host name.
	// +optional
	Subdomain string `json:"subdomain,omitempty"`
	// Affinity holds scheduling constraints towards nodes and other pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// SchedulerName is the scheduler that places the pod.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// Tolerations let the pod run on tainted nodes.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// HostAliases are additional entries for the hosts file of the pod.
	// +optional
	HostAliases []corev1.HostAlias `json:"hostAliases,omitempty" patchStrategy:"merge" patchMergeKey:"ip"`
	// PriorityClassName names the priority class of the pod.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// Priority of the pod; usually set from the priority class.
	// +optional
	Priority *int32 `json:"priority,omitempty"`
	// DNSConfig adds DNS settings to those of the DNS policy.
	// +optional
	DNSConfig *corev1.PodDNSConfig `json:"dnsConfig,omitempty"`
	// ReadinessGates are further conditions the pod needs to count as ready.
	// +optional
	ReadinessGates []corev1.PodReadinessGate `json:"readinessGates,omitempty"`
	// RuntimeClassName names the container runtime class.
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`
	// EnableServiceLinks tells whether services appear as environment variables.
	// +optional
	EnableServiceLinks *bool `json:"enableServiceLinks,omitempty"`
	// PreemptionPolicy tells whether the pod may displace pods of lower priority.
	// +optional
	PreemptionPolicy *corev1.PreemptionPolicy `json:"preemptionPolicy,omitempty"`
	// Overhead is what the runtime class itself consumes.
	// +optional
	Overhead corev1.ResourceList `json:"overhead,omitempty"`
	// TopologySpreadConstraints tell how pods spread over zones, nodes and so on.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty" patchStrategy:"merge" patchMergeKey:"topologyKey"`
	// SetHostnameAsFQDN makes the full domain name the host name.
	// +optional
	SetHostnameAsFQDN *bool `json:"setHostnameAsFQDN,omitempty"`
	// OS the pod is made for.
	// +optional
	OS *corev1.PodOS `json:"os,omitempty"`
	// HostUsers tells whether the pod uses the user namespace of its node.
	// +optional
	HostUsers *bool `json:"hostUsers,omitempty"`
	// SchedulingGates hold scheduling back until they are removed.
	// +optional
	// +listType=map
	// +listMapKey=name
	SchedulingGates []corev1.PodSchedulingGate `json:"schedulingGates,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// ResourceClaims name the claims for devices that the containers may use.
	// +optional
	// +listType=map
	// +listMapKey=name
	ResourceClaims []corev1.PodResourceClaim `json:"resourceClaims,omitempty" patchStrategy:"merge,retainKeys" patchMergeKey:"name"`
	// Resources requested and limited for the pod as a whole.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// HostnameOverride replaces the host name of the pod.
	// +optional
	HostnameOverride *string `json:"hostnameOverride,omitempty"`
	// SchedulingGroup is not part of this API version.
	SchedulingGroup *corev1.PodSchedulingGroup `json:"-"`
	// EvictionResponders is not part of this API version.
	EvictionResponders []corev1.EvictionResponder `json:"-"`
}

// Core views the template as the Kubernetes type. Both share the same memory, so
// a change to one shows in the other.
func (p *PodSpec) Core() *corev1.PodSpec {
	return (*corev1.PodSpec)(p)
}

// PodSpecFrom turns a Kubernetes template into the inlined form.
func PodSpecFrom(p corev1.PodSpec) PodSpec {
	return PodSpec(p)
}
