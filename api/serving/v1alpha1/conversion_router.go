// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelplane/modelplane/api/serving/v1alpha2"
)

func routerToHub(in *RouterSpec) *v1alpha2.RouterSpec {
	if in == nil {
		return nil
	}
	out := &v1alpha2.RouterSpec{Route: in.Route, Gateway: in.Gateway, Ingress: in.Ingress}
	if s := in.Scheduler; s != nil {
		out.Scheduler = &v1alpha2.SchedulerSpec{
			Template: s.Template, Config: s.Config, Replicas: s.Replicas,
			Labels: s.Labels, Annotations: s.Annotations, Tokenizer: s.Tokenizer,
		}
		if s.Pool != nil {
			out.Scheduler.Pool = &v1alpha2.InferencePoolSpec{Ref: s.Pool.Ref, Spec: poolToHub(s.Pool.Spec)}
		}
	}
	return out
}

func routerFromHub(in *v1alpha2.RouterSpec) *RouterSpec {
	if in == nil {
		return nil
	}
	out := &RouterSpec{Route: in.Route, Gateway: in.Gateway, Ingress: in.Ingress}
	if s := in.Scheduler; s != nil {
		out.Scheduler = &SchedulerSpec{
			Template: s.Template, Config: s.Config, Replicas: s.Replicas,
			Labels: s.Labels, Annotations: s.Annotations, Tokenizer: s.Tokenizer,
		}
		if s.Pool != nil {
			out.Scheduler.Pool = &InferencePoolSpec{Ref: s.Pool.Ref, Spec: poolFromHub(s.Pool.Spec)}
		}
	}
	return out
}

// poolToHub writes the pool in the form of the pool's own second version.
func poolToHub(in *PoolSpec) *inferencev1.InferencePoolSpec {
	if in == nil {
		return nil
	}
	out := &inferencev1.InferencePoolSpec{}
	for key, value := range in.Selector {
		if out.Selector.MatchLabels == nil {
			out.Selector.MatchLabels = map[inferencev1.LabelKey]inferencev1.LabelValue{}
		}
		out.Selector.MatchLabels[inferencev1.LabelKey(key)] = inferencev1.LabelValue(value)
	}
	if in.TargetPortNumber != 0 {
		out.TargetPorts = []inferencev1.Port{{Number: inferencev1.PortNumber(in.TargetPortNumber)}}
	}
	if ref := in.ExtensionRef; ref != nil {
		out.EndpointPickerRef = inferencev1.EndpointPickerRef{
			Group:       (*inferencev1.Group)(ref.Group),
			Name:        inferencev1.ObjectName(ref.Name),
			FailureMode: inferencev1.EndpointPickerFailureMode(ref.FailureMode),
		}
		if ref.Kind != nil {
			out.EndpointPickerRef.Kind = inferencev1.Kind(*ref.Kind)
		}
		if ref.PortNumber != nil {
			out.EndpointPickerRef.Port = &inferencev1.Port{Number: inferencev1.PortNumber(*ref.PortNumber)}
		}
	}
	return out
}

// poolFromHub reads the pool from the form of the pool's own second version. All
// ports but the first are kept aside.
func poolFromHub(in *inferencev1.InferencePoolSpec) *PoolSpec {
	if in == nil {
		return nil
	}
	out := &PoolSpec{Selector: map[string]LabelValue{}}
	for key, value := range in.Selector.MatchLabels {
		out.Selector[string(key)] = LabelValue(value)
	}
	if len(in.TargetPorts) > 0 {
		out.TargetPortNumber = int32(in.TargetPorts[0].Number)
	}
	if ref := in.EndpointPickerRef; ref != (inferencev1.EndpointPickerRef{}) {
		out.ExtensionRef = &ExtensionReference{
			Group:       (*gatewayv1.Group)(ref.Group),
			Name:        gatewayv1.ObjectName(ref.Name),
			FailureMode: string(ref.FailureMode),
		}
		if ref.Kind != "" {
			kind := gatewayv1.Kind(ref.Kind)
			out.ExtensionRef.Kind = &kind
		}
		if ref.Port != nil {
			port := int32(ref.Port.Number)
			out.ExtensionRef.PortNumber = &port
		}
	}
	return out
}
