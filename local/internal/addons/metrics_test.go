// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// said is what a kubelet tells of two pods, one of which has started again since, and of itself.
var said = []string{`# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="server",namespace="team",pod="model"} 10 1700000000000
container_cpu_usage_seconds_total{container="agent",namespace="team",pod="model"} 1 1700000000000
container_cpu_usage_seconds_total{container="server",namespace="team",pod="restarted"} 500 1700000000000
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="server",namespace="team",pod="model"} 1e+06 1700000000000
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 100 1700000000000
`, `# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="server",namespace="team",pod="model"} 12.5 1700000010000
container_cpu_usage_seconds_total{container="agent",namespace="team",pod="model"} 1 1700000010000
container_cpu_usage_seconds_total{container="server",namespace="team",pod="restarted"} 2 1700000010000
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="server",namespace="team",pod="model"} 2.097152e+06 1700000010000
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 115 1700000010000
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 1.048576e+06 1700000010000
`}

// apiServer knows the pods and the node, and remembers by which labels it was asked.
func apiServer(t *testing.T) (client kubernetes.Interface, asked *string) {
	t.Helper()
	asked = new(string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = r.FormValue("labelSelector")
		switch {
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			reply(w, http.StatusOK, corev1.NodeList{Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "local"}}}})
		case strings.Contains(r.URL.Path, "/namespaces/empty/"):
			reply(w, http.StatusOK, corev1.PodList{})
		default:
			reply(w, http.StatusOK, corev1.PodList{Items: []corev1.Pod{
				{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "restarted"}},
				{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "model", Labels: map[string]string{"app": "x"}}},
			}})
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return client, asked
}

// TestMetrics reads two samples and asks as autoscalers and kubectl do.
func TestMetrics(t *testing.T) {
	client, asked := apiServer(t)
	next := 0
	m := &metrics{client: client, ask: func(context.Context) (io.ReadCloser, error) {
		next++
		return io.NopCloser(strings.NewReader(said[next-1])), nil
	}}
	api := httptest.NewServer(m.handler())
	defer api.Close()
	get := func(path string, into any) int {
		t.Helper()
		response, err := http.Get(api.URL + metricsPath + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if err := json.NewDecoder(response.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode
	}
	look := func() {
		t.Helper()
		if err := m.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	look()
	var pods metricsv1beta1.PodMetricsList
	if get("/namespaces/team/pods", &pods); len(pods.Items) != 0 {
		t.Errorf("one sample tells the use of %d pods", len(pods.Items))
	}
	look()
	get("/namespaces/team/pods?labelSelector=app%3Dx", &pods)
	if len(pods.Items) != 1 || pods.Items[0].Name != "model" || pods.Items[0].Labels["app"] != "x" || *asked != "app=x" {
		t.Fatalf("asked by %q, it knows %+v", *asked, pods.Items)
	}
	used := map[string]string{"window": pods.Items[0].Window.Duration.String()}
	for _, c := range pods.Items[0].Containers {
		used[c.Name] = c.Usage.Cpu().String() + " " + c.Usage.Memory().String()
	}
	if diff := cmp.Diff(map[string]string{"window": "10s", "server": "250m 2Mi", "agent": "0 0"}, used); diff != "" {
		t.Error(diff)
	}
	var node metricsv1beta1.NodeMetrics
	if code := get("/nodes/local", &node); code != http.StatusOK || node.Usage.Cpu().String() != "1500m" || node.Usage.Memory().String() != "1Mi" {
		t.Errorf("%d: the node uses %v", code, node.Usage)
	}
	var status metav1.Status
	if code := get("/namespaces/empty/pods/none", &status); code != http.StatusNotFound || status.Reason != metav1.StatusReasonNotFound {
		t.Errorf("a pod that is not there: %d %+v", code, status)
	}
	var kinds metav1.APIResourceList
	if get("", &kinds); len(kinds.APIResources) != 2 || kinds.GroupVersion != "metrics.k8s.io/v1beta1" {
		t.Errorf("it has %+v", kinds)
	}
}
