// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// check finds values that no pod or Service could have.
func check(s *Settings) []string {
	r := &reading{}
	r.name("inferenceServiceName", s.InferenceServiceName, validation.IsDNS1035Label)
	r.name("storageSecretName", s.StorageSecretName, validation.IsDNS1123Subdomain)
	for path, name := range map[string]string{
		"etcdSecretName": s.EtcdSecretName, "tls.secretName": s.TLS.SecretName, "serviceAccountName": s.ServiceAccountName,
	} {
		if name != "" {
			r.name(path, name, validation.IsDNS1123Subdomain)
		}
	}
	r.within("podsPerRuntime", int64(s.PodsPerRuntime), 1, math.MaxUint16)
	r.within("grpcMaxMessageSizeBytes", s.GRPCMaxMessageSizeBytes, 1, math.MaxInt32)
	r.within("scaleToZero.gracePeriodSeconds", s.ScaleToZero.GracePeriodSeconds, 0, math.MaxInt32)
	r.ports(s)
	r.oneOf("tls.clientAuth", s.TLS.ClientAuth, "", "required", "optional")
	if s.TLS.ClientAuth != "" && s.TLS.SecretName == "" {
		r.fault("tls.clientAuth", "has no effect without tls.secretName; name the Secret")
	}
	r.oneOf("metrics.scheme", s.Metrics.Scheme, "http", "https")
	for path, image := range map[string]Image{
		"modelMeshImage": s.ModelMeshImage, "storageHelperImage": s.StorageHelperImage, "restProxy.image": s.RESTProxy.Image, "adapterImage": s.AdapterImage,
	} {
		if text := image.String(); image.Name == "" || strings.ContainsAny(text, " \t\r\n") {
			r.fault(path, "%s is no image; write a name, and a tag or a digest", quote(text))
		}
	}
	r.resources("modelMeshResources", s.ModelMeshResources)
	r.resources("storageHelperResources", s.StorageHelperResources)
	r.resources("restProxy.resources", s.RESTProxy.Resources)
	r.lists(s)
	return sorted(r.faults)
}

// ports wants each port once: all listen in one pod.
func (r *reading) ports(s *Settings) {
	used := map[int32]string{8080: "the mesh's own port", 8085: "the runtime's management port", 8086: "the puller", 8089: "the mesh's probes", 8090: "the mesh's shutdown"}
	listen := func(path string, port int32) {
		if r.within(path, int64(port), 1, math.MaxUint16); used[port] != "" {
			r.fault(path, "%d is taken by %s; choose another port", port, used[port])
		}
		used[port] = path
	}
	listen("inferenceServicePort", s.InferenceServicePort)
	if s.RESTProxy.Enabled {
		listen("restProxy.port", s.RESTProxy.Port)
	}
	if s.Metrics.Enabled {
		listen("metrics.port", s.Metrics.Port)
	}
}

func (r *reading) lists(s *Settings) {
	for i, p := range s.PayloadProcessors {
		if p == "" || strings.ContainsAny(p, " \t\r\n") { // may have a password in it
			r.fault(fmt.Sprintf("payloadProcessors[%d]", i), "is empty or has white space; write a URI")
		}
	}
	for i, secret := range s.ImagePullSecrets {
		r.name(fmt.Sprintf("imagePullSecrets[%d].name", i), secret.Name, validation.IsDNS1123Subdomain)
	}
	for i, v := range s.InternalModelMeshEnvVars {
		r.name(fmt.Sprintf("internalModelMeshEnvVars[%d].name", i), v.Name, validation.IsEnvVarName)
	}
	for i, t := range s.BuiltInServerTypes {
		r.name(fmt.Sprintf("builtInServerTypes[%d]", i), t, validation.IsDNS1123Label)
	}
	for key, value := range s.RuntimePodLabels {
		r.name("runtimePodLabels", key, validation.IsQualifiedName)
		if len(validation.IsValidLabelValue(value)) > 0 {
			r.fault("runtimePodLabels."+key, "%s is no value of a label", quote(value))
		}
	}
	for key := range s.RuntimePodAnnotations {
		r.name("runtimePodAnnotations", strings.ToLower(key), validation.IsQualifiedName)
	}
}

func (r *reading) name(path, name string, wrong func(string) []string) {
	if len(wrong(name)) > 0 {
		r.fault(path, "%s cannot be a name here", quote(name))
	}
}

func (r *reading) within(path string, n, least, most int64) {
	if n < least || n > most {
		r.fault(path, "%d is out of range; write a number from %d to %d", n, least, most)
	}
}

func (r *reading) oneOf(path, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	r.fault(path, "%s is unknown; write %s", quote(value), strings.TrimPrefix(strings.Join(allowed, " or "), " or "))
}

// resources refuses what the API server would refuse of every pod.
func (r *reading) resources(path string, res Resources) {
	amounts := map[string]resource.Quantity{}
	for at, text := range map[string]string{
		"requests.cpu": res.Requests.CPU, "requests.memory": res.Requests.Memory, "limits.cpu": res.Limits.CPU, "limits.memory": res.Limits.Memory,
	} {
		if text == "" {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 {
			r.fault(path+"."+at, "%s is no amount; write for example \"500m\" or \"1Gi\"", quote(text))
			continue
		}
		amounts[at] = q
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := amounts["requests."+string(name)], amounts["limits."+string(name)]
		if !limit.IsZero() && request.Cmp(limit) > 0 {
			r.fault(path+".requests."+string(name), "is more than the limit (%s); lower it or raise the limit", limit.String())
		}
	}
}
