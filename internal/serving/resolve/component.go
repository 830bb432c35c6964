// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/kube"
	"github.com/modelplane/modelplane/internal/serving/observed"
	"github.com/modelplane/modelplane/internal/serving/runtimes"
	"github.com/modelplane/modelplane/internal/serving/storage"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// Names that users, model servers and dashboards know.
const (
	mainContainer        = "kserve-container"
	transformerContainer = "transformer-container"
	envStorageURI        = "STORAGE_URI"
	modelsDir            = "/mnt/models"
	configsDir           = "/mnt/configs"
)

// Component is one part of a service, decided: the predictor, a canary, the transformer or the explainer.
type Component struct {
	workload.Part
	// Canary is the name of a canary, empty for the stable predictor and others.
	Canary  string
	Percent int32
	// Runtime that the predictor was made with, nil for custom containers.
	Runtime  *runtimes.Runtime
	Protocol v1beta1.InferenceServiceProtocol
	// Failed is why a canary cannot be made. Then only its name, its share and how many pods it is to have are known.
	Failed *Failure

	rest string // see Mark
}

// Failure is why a component cannot be made. Of is empty for what concerns the service as a whole.
type Failure struct {
	Of      v1beta1.ComponentType
	Reason  v1beta1.FailureReason
	Problem *engine.Problem
}

// builder makes the components of one service.
type builder struct {
	isvc *v1beta1.InferenceService
	seen *observed.State
	// imageVolumes says that some component mounts its model as an image.
	imageVolumes bool
	// images is how models come that are in images, empty if there is none or nothing is known.
	images string
}

func (b *builder) failed(of v1beta1.ComponentType, err error) *Failure {
	if f, ok := errors.AsType[*runtimes.Failure](err); ok {
		out := &Failure{Of: of, Reason: f.Reason, Problem: problemOf(f.Reason, err)}
		if f.Condition != "" {
			out.Problem.Reason = f.Condition
		}
		return out
	}
	return &Failure{Of: of, Reason: v1beta1.InvalidPredictorSpec,
		Problem: engine.MustChange(string(v1beta1.InvalidPredictorSpec), "%s", err.Error())}
}

// problemOf sorts failures by who must act: a runtime may still come, a spec
// must be changed.
func problemOf(reason v1beta1.FailureReason, err error) *engine.Problem {
	switch reason {
	case v1beta1.NoSupportingRuntime, v1beta1.RuntimeNotRecognized, v1beta1.RuntimeDisabled:
		return engine.WaitFor(string(reason), "%s", err.Error())
	}
	return engine.MustChange(string(reason), "%s", err.Error())
}

// labels are those of all objects of a component: the user's come before the
// runtime's, and ours before both.
func (b *builder) labels(of v1beta1.ComponentType, layers ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, layer := range layers {
		maps.Copy(out, layer)
	}
	out[v1beta1.LabelInferenceService] = b.isvc.Name
	out[v1beta1.LabelComponent] = string(of)
	return out
}

// ownLabels are those of the service that its children have. What a model registry calls it is found out when the pods run
// and must not restart them: it stays off the children, and those that have it already keep it.
func (b *builder) ownLabels() map[string]string {
	out := b.isvc.Labels
	for _, key := range kube.LabelsRegistryID {
		if _, has := out[key]; !has {
			continue
		}
		out = maps.Clone(out)
		if delete(out, key); b.seen.Labelled(key) != "" {
			out[key] = b.seen.Labelled(key)
		}
	}
	return out
}

// annotations are those of all objects of a component. Internal ones, which
// tell the pod webhook what to do, are not the user's to set.
func (b *builder) annotations(runtime, internal, own map[string]string) map[string]string {
	cfg := b.seen.Config
	out := cfg.FilterAnnotations(runtime)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, cfg.FilterAnnotations(b.isvc.Annotations))
	maps.Copy(out, internal)
	maps.Copy(out, cfg.FilterAnnotations(own))
	return out
}

// helpers are the annotations by which the pod webhook adds the agent.
func (b *builder) helpers(of v1beta1.ComponentType, ext v1beta1.ComponentExtensionSpec) map[string]string {
	out := map[string]string{}
	if l := ext.Logger; l != nil {
		out[v1beta1.AnnotationLogger] = "true"
		out[v1beta1.AnnotationLoggerMode] = string(l.Mode)
		if l.URL != nil {
			out[v1beta1.AnnotationLoggerSinkURL] = *l.URL
		}
		if len(l.MetadataHeaders) > 0 {
			out[v1beta1.AnnotationLoggerHeaders] = strings.Join(l.MetadataHeaders, ",")
		}
		if len(l.MetadataAnnotations) > 0 {
			out[v1beta1.AnnotationLoggerAnnotations] = strings.Join(l.MetadataAnnotations, ",")
		}
	}
	if batch := ext.Batcher; batch != nil && of != v1beta1.ExplainerComponent {
		out[v1beta1.AnnotationBatcher] = "true"
		if batch.MaxBatchSize != nil {
			out[v1beta1.AnnotationBatcherMaxBatchSize] = strconv.Itoa(*batch.MaxBatchSize)
		}
		if wait := batchWait(batch, b.seen.Config.Batcher.MaxLatency); wait > 0 {
			out[v1beta1.AnnotationBatcherMaxLatency] = strconv.Itoa(wait)
		}
	}
	return out
}

// batchWait is how many milliseconds the oldest request of a batch waits: no longer than either limit says. Zero leaves it to
// the platform.
func batchWait(batch *v1beta1.Batcher, platform int) int {
	wait := ptr.Deref(batch.MaxLatency, 0)
	if t := ptr.Deref(batch.Timeout, 0); t > 0 && t < math.MaxInt32/1000 && t*1000 < cmp.Or(wait, platform) {
		return t * 1000
	}
	return wait
}

// fetch checks where the model comes from and prepares the pod for it: several
// addresses are fetched by an init container that the template shows, a single
// one by the pod webhook, which reads the returned annotations.
func (b *builder) fetch(of v1beta1.ComponentType, src storage.Source, pod *corev1.PodSpec) (map[string]string, error) {
	err := storage.Check(src, b.seen.Containers)
	if err == nil {
		err = storage.CheckRegistry(src, b.seen.Containers, b.seen.Config.StorageInitializer)
	}
	if err != nil {
		return nil, fmt.Errorf("spec.%s: %w", of, err)
	}
	src = b.apart(src)
	b.imageVolumes = b.imageVolumes || storage.AsImageVolume(src, b.seen.Config.StorageInitializer)
	if len(src.URIs) == 0 {
		return storage.Annotations(src), nil
	}
	err = storage.Inject(pod, storage.Injection{
		Source:          src,
		Namespace:       b.isvc.Namespace,
		ConfigNamespace: b.seen.ConfigNamespace,
		Annotations:     b.isvc.Annotations,
		Containers:      b.seen.Containers,
		Secrets:         b.seen.Secrets[of],
		Config:          b.seen.Config,
		AsBefore:        b.asBefore(),
	})
	if err != nil {
		return nil, fmt.Errorf("spec.%s: %w", of, err)
	}
	return nil, nil
}

// envOf finds the literal value of a variable.
func envOf(containers []corev1.Container, container, name string) string {
	for _, c := range containers {
		if c.Name != container {
			continue
		}
		if i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name }); i >= 0 {
			return c.Env[i].Value
		}
	}
	return ""
}
