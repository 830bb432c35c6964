// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checker collects what is wrong with a section.
type checker struct{ faults []string }

func (c *checker) fault(path, format string, args ...any) {
	c.faults = append(c.faults, path+": "+fmt.Sprintf(format, args...))
}

// longestWindow is the longest stabilization window that an autoscaler takes.
const longestWindow = 3600

// scrapeInterval is a duration as Prometheus writes it, which is what a collector reads.
var scrapeInterval = regexp.MustCompile(`^([0-9]+(ms|s|m|h|d|w|y))+$`)

func checkExplainers(c *checker, v *Explainers, _ object) {
	c.image("art.image", v.Art.Image)
}

func checkInferenceService(c *checker, v *InferenceService, _ object) {
	c.resources("resource.", v.Resource)
}

func checkMultiNode(c *checker, v *MultiNode, _ object) {
	for i, name := range v.CustomGPUResourceTypeList {
		c.qualifiedName(fmt.Sprintf("customGPUResourceTypeList[%d]", i), name)
	}
}

func checkCollector(c *checker, v *OpenTelemetryCollector, _ object) {
	if !scrapeInterval.MatchString(v.ScrapeInterval) {
		c.fault("scrapeInterval", "%s is no duration; write for example \"5s\"", quote(v.ScrapeInterval))
	}
	c.resources("resource.", v.Resource)
}

func checkAutoscaler(c *checker, v *Autoscaler, _ object) {
	c.within("scaleUpStabilizationWindowSeconds", int64(v.ScaleUpStabilizationWindowSeconds), 0, longestWindow)
	c.within("scaleDownStabilizationWindowSeconds", int64(v.ScaleDownStabilizationWindowSeconds), 0, longestWindow)
	c.objectName("activator", v.Activator)
}

func checkStorageInitializer(c *checker, v *StorageInitializer, _ object) {
	c.image("image", v.Image)
	c.resources("", v.Resources)
	c.objectName("caBundleConfigMapName", v.CABundleConfigMapName)
	c.mountPath("caBundleVolumeMountPath", v.CABundleVolumeMountPath)
	c.oneOf("ociModelMode", v.OCIModelMode, "", OCIModelcar, OCINative, OCIFetch)
	c.positive("cpuModelcar", v.CPUModelcar)
	c.positive("memoryModelcar", v.MemoryModelcar)
	c.id("uidModelcar", v.UIDModelcar)
	c.serverURL("modelRegistryUrl", v.ModelRegistryURL)
}

func checkCredentials(c *checker, v *Credentials, _ object) {
	c.dataKey("s3.s3AccessKeyIDName", v.S3.S3AccessKeyIDName)
	c.dataKey("s3.s3SecretAccessKeyName", v.S3.S3SecretAccessKeyName)
	c.objectName("s3.s3CABundleConfigMap", v.S3.S3CABundleConfigMap)
	c.dataKey("gcs.gcsCredentialFileName", v.GCS.GCSCredentialFileName)
	c.objectName("storageSpecSecretName", v.StorageSpecSecretName)
	c.qualifiedName("storageSecretNameAnnotation", v.StorageSecretNameAnnotation)
}

func checkLogger(c *checker, v *Logger, _ object) {
	c.image("image", v.Image)
	c.resources("", v.Resources)
	c.url("defaultUrl", v.DefaultURL)
	c.url("marshallerUrl", v.MarshallerURL)
	c.objectName("caBundle", v.CABundle)
	c.within("batchSize", int64(v.BatchSize), 0, math.MaxInt32)
	if v.BatchInterval != "" {
		if d, err := time.ParseDuration(v.BatchInterval); err != nil || d <= 0 {
			c.fault("batchInterval", "%s is no duration; write for example \"10s\"", quote(v.BatchInterval))
		}
	}
}

func checkBatcher(c *checker, v *Batcher, _ object) {
	c.image("image", v.Image)
	c.resources("", v.Resources)
	c.within("maxBatchSize", int64(v.MaxBatchSize), 1, math.MaxInt32)
	c.within("maxLatency", int64(v.MaxLatency), 1, math.MaxInt32)
}

func checkAgent(c *checker, v *Agent, _ object) {
	c.image("image", v.Image)
	c.resources("", v.Resources)
}

func checkRouter(c *checker, v *Router, _ object) {
	c.image("image", v.Image)
	c.resources("", v.Resources)
	c.oneOf("imagePullPolicy", v.ImagePullPolicy, "",
		string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever))
	for i, name := range v.ImagePullSecrets {
		c.objectName(fmt.Sprintf("imagePullSecrets[%d]", i), name)
	}
	c.objectName("caBundle", v.CABundle)
}

func checkDeploy(c *checker, v *Deploy, given object) {
	mode, ok := TranslateMode(v.DefaultDeploymentMode)
	switch {
	case !given.has("defaultDeploymentMode"):
		c.fault("defaultDeploymentMode", "is missing; write %s, %s or %s", ModeStandard, ModeKnative, ModeModelMesh)
	case !ok:
		c.fault("defaultDeploymentMode", "%s is no mode; write %s, %s or %s",
			quote(v.DefaultDeploymentMode), ModeStandard, ModeKnative, ModeModelMesh)
	}
	v.DefaultDeploymentMode = mode
	rollout := v.DeploymentRolloutStrategy.DefaultRollout
	if isZero(rollout.MaxSurge) && isZero(rollout.MaxUnavailable) {
		c.fault("deploymentRolloutStrategy.defaultRollout", "maxSurge and maxUnavailable are both zero, so that no pod "+
			"could ever be replaced; raise one of them")
	}
}

