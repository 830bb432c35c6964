// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
)

// envProtocol is where containers of the user tell what they speak.
const envProtocol = "PROTOCOL"

// Custom makes the predictor of a user who needs no runtime: containers of the
// user's own, or a framework block that admission has not turned into a model.
func Custom(isvc *v1beta1.InferenceService, predictor *v1beta1.PredictorSpec) (*Merged, *Failure) {
	if predictor.WorkerSpec != nil {
		return nil, invalid("spec.predictor.workerSpec needs spec.predictor.model and a runtime for several nodes: " +
			"describe the model there, or remove workerSpec.")
	}
	out := &Merged{Pod: *predictor.PodSpec.Core().DeepCopy()}
	if f := serveOwn(out, predictor); f != nil {
		return nil, f
	}
	for i := range out.Pod.Containers {
		setEnv(&out.Pod.Containers[i], envServiceName, isvc.Name)
	}
	return out, nil
}

// serveOwn puts the container that serves into the first place of the pod.
func serveOwn(out *Merged, predictor *v1beta1.PredictorSpec) *Failure {
	block, protocol := framework(predictor)
	if block == nil {
		if f := mainFirst(out.Pod.Containers); f != nil {
			return f
		}
		out.Protocol = protocolEnv(&out.Pod.Containers[0])
		return nil
	}
	if find(out.Pod.Containers, mainContainer) != nil {
		return invalid("spec.predictor has both a framework block and a container called %s: keep one of them.", mainContainer)
	}
	main := *block.Container.Core().DeepCopy()
	main.Name = mainContainer
	out.Pod.Containers = slices.Insert(out.Pod.Containers, 0, main)
	out.Protocol = protocol
	return nil
}

// framework is the block that the user filled in, with the protocol it speaks.
func framework(p *v1beta1.PredictorSpec) (*v1beta1.PredictorExtensionSpec, v1beta1.InferenceServiceProtocol) {
	for _, b := range []struct {
		block    *v1beta1.PredictorExtensionSpec
		protocol v1beta1.InferenceServiceProtocol
	}{
		{p.SKLearn, v1beta1.ProtocolV1},
		{p.XGBoost, v1beta1.ProtocolV1},
		{p.Tensorflow, v1beta1.ProtocolV1},
		{p.PyTorch, v1beta1.ProtocolV1},
		{p.Triton, v1beta1.ProtocolV2},
		{p.ONNX, v1beta1.ProtocolV1},
		{p.HuggingFace, v1beta1.ProtocolV2},
		{p.PMML, v1beta1.ProtocolV1},
		{p.LightGBM, v1beta1.ProtocolV1},
		{p.Paddle, v1beta1.ProtocolV1},
	} {
		if b.block == nil {
			continue
		}
		if b.block.ProtocolVersion != nil {
			return b.block, *b.block.ProtocolVersion
		}
		return b.block, b.protocol
	}
	return nil, ""
}

// mainFirst puts the container that serves first and gives it its name where
// there is no doubt which one is meant.
func mainFirst(containers []corev1.Container) *Failure {
	if len(containers) == 0 {
		return invalid("spec.predictor has neither a model nor containers: set spec.predictor.model, or one container called %s.", mainContainer)
	}
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == mainContainer })
	switch {
	case i > 0:
		main := containers[i]
		copy(containers[1:i+1], containers[:i])
		containers[0] = main
	case i < 0 && (len(containers) == 1 || containers[0].Name == ""):
		containers[0].Name = mainContainer
	case i < 0:
		return invalid("None of the %d containers in spec.predictor.containers is called %s: give that name to the one that serves.",
			len(containers), mainContainer)
	}
	return nil
}

// protocolEnv is what a container says that it speaks.
func protocolEnv(c *corev1.Container) v1beta1.InferenceServiceProtocol {
	for _, e := range c.Env {
		if e.Name == envProtocol && e.Value != "" {
			return v1beta1.InferenceServiceProtocol(e.Value)
		}
	}
	return v1beta1.ProtocolV1
}
