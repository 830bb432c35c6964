// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelplane/modelplane/api/serving/v1beta1"
	"github.com/modelplane/modelplane/internal/serving/activation"
)

// What a pod is meant to have where nobody says it, as with Knative.
const (
	defaultConcurrency = 100
	defaultRPS         = 200
	// ofLimit is the share of containerConcurrency to aim for, in percent.
	ofLimit = 70
)

// AnnotationRetention is Knative's for how long the last pod stays without requests.
const AnnotationRetention = "autoscaling.knative.dev/scale-to-zero-pod-retention-period"

// ByTraffic tells whether a component asks to be scaled by its traffic: it may have no pod at all, or names a metric that
// only counts requests. Whoever names an autoscaler, or another metric, means that.
func ByTraffic(class string, s v1beta1.ComponentExtensionSpec) bool {
	if class != "" || s.AutoScaling != nil && len(s.AutoScaling.Metrics) > 0 {
		return false
	}
	switch ptr.Deref(s.ScaleMetric, "") {
	case v1beta1.MetricConcurrency, v1beta1.MetricRPS:
		return true
	case "":
		return s.MinReplicas != nil && *s.MinReplicas == 0
	}
	return false
}

// Activate is how the activator scales a component that asks for it; nil for one that does not. A group of nodes and a
// canary have the size that they have.
func Activate(p Part) *activation.Settings {
	if p.Replicas != nil || p.Worker != nil || !ByTraffic(p.Annotations[v1beta1.AnnotationAutoscalerClass], p.Scale) {
		return nil
	}
	s := &activation.Settings{
		Metric: activation.Concurrency,
		Limit:  max(ptr.Deref(p.Scale.ContainerConcurrency, 0), 0),
		Min:    max(ptr.Deref(p.Scale.MinReplicas, 1), 0),
	}
	s.Max = max(p.Scale.MaxReplicas, s.Min, 1)
	if ptr.Deref(p.Scale.ScaleMetric, v1beta1.MetricConcurrency) == v1beta1.MetricRPS {
		s.Metric = activation.RPS
	}
	s.Target = target(s, p.Scale.ScaleTarget)
	if d, err := Retention(p.Annotations); err == nil {
		s.IdleSeconds = int64(d.Seconds())
	}
	return s
}

func target(s *activation.Settings, said *int32) int32 {
	switch {
	case s.Metric == activation.RPS:
		return max(ptr.Deref(said, defaultRPS), 1)
	case said == nil && s.Limit > 0:
		return int32(min(max(s.Limit*ofLimit/100, 1), defaultConcurrency))
	case s.Limit > 0: // a pod never has more
		return int32(min(max(int64(*said), 1), s.Limit))
	}
	return max(ptr.Deref(said, defaultConcurrency), 1)
}

// longestRetention is more than anybody waits for requests.
const longestRetention = 7 * 24 * time.Hour

// Retention is how long the last pod of a component stays without requests; zero: as the activator is set up.
func Retention(annotations map[string]string) (time.Duration, error) {
	text := annotations[AnnotationRetention]
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > longestRetention {
		return 0, fmt.Errorf("%q is no time between 0s and %s; write for example 10m", text, longestRetention)
	}
	return d, nil
}

// PodsService leads to the pods of a component whose own Service leads to the activator. Nobody but the activator uses it.
func PodsService(p Part) *corev1.Service {
	meta := beside(p.meta())
	meta.Name = activation.PodsService(p.Name)
	meta.Labels[activation.Label] = activation.LabelValue
	meta.Annotations = map[string]string{activation.Annotation: p.Activation.Encode()}
	svc := service(meta, map[string]string{v1beta1.LabelApp: p.app()})
	svc.Spec.Ports = podPorts(p)
	svc.Spec.ClusterIP = corev1.ClusterIPNone
	return svc
}

// ActivatorSlices put the activator's replicas behind the Service of a component, at each of its ports: one EndpointSlice for
// each family of addresses. Among the given slices of the activator those replicas count that take requests or, where none
// does, those that are about to end and still answer.
func ActivatorSlices(p Part, svc *corev1.Service, activators []discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, family := range []struct {
		of     discoveryv1.AddressType
		suffix string
	}{{discoveryv1.AddressTypeIPv4, "-activator"}, {discoveryv1.AddressTypeIPv6, "-activator-ipv6"}} {
		port, addresses := replicas(activators, family.of)
		if len(addresses) == 0 && family.of != discoveryv1.AddressTypeIPv4 {
			continue
		}
		s := &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta: metav1.ObjectMeta{Name: p.Name + family.suffix, Namespace: p.Namespace, Labels: map[string]string{
				discoveryv1.LabelServiceName: p.Name, discoveryv1.LabelManagedBy: "modelplane.dev",
				v1beta1.LabelInferenceService: p.IsvcName, v1beta1.LabelComponent: string(p.Component),
			}},
			AddressType: family.of, Endpoints: []discoveryv1.Endpoint{},
		}
		for _, a := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
		}
		for _, sp := range svc.Spec.Ports {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(sp.Name), Port: ptr.To(port), Protocol: ptr.To(sp.Protocol), AppProtocol: sp.AppProtocol})
		}
		out = append(out, s)
	}
	return out
}

// activatorPort is where the activator takes requests unless its Service says otherwise.
const activatorPort = 8080

// replicas of the activator with addresses of a family, and the port that they take requests at.
func replicas(activators []discoveryv1.EndpointSlice, family discoveryv1.AddressType) (port int32, addresses []string) {
	var ready, ending []string
	port = activatorPort
	for i := range activators {
		s := &activators[i]
		if s.AddressType != family {
			continue
		}
		for _, p := range s.Ports {
			if ptr.Deref(p.Name, "") == activation.PortName && p.Port != nil {
				port = *p.Port
			}
		}
		for _, e := range s.Endpoints {
			switch {
			case len(e.Addresses) == 0:
			case ptr.Deref(e.Conditions.Ready, true):
				ready = append(ready, e.Addresses[0])
			case ptr.Deref(e.Conditions.Serving, false):
				ending = append(ending, e.Addresses[0])
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	slices.SortFunc(ready, strings.Compare)
	return port, slices.Compact(ready)
}
