// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// series names a container, or the node when it is empty.
type series struct{ namespace, pod, container string }

// sample is what the kubelet said at one moment.
type sample struct {
	seconds float64 // of a processor, since the container started
	memory  float64 // bytes
	at      time.Time
}

// span is what two samples tell together.
type span struct{ before, last sample }

// known tells whether there are two samples to compare.
func (s span) known() bool { return !s.before.at.IsZero() && s.last.at.After(s.before.at) }

func (s span) window() time.Duration { return s.last.at.Sub(s.before.at) }

func (s span) usage() corev1.ResourceList {
	cores := (s.last.seconds - s.before.seconds) / s.window().Seconds()
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(cores*1e9), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(s.last.memory), resource.BinarySI),
	}
}

// metrics answers what pods and the node use, which autoscalers and `kubectl top` ask for. It keeps two samples of each.
type metrics struct {
	client kubernetes.Interface
	// ask returns what the kubelet says of all containers, in Prometheus' format.
	ask func(ctx context.Context) (io.ReadCloser, error)

	mu    sync.Mutex
	spans map[series]span
}

// often is as often as the kubelet itself looks.
const often = 10 * time.Second

// watch asks the kubelet until ctx ends.
func (m *metrics) watch(ctx context.Context) {
	tick := time.NewTicker(often)
	defer tick.Stop()
	failed := ""
	for {
		err := m.look(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != failed {
			slog.Error("The kubelet could not be asked", "error", err)
		}
		if failed = ""; err != nil {
			failed = err.Error() // said once
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m *metrics) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, often)
	defer cancel()
	said, err := m.ask(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = said.Close() }()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(said)
	if err != nil {
		return fmt.Errorf("what the kubelet says cannot be read: %w", err)
	}
	now := map[series]sample{}
	for _, of := range []string{"container", "node"} {
		each(families[of+"_cpu_usage_seconds_total"], func(s series, value float64, at time.Time) {
			now[s] = sample{seconds: value, at: at}
		})
		each(families[of+"_memory_working_set_bytes"], func(s series, value float64, _ time.Time) {
			if one, found := now[s]; found {
				one.memory = value
				now[s] = one
			}
		})
	}
	m.remember(now)
	return nil
}

// each hands out the values of one kind.
func each(family *dto.MetricFamily, take func(series, float64, time.Time)) {
	for _, metric := range family.GetMetric() {
		var s series
		for _, label := range metric.GetLabel() {
			switch label.GetName() {
			case "namespace":
				s.namespace = label.GetValue()
			case "pod":
				s.pod = label.GetValue()
			case "container":
				s.container = label.GetValue()
			}
		}
		value := metric.GetCounter().GetValue()
		if metric.GetGauge() != nil {
			value = metric.GetGauge().GetValue()
		}
		take(s, value, time.UnixMilli(metric.GetTimestampMs()))
	}
}

// remember keeps the last two samples. A container that started again has used less than before, and begins anew.
func (m *metrics) remember(now map[series]sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make(map[series]span, len(now))
	for s, last := range now {
		known := m.spans[s]
		switch {
		case known.last.at.IsZero() || last.seconds < known.last.seconds:
			known = span{last: last}
		case last.at.After(known.last.at):
			known = span{before: known.last, last: last}
		}
		next[s] = known
	}
	m.spans = next
}

// nodeUsage is that of the one node.
func (m *metrics) nodeUsage() (span, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.spans[series{}]
	return s, s.known()
}

// podUsage has the containers of a pod by name, or none while one of them is new: half a pod would look idle.
func (m *metrics) podUsage(namespace, pod string) map[string]span {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]span{}
	for s, one := range m.spans {
		if s.namespace != namespace || s.pod != pod {
			continue
		}
		if !one.known() {
			return nil
		}
		found[s.container] = one
	}
	return found
}

// podsOf asks for names and labels, which the kubelet does not tell. What the API server remembers is good enough.
func (m *metrics) podsOf(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	pods, err := m.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return pods.Items, nil
}

// askKubelet is how the real one is asked.
func askKubelet(client *http.Client, url string) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics/resource", nil)
		if err != nil {
			return nil, err
		}
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusOK {
			_ = response.Body.Close()
			return nil, fmt.Errorf("the kubelet answers %s", response.Status)
		}
		return response.Body, nil
	}
}
