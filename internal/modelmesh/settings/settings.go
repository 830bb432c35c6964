// SPDX-License-Identifier: Apache-2.0

// Package settings turns the ConfigMaps model-serving-config and model-serving-config-defaults into one typed value.
//
// Keys are read without regard to upper and lower case. A key that nobody knows is named and otherwise ignored; a value
// that cannot be used keeps everything that held before, and is reported. Nobody outside this package sees YAML or an
// unparsed quantity. Settings that were handed out are shared and must not be changed. What they lead to is for the rooms
// that read them.
package settings

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Settings are what holds for all multi-model runtimes. The names in the tags are the keys that people write.
type Settings struct {
	// InferenceServiceName is the Service at which the models of a namespace are reached, and the first part of the names
	// of Deployments.
	InferenceServiceName string `json:"inferenceServiceName"`
	InferenceServicePort int32  `json:"inferenceServicePort"`
	// PodsPerRuntime where a runtime does not say how many.
	PodsPerRuntime int32 `json:"podsPerRuntime"`
	// StorageSecretName is the Secret of each namespace that says where models are stored.
	StorageSecretName string `json:"storageSecretName"`
	// EtcdSecretName is the Secret with the connection to etcd, where it has another name than the platform's.
	EtcdSecretName string `json:"etcdSecretName"`
	// ModelMeshEndpoint is an address at which the mesh is reached instead, for developers.
	ModelMeshEndpoint string `json:"modelMeshEndpoint"`
	// AllowAnyPVC lets models be read from claims that are not listed in the storage Secret.
	AllowAnyPVC             bool      `json:"allowAnyPVC"`
	TLS                     TLS       `json:"tls"`
	HeadlessService         bool      `json:"headlessService"`
	GRPCMaxMessageSizeBytes int64     `json:"grpcMaxMessageSizeBytes"`
	ModelMeshImage          Image     `json:"modelMeshImage"`
	ModelMeshResources      Resources `json:"modelMeshResources"`
	RESTProxy               RESTProxy `json:"restProxy"`
	StorageHelperImage      Image     `json:"storageHelperImage"`
	StorageHelperResources  Resources `json:"storageHelperResources"`
	// AdapterImage has the adapters of servers that do not speak the mesh's language themselves. It is StorageHelperImage
	// where that is somebody else's.
	AdapterImage        Image       `json:"adapterImage"`
	ServiceAccountName  string      `json:"serviceAccountName"`
	EnableAccessLogging bool        `json:"enableAccessLogging"`
	Metrics             Metrics     `json:"metrics"`
	ScaleToZero         ScaleToZero `json:"scaleToZero"`
	BuiltInServerTypes  []string    `json:"builtInServerTypes"`
	PayloadProcessors   []string    `json:"payloadProcessors"`
	// RuntimePodLabels and RuntimePodAnnotations are for all pods; what a runtime says wins.
	RuntimePodLabels         map[string]string `json:"runtimePodLabels"`
	RuntimePodAnnotations    map[string]string `json:"runtimePodAnnotations"`
	ImagePullSecrets         []PullSecret      `json:"imagePullSecrets"`
	InternalModelMeshEnvVars []Variable        `json:"internalModelMeshEnvVars"`
}

// TLS is how the mesh is reached; in plain text without a Secret.
type TLS struct {
	// SecretName is a Secret of each namespace, of the type kubernetes.io/tls.
	SecretName string `json:"secretName"`
	// ClientAuth is what is asked of clients: nothing if empty, else required or optional.
	ClientAuth string `json:"clientAuth"`
}

// Image is an image and how it is started. A digest counts more than a tag.
type Image struct {
	Name    string   `json:"name"`
	Tag     string   `json:"tag"`
	Digest  string   `json:"digest"`
	Command []string `json:"command"`
}

// String is the image as pods name it.
func (i Image) String() string {
	switch {
	case i.Digest != "":
		return i.Name + "@" + i.Digest
	case i.Tag != "":
		return i.Name + ":" + i.Tag
	}
	return i.Name
}

