// SPDX-License-Identifier: Apache-2.0

package v1beta1

import corev1 "k8s.io/api/core/v1"

// Container is the container that a framework block inlines. It has the fields
// of the Kubernetes type, but needs no name: the runtime has one. The two types
// are field by field the same, which the compiler checks in Core.
type Container struct {
	// Name of the container; filled in from the runtime when empty.
	// +optional
	Name string `json:"name,omitempty"`
	// Image of the container.
	// +optional
	Image string `json:"image,omitempty"`
	// Command replaces the entry point of the image.
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Args are the arguments of the entry point.
	// +optional
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// WorkingDir of the container.
	// +optional
	WorkingDir string `json:"workingDir,omitempty"`
	// Ports that the container exposes.
	// +optional
	// +listType=map
	// +listMapKey=containerPort
	// +listMapKey=protocol
	Ports []corev1.ContainerPort `json:"ports,omitempty" patchStrategy:"merge" patchMergeKey:"containerPort"`
	// EnvFrom takes environment variables from config maps and secrets.
	// +optional
	// +listType=atomic
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// Env lists environment variables.
	// +optional
	// +listType=map
	// +listMapKey=name
	Env []corev1.EnvVar `json:"env,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// Resources requested by and limited for the container.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// ResizePolicy tells how resources may change while the container runs.
	// +optional
	// +listType=atomic
	ResizePolicy []corev1.ContainerResizePolicy `json:"resizePolicy,omitempty"`
	// RestartPolicy of this container alone.
	// +optional
	RestartPolicy *corev1.ContainerRestartPolicy `json:"restartPolicy,omitempty"`
	// RestartPolicyRules refine the restart policy by exit code.
	// +optional
	// +listType=atomic
	RestartPolicyRules []corev1.ContainerRestartRule `json:"restartPolicyRules,omitempty"`
	// VolumeMounts place volumes in the file system of the container.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty" patchStrategy:"merge" patchMergeKey:"mountPath"`
	// VolumeDevices are the block devices the container uses.
	// +optional
	// +listType=map
	// +listMapKey=devicePath
	VolumeDevices []corev1.VolumeDevice `json:"volumeDevices,omitempty" patchStrategy:"merge" patchMergeKey:"devicePath"`
	// LivenessProbe restarts the container when it fails.
	// +optional
	LivenessProbe *corev1.Probe `json:"livenessProbe,omitempty"`
	// ReadinessProbe takes the container out of service while it fails.
	// +optional
	ReadinessProbe *corev1.Probe `json:"readinessProbe,omitempty"`
	// StartupProbe holds the other probes back until it succeeds.
	// +optional
	StartupProbe *corev1.Probe `json:"startupProbe,omitempty"`
	// Lifecycle holds hooks that run after start and before stop.
	// +optional
	Lifecycle *corev1.Lifecycle `json:"lifecycle,omitempty"`
	// TerminationMessagePath is the file that holds the last words of the container.
	// +optional
	TerminationMessagePath string `json:"terminationMessagePath,omitempty"`
	// TerminationMessagePolicy tells where the last words come from.
	// +optional
	TerminationMessagePolicy corev1.TerminationMessagePolicy `json:"terminationMessagePolicy,omitempty"`
	// ImagePullPolicy is Always, IfNotPresent or Never.
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// SecurityContext holds security settings of the container.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
	// Stdin allocates a standard input.
	// +optional
	Stdin bool `json:"stdin,omitempty"`
	// StdinOnce closes standard input after the first session.
	// +optional
	StdinOnce bool `json:"stdinOnce,omitempty"`
	// TTY allocates a terminal.
	// +optional
	TTY bool `json:"tty,omitempty"`
}

// Core views the container as the Kubernetes type. Both share the same memory,
// so a change to one shows in the other.
func (c *Container) Core() *corev1.Container {
	return (*corev1.Container)(c)
}

// ContainerFrom turns a Kubernetes container into the inlined form.
func ContainerFrom(c corev1.Container) Container {
	return Container(c)
}
