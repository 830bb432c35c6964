// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// metricsPath is below what the API server hands on. It has decided by then whether the one who asks may know.
const metricsPath = "/apis/metrics.k8s.io/v1beta1"

// handler answers in the place of metrics-server.
func (m *metrics) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+metricsPath, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, metricsResources()) })
	mux.HandleFunc("GET "+metricsPath+"/nodes", m.nodes)
	mux.HandleFunc("GET "+metricsPath+"/nodes/{name}", m.nodes)
	mux.HandleFunc("GET "+metricsPath+"/pods", m.pods)
	mux.HandleFunc("GET "+metricsPath+"/namespaces/{namespace}/pods", m.pods)
	mux.HandleFunc("GET "+metricsPath+"/namespaces/{namespace}/pods/{name}", m.pods)
	return mux
}

func metricsResources() metav1.APIResourceList {
	verbs := metav1.Verbs{"get", "list"}
	return metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: metricsv1beta1.SchemeGroupVersion.String(),
		APIResources: []metav1.APIResource{
			{Name: "nodes", Kind: "NodeMetrics", Verbs: verbs},
			{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: verbs},
		},
	}
}

func typed(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: metricsv1beta1.SchemeGroupVersion.String()}
}

func (m *metrics) nodes(w http.ResponseWriter, r *http.Request) {
	all, err := m.client.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{LabelSelector: r.FormValue("labelSelector"), ResourceVersion: "0"})
	if err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}
	list := metricsv1beta1.NodeMetricsList{TypeMeta: typed("NodeMetricsList"), Items: []metricsv1beta1.NodeMetrics{}}
	used, known := m.nodeUsage()
	for _, node := range all.Items {
		if name := r.PathValue("name"); known && (name == "" || name == node.Name) {
			list.Items = append(list.Items, metricsv1beta1.NodeMetrics{
				TypeMeta: typed("NodeMetrics"), ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels},
				Timestamp: metav1.NewTime(used.last.at), Window: metav1.Duration{Duration: used.window()}, Usage: used.usage(),
			})
		}
	}
	answer(w, r, list, list.Items)
}

func (m *metrics) pods(w http.ResponseWriter, r *http.Request) {
	all, err := m.podsOf(r.Context(), r.PathValue("namespace"), r.FormValue("labelSelector"))
	if err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}
	list := metricsv1beta1.PodMetricsList{TypeMeta: typed("PodMetricsList"), Items: []metricsv1beta1.PodMetrics{}}
	for _, pod := range all {
		if name := r.PathValue("name"); name != "" && name != pod.Name {
			continue
		}
		if used := m.podUsage(pod.Namespace, pod.Name); len(used) > 0 {
			list.Items = append(list.Items, podMetrics(pod, used))
		}
	}
	answer(w, r, list, list.Items)
}

func podMetrics(pod corev1.Pod, used map[string]span) metricsv1beta1.PodMetrics {
	out := metricsv1beta1.PodMetrics{
		TypeMeta: typed("PodMetrics"), ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels},
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		out.Containers = append(out.Containers, metricsv1beta1.ContainerMetrics{Name: name, Usage: used[name].usage()})
	}
	oldest := slices.MinFunc(slices.Collect(maps.Values(used)), func(a, b span) int { return cmp.Compare(a.last.at.UnixMilli(), b.last.at.UnixMilli()) })
	out.Timestamp, out.Window = metav1.NewTime(oldest.last.at), metav1.Duration{Duration: oldest.window()}
	return out
}

// answer writes the list, or the one that was asked for by name.
func answer[T any](w http.ResponseWriter, r *http.Request, list any, items []T) {
	switch {
	case r.PathValue("name") == "":
		reply(w, http.StatusOK, list)
	case len(items) == 0:
		refuse(w, http.StatusNotFound, errors.New("nothing is known of "+r.PathValue("name")+" yet"))
	default:
		reply(w, http.StatusOK, items[0])
	}
}

func refuse(w http.ResponseWriter, code int32, err error) {
	reason := metav1.StatusReasonInternalError
	if code == http.StatusNotFound {
		reason = metav1.StatusReasonNotFound
	}
	reply(w, int(code), metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: err.Error(),
	})
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// serveMetrics listens for nobody but the API server, which proves who it is with the certificate for speaking for others.
func serveMetrics(o Options, handler http.Handler) (stop func(), err error) {
	pair, err := tls.LoadX509KeyPair(o.Certificate, o.Key)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(o.FrontProxyCA)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	listener, err := net.Listen("tcp", o.Metrics)
	if err != nil {
		return nil, err
	}
	return serve(tls.NewListener(listener, &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}), handler), nil
}