// ImageOf takes the name of an image apart.
func ImageOf(ref string, command ...string) Image {
	out := Image{Command: command}
	ref, out.Digest, _ = strings.Cut(ref, "@")
	out.Name = ref
	if colon := strings.LastIndex(ref, ":"); colon > strings.LastIndex(ref, "/") {
		out.Name, out.Tag = ref[:colon], ref[colon+1:]
	}
	return out
}

// Ours tells whether an image is started as our own program, which brings no scripts along.
func (i Image) Ours() bool { return len(i.Command) > 0 && i.Command[0] == program }

// Resources of a container.
type Resources struct {
	Requests Amounts `json:"requests"`
	Limits   Amounts `json:"limits"`
}

// Amounts are quantities as they are written.
type Amounts struct {
	CPU    string `json:"cpu"`
	Memory string `json:"memory"`
}

// List has the amounts that are given.
func (a Amounts) List() corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: a.CPU, corev1.ResourceMemory: a.Memory} {
		if q, err := resource.ParseQuantity(text); err == nil { // checked when it was read
			out[name] = q
		}
	}
	return out
}

// Requirements are the resources in a pod's words.
func (r Resources) Requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: r.Requests.List(), Limits: r.Limits.List()}
}

// RESTProxy answers the open inference protocol over HTTP.
type RESTProxy struct {
	Enabled bool `json:"enabled"`
	// SkipVerify lets it speak to the mesh beside it without a look at the certificate.
	SkipVerify bool      `json:"skipVerify"`
	Port       int32     `json:"port"`
	Image      Image     `json:"image"`
	Resources  Resources `json:"resources"`
}

// Metrics of the mesh.
type Metrics struct {
	Enabled bool   `json:"enabled"`
	Port    int32  `json:"port"`
	Scheme  string `json:"scheme"`
	// DisablePrometheusOperatorSupport keeps ServiceMonitors from being made.
	DisablePrometheusOperatorSupport bool `json:"disablePrometheusOperatorSupport"`
}

// ScaleToZero ends pods that no model needs.
type ScaleToZero struct {
	Enabled            bool  `json:"enabled"`
	GracePeriodSeconds int64 `json:"gracePeriodSeconds"`
}

// Grace is how long pods stay after the last model has gone.
func (s ScaleToZero) Grace() time.Duration { return time.Duration(s.GracePeriodSeconds) * time.Second }

// PullSecret names a Secret with which images are pulled.
type PullSecret struct {
	Name string `json:"name"`
}

// Variable of the mesh's environment.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// What runs beside a runtime, and what the images of others start.
const (
	program      = "/modelplane-pod"
	foreignPull  = "/opt/app/puller"
	adapterImage = "kserve/modelmesh-runtime-adapter:v0.12.0"
)

// Default is what holds where nobody says anything. The programs beside a runtime are ours, from the image that the
// release brings.
func Default(podImage string) *Settings {
	mesh, helper := ImageOf(podImage, program, "mesh"), ImageOf(podImage, program, "mesh-puller")
	return &Settings{
		InferenceServiceName: "modelmesh-serving", InferenceServicePort: 8033,
		PodsPerRuntime: 2, StorageSecretName: "storage-config", HeadlessService: true, GRPCMaxMessageSizeBytes: 16 << 20,
		ModelMeshImage: mesh, ModelMeshResources: resources("300m", "448Mi", "3", "448Mi"),
		RESTProxy: RESTProxy{
			Enabled: true, Port: 8008, Image: ImageOf(podImage, program, "mesh-rest"), Resources: resources("50m", "96Mi", "1", "512Mi"),
		},
		StorageHelperImage: helper, StorageHelperResources: resources("50m", "96Mi", "2", "512Mi"),
		AdapterImage:       ImageOf(adapterImage),
		Metrics:            Metrics{Enabled: true, Port: 2112, Scheme: "https"},
		ScaleToZero:        ScaleToZero{Enabled: true, GracePeriodSeconds: 60},
		BuiltInServerTypes: []string{"mlserver", "triton", "ovms", "torchserve"},
	}
}

func resources(cpu, memory, cpuLimit, memoryLimit string) Resources {
	return Resources{Requests: Amounts{CPU: cpu, Memory: memory}, Limits: Amounts{CPU: cpuLimit, Memory: memoryLimit}}
}
