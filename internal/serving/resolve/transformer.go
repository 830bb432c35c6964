// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/engine"
	"github.com/modelplane/modelplane/internal/serving/storage"
	"github.com/modelplane/modelplane/internal/serving/workload"
)

// Arguments that transformers and explainers understand.
const (
	ArgModelName     = "--model_name"
	argPredictorHost = "--predictor_host"
	argHTTPPort      = "--http_port"
	argWorkers       = "--workers"
	argProtocol      = "--protocol"
	argStorageURI    = "--storage_uri"
	argAdversaryType = "--adversary_type"
	httpPort         = "8080"
	envServiceName   = "INFERENCE_SERVICE_NAME"
)

// arguments collects those that the user did not give.
type arguments []string

// add appends a flag with its value unless some argument already begins so.
func (a *arguments) add(flag, value string) {
	if !slices.ContainsFunc(*a, func(have string) bool { return strings.HasPrefix(have, flag) }) {
		*a = append(*a, flag, value)
	}
}

// Argument is the value of a flag, or nothing. Of several the last one counts.
func Argument(args []string, flag string) string {
	value := ""
	for i, arg := range args {
		if rest, ok := strings.CutPrefix(arg, flag+"="); ok {
			value = rest
		} else if arg == flag && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

func (a *arguments) addWorkers(ext v1beta1.ComponentExtensionSpec) {
	if ext.ContainerConcurrency != nil {
		a.add(argWorkers, strconv.FormatInt(*ext.ContainerConcurrency, 10))
	}
}

// transformer makes the component that works on requests and responses around
// the predictor.
func (b *builder) transformer(mesh bool) (*Component, *Failure) {
	const of = v1beta1.TransformerComponent
	spec := b.isvc.Spec.Transformer
	pod := *spec.PodSpec.Core().DeepCopy()
	if len(pod.Containers) == 0 {
		return nil, b.failed(of, fmt.Errorf("spec.transformer has no container; add one to spec.transformer.containers"))
	}
	internal := b.helpers(of, spec.ComponentExtensionSpec)
	main := &pod.Containers[0]
	args := arguments(main.Args)
	args.add(ArgModelName, b.isvc.Name)
	if mesh {
		host, protocol, problem := b.meshPredictor()
		if problem != nil {
			return nil, &Failure{Of: of, Problem: problem}
		}
		args.add(argPredictorHost, host)
		args.add(argProtocol, protocol)
		internal[v1beta1.AnnotationPredictorHost], internal[v1beta1.AnnotationPredictorProtocol] = host, protocol
	} else {
		args.add(argPredictorHost, b.predictorHost())
	}
	args.add(argHTTPPort, httpPort)
	args.addWorkers(spec.ComponentExtensionSpec)
	main.Args = args
	addServiceName(main, b.isvc.Name)
	src := storage.Source{URI: valueOf(main.Env, envStorageURI), URIs: spec.StorageUris}
	return b.around(of, pod, src, internal, spec.ComponentExtensionSpec)
}

// explainer makes the component that answers why.
func (b *builder) explainer() (*Component, *Failure) {
	const of = v1beta1.ExplainerComponent
	spec := b.isvc.Spec.Explainer
	pod := *spec.PodSpec.Core().DeepCopy()
	src := storage.Source{URIs: spec.StorageUris}
	if spec.ART != nil {
		container := b.art(spec)
		pod.Containers = append([]corev1.Container{container}, pod.Containers...)
		src.URI = spec.ART.StorageURI
		if spec.ART.Storage != nil {
			src.Spec = &spec.ART.Storage.StorageSpec
		}
		return b.around(of, pod, src, b.helpers(of, spec.ComponentExtensionSpec), spec.ComponentExtensionSpec)
	}
	if len(pod.Containers) == 0 {
		return nil, b.failed(of, fmt.Errorf("spec.explainer has neither art nor a container; fill in one of them"))
	}
	main := &pod.Containers[0]
	args := arguments(main.Args)
	args.add(ArgModelName, b.isvc.Name)
	args.add(argPredictorHost, b.predictorHost())
	args.add(argHTTPPort, httpPort)
	args.addWorkers(spec.ComponentExtensionSpec)
	main.Args = args
	src.URI = valueOf(main.Env, envStorageURI)
	return b.around(of, pod, src, b.helpers(of, spec.ComponentExtensionSpec), spec.ComponentExtensionSpec)
}

// art is the container of an ART explainer.
func (b *builder) art(spec *v1beta1.ExplainerSpec) corev1.Container {
	art := spec.ART
	container := *art.Container.Core().DeepCopy()
	container.Name = mainContainer
	if container.Image == "" {
		settings := b.seen.Config.Explainers.Art
		version := settings.DefaultImageVersion
		if art.RuntimeVersion != nil {
			version = *art.RuntimeVersion
		}
		container.Image = settings.Image + ":" + version
	}
	args := arguments{ArgModelName, b.isvc.Name, argHTTPPort, httpPort, argPredictorHost, b.predictorHost()}
	args.addWorkers(spec.ComponentExtensionSpec)
	if art.StorageURI != "" {
		args.add(argStorageURI, modelsDir)
	}
	args.add(argAdversaryType, art.Type)
	for _, key := range slices.Sorted(maps.Keys(art.Config)) {
		args = append(args, "--"+key, art.Config[key])
	}
	container.Args = slices.Concat(args, art.Args)
	return container
}

// around is what transformer and explainer have in common.
func (b *builder) around(of v1beta1.ComponentType, pod corev1.PodSpec, src storage.Source, internal map[string]string,
	ext v1beta1.ComponentExtensionSpec) (*Component, *Failure) {
	fetched, err := b.fetch(of, src, &pod)
	if err != nil {
		return nil, b.failed(of, err)
	}
	maps.Copy(internal, fetched)
	return &Component{Part: workload.Part{
		IsvcName:    b.isvc.Name,
		Component:   of,
		Name:        b.isvc.Name + "-" + string(of),
		Namespace:   b.isvc.Namespace,
		Labels:      b.labels(of, b.ownLabels(), ext.Labels),
		Annotations: b.annotations(nil, internal, ext.Annotations),
		Pod:         pod,
		Scale:       ext,
		Generation:  b.isvc.Generation,
	}}, nil
}

func (b *builder) predictorHost() string {
	return PredictorName(b.isvc, b.isvc.Spec.Predictor.Name) + "." + b.isvc.Namespace
}

// meshPredictor is where the model mesh serves the predictor, which its own
// domain writes into the status.
func (b *builder) meshPredictor() (host, protocol string, problem *engine.Problem) {
	status := b.isvc.Status.Components[v1beta1.PredictorComponent]
	if status.URL == nil || *status.URL == "" {
		return "", "", engine.WaitFor("PredictorNotReady",
			"The transformer waits for the model mesh to say where the predictor is served. See the conditions of the predictor.")
	}
	u, err := url.Parse(*status.URL)
	if err != nil || u.Host == "" {
		return "", "", engine.WaitFor("PredictorNotReady", "The address of the predictor in status.components.predictor.url is not a URL.")
	}
	if u.Scheme == "grpc" {
		return u.Host, string(v1beta1.ProtocolGRPCV2), nil
	}
	return u.Host, string(v1beta1.ProtocolV2), nil
}

func addServiceName(c *corev1.Container, name string) {
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == envServiceName }) {
		c.Env = append(c.Env, corev1.EnvVar{Name: envServiceName, Value: name})
	}
}

func valueOf(env []corev1.EnvVar, name string) string {
	if i := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == name }); i >= 0 {
		return env[i].Value
	}
	return ""
}