func isZero(v *intstr.IntOrString) bool {
	return v != nil && (v.String() == "0" || v.String() == "0%")
}

// TranslateMode turns a mode in its present or legacy spelling into the present one; false means that there is no such
// mode.
func TranslateMode(mode string) (string, bool) {
	switch mode {
	case ModeStandard, "RawDeployment":
		return ModeStandard, true
	case ModeKnative, "Serverless":
		return ModeKnative, true
	case ModeModelMesh:
		return ModeModelMesh, true
	}
	return "", false
}

// Mode is how something is run: the first of what was said that is a mode, or else the platform's own.
func (c *Config) Mode(said ...string) string {
	for _, s := range said {
		if mode, ok := TranslateMode(s); ok {
			return mode
		}
	}
	return c.Deploy.DefaultDeploymentMode
}

func checkLocalModel(c *checker, v *LocalModel, _ object) {
	if len(validation.IsDNS1123Label(v.JobNamespace)) > 0 {
		c.fault("jobNamespace", "%s is no name of a namespace", quote(v.JobNamespace))
	}
	c.image("defaultJobImage", v.DefaultJobImage)
	c.id("fsGroup", v.FSGroup)
	c.within("jobTTLSecondsAfterFinished", int64(v.JobTTLSecondsAfterFinished), 0, math.MaxInt32)
	c.within("reconcilationFrequencyInSecs", v.ReconcilationFrequencyInSecs, 1, math.MaxInt32)
}

func checkScheduler(c *checker, v *Scheduler, _ object) {
	if len(v.ExpirationAnnotations) == 0 {
		v.ExpirationAnnotations = Default().Scheduler.ExpirationAnnotations
	}
	for i, name := range v.ExpirationAnnotations {
		c.qualifiedName(fmt.Sprintf("expirationAnnotations[%d]", i), name)
	}
}

func checkWVA(c *checker, v *WVA, _ object) {
	c.url("prometheus.url", v.Prometheus.URL)
	c.objectName("prometheus.triggerAuthName", v.Prometheus.TriggerAuthName)
}

// resources refuses what the API server would refuse of every pod: requests beyond limits.
func (c *checker) resources(prefix string, r Resources) {
	if !r.CPULimit.IsZero() && r.CPURequest.Cmp(r.CPULimit) > 0 {
		c.fault(prefix+"cpuRequest", "is more than cpuLimit (%s); lower it or raise the limit", r.CPULimit.String())
	}
	if !r.MemoryLimit.IsZero() && r.MemoryRequest.Cmp(r.MemoryLimit) > 0 {
		c.fault(prefix+"memoryRequest", "is more than memoryLimit (%s); lower it or raise the limit", r.MemoryLimit.String())
	}
}

func (c *checker) positive(path string, q resource.Quantity) {
	if q.Sign() <= 0 {
		c.fault(path, "must be more than zero")
	}
}

func (c *checker) within(path string, n, least, most int64) {
	if n < least || n > most {
		c.fault(path, "%d is out of range; write a number from %d to %d", n, least, most)
	}
}

// id is a user or group id as pods may have it.
func (c *checker) id(path string, n *int64) {
	if n != nil {
		c.within(path, *n, 0, math.MaxInt32)
	}
}

func (c *checker) image(path, image string) {
	if strings.TrimSpace(image) != image || strings.ContainsAny(image, " \t\r\n") {
		c.fault(path, "%s is no image name; remove the white space", quote(image))
	}
}

// objectName is the name of a ConfigMap or Secret, or nothing.
func (c *checker) objectName(path, name string) {
	if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		c.fault(path, "%s is no name that an object can have", quote(name))
	}
}

func (c *checker) dataKey(path, key string) {
	if len(validation.IsConfigMapKey(key)) > 0 {
		c.fault(path, "%s is no data key that a Secret can have", quote(key))
	}
}

func (c *checker) qualifiedName(path, name string) {
	if len(validation.IsQualifiedName(name)) > 0 {
		c.fault(path, "%s is no qualified name such as example.com/name", quote(name))
	}
}

func (c *checker) mountPath(field, p string) {
	if !path.IsAbs(p) || strings.Contains(p, ":") {
		c.fault(field, "%s cannot be mounted; write an absolute path without a colon", quote(p))
	}
}

func (c *checker) oneOf(path, v string, allowed ...string) {
	if slices.Contains(allowed, v) {
		return
	}
	allowed = slices.DeleteFunc(slices.Clone(allowed), func(s string) bool { return s == "" })
	c.fault(path, "%s is unknown; write one of %s", quote(v), strings.Join(allowed, ", "))
}

// url is an absolute URL or nothing. The value itself stays out of the message, since people put passwords into URLs.
// serverURL is for what goes into pods as it is: a password in it would show there.
func (c *checker) serverURL(path, v string) {
	if v == "" {
		return
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		c.fault(path, "is no address of a server; write for example \"http://host:8080\", without a user and a query")
	}
}

func (c *checker) url(path, v string) {
	if v == "" {
		return
	}
	if u, err := url.Parse(v); err != nil || u.Scheme == "" || u.Host == "" {
		c.fault(path, "is no URL; write for example \"http://host:8080\"")
	}
}
