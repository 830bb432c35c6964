// SPDX-License-Identifier: Apache-2.0

package runtimes_test

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelplane/modelplane/api/serving/v1alpha1"
	"github.com/modelplane/modelplane/internal/modelmesh/runtimes"
	"github.com/modelplane/modelplane/internal/modelmesh/settings"
)

// ruled is a change of a runtime that is good as it is, and what is said of it; nothing if empty.
type ruled struct{ name, annotations, spec, said string }

var rules = []ruled{
	{name: "as it is"},
	{"an autoscaler", "{serving.kserve.io/autoscalerClass: hpa, serving.kserve.io/min-scale: '1', serving.kserve.io/max-scale: '3', serving.kserve.io/targetUtilizationPercentage: '100'}", "", ""},
	{"no autoscaler", "{serving.kserve.io/autoscalerClass: none}", "", ""},
	{"an unknown autoscaler", "{serving.kserve.io/autoscalerClass: keda}", "", "autoscalerClass]: Unsupported value"},
	{"an unknown metric", "{serving.kserve.io/metrics: requests}", "", "metrics]: Unsupported value"},
	{"a utilization of 0", "{serving.kserve.io/targetUtilizationPercentage: '0'}", "", "from 1 to 100"},
	{"a utilization of 101", "{serving.kserve.io/targetUtilizationPercentage: '101'}", "", "from 1 to 100"},
	{"a utilization that is no number", "{serving.kserve.io/targetUtilizationPercentage: half}", "", "from 1 to 100"},
	{"much memory", "{serving.kserve.io/metrics: memory, serving.kserve.io/targetUtilizationPercentage: '150'}", "", ""},
	{"no memory", "{serving.kserve.io/metrics: memory, serving.kserve.io/targetUtilizationPercentage: '0'}", "", "at least 1"},
	{"replicas beside an autoscaler", "{serving.kserve.io/autoscalerClass: hpa}", "{replicas: 2}", "spec.replicas"},
	{"replicas", "", "{replicas: 2}", ""},
	{"too few", "{serving.kserve.io/min-scale: '0'}", "", "min-scale]: Invalid value: \"0\""},
	{"no number of most", "{serving.kserve.io/max-scale: '1.5'}", "", "max-scale]"},
	{"more least than most", "{serving.kserve.io/min-scale: '3', serving.kserve.io/max-scale: '2'}", "", "is more than"},
	{"an unknown server", "", "{builtInAdapter: {serverType: mine}, containers: [{name: mine}]}", "serverType: Unsupported value"},
	{"a server without its container", "", "{builtInAdapter: {serverType: triton}}", "there is no container of this name"},
	{"a server with its container", "", "{builtInAdapter: {serverType: triton}, containers: [{name: triton}]}", ""},
	{"a container like the adapter", "", "{builtInAdapter: {serverType: triton}, containers: [{name: triton}, {name: triton-adapter}]}", "name of the adapter"},
	{"a container mm", "", "{containers: [{name: mm}]}", "containers[0].name"},
	{"a container rest-proxy", "", "{containers: [{name: rest-proxy}]}", "containers[0].name"},
	{"a container puller", "", "{containers: [{name: server}, {name: puller}]}", "containers[1].name"},
	{"a container mm-x", "", "{containers: [{name: mm-x}]}", "containers[0].name"},
	{"a readiness probe", "", "{containers: [{name: server, readinessProbe: {httpGet: {port: 80}}}]}", "readinessProbe: Forbidden"},
	{"a liveness probe", "", "{containers: [{name: server, livenessProbe: {httpGet: {port: 80}}}]}", ""},
	{"a lifecycle", "", "{containers: [{name: server, lifecycle: {preStop: {sleep: {seconds: 1}}}}]}", "lifecycle: Forbidden"},
	{"a mount of storage-config", "", "{containers: [{name: server, volumeMounts: [{name: storage-config, mountPath: /x}]}]}", "volumeMounts[0].name"},
	{"a mount of etcd-config", "", "{containers: [{name: server, volumeMounts: [{name: etcd-config, mountPath: /x}]}]}", "volumeMounts[0].name"},
	{"a mount of tc-config", "", "{containers: [{name: server, volumeMounts: [{name: tc-config, mountPath: /x}]}]}", "volumeMounts[0].name"},
	{"a mount of domain-socket", "", "{containers: [{name: server, volumeMounts: [{name: domain-socket, mountPath: /x}]}]}", "volumeMounts[0].name"},
	{"a mount of mm-x", "", "{containers: [{name: server, volumeMounts: [{name: mm-x, mountPath: /x}]}]}", "volumeMounts[0].name"},
	{"a mount of models-dir", "", "{containers: [{name: server, volumeMounts: [{name: models-dir, mountPath: /x}]}]}", ""},
	{"a port grpc", "", "{containers: [{name: server, ports: [{name: grpc, containerPort: 9000}]}]}", "ports[0].name"},
	{"a port mm-x", "", "{containers: [{name: server, ports: [{name: mm-x, containerPort: 9000}]}]}", "ports[0].name"},
	{"port 8080", "", "{containers: [{name: server, ports: [{containerPort: 8080}]}]}", "containerPort"},
	{"port 8085", "", "{containers: [{name: server, ports: [{containerPort: 8085}]}]}", "containerPort"},
	{"port 8089", "", "{containers: [{name: server, ports: [{containerPort: 8089}]}]}", "containerPort"},
	{"port 8090", "", "{containers: [{name: server, ports: [{containerPort: 8090}]}]}", "containerPort"},
	{"port 11881", "", "{containers: [{name: server, ports: [{containerPort: 11881}]}]}", "containerPort"},
	{"port 11899", "", "{containers: [{name: server, ports: [{containerPort: 11899}]}]}", "containerPort"},
	{"port 11900", "", "{containers: [{name: server, ports: [{name: own, containerPort: 11900}]}]}", ""},
	{"a volume models-dir", "", "{volumes: [{name: models-dir}]}", "volumes[0].name"},
	{"a volume storage-config", "", "{volumes: [{name: storage-config}]}", "volumes[0].name"},
	{"a volume mm-x", "", "{volumes: [{name: mm-x}]}", "volumes[0].name"},
	{"a volume of its own", "", "{volumes: [{name: cache}]}", ""},
	{"an endpoint without a scheme", "", "{grpcEndpoint: '8085'}", "grpcEndpoint"},
	{"an endpoint without a number", "", "{grpcEndpoint: 'port:http'}", "grpcEndpoint"},
	{"a socket that is not absolute", "", "{grpcDataEndpoint: 'unix:x.sock'}", "grpcDataEndpoint"},
	{"sockets in two directories", "", "{grpcEndpoint: 'unix:/a/x.sock', grpcDataEndpoint: 'unix:///b/x.sock'}", "another directory"},
	{"sockets in one directory", "", "{grpcEndpoint: 'unix:/a/x.sock', grpcDataEndpoint: 'unix:///a/y.sock'}", ""},
}

func (r ruled) runtime(t *testing.T) *v1alpha1.ServingRuntime {
	t.Helper()
	rt := &v1alpha1.ServingRuntime{}
	rt.Namespace, rt.Name = "models", "x"
	if err := yaml.UnmarshalStrict([]byte("{multiModel: true, containers: [{name: server}], grpcEndpoint: 'port:8085'}"), &rt.Spec); err != nil {
		t.Fatal(err)
	}
	change := &v1alpha1.ServingRuntimeSpec{}
	if err := yaml.UnmarshalStrict([]byte(r.spec), change); err != nil {
		t.Fatal(err)
	}
	if len(change.Containers) > 0 {
		rt.Spec.Containers = nil
	}
	if err := yaml.UnmarshalStrict([]byte(r.spec), &rt.Spec); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(r.annotations), &rt.Annotations); err != nil {
		t.Fatal(err)
	}
	return rt
}

// TestRules: each rule refuses what it is about and nothing else, for both kinds; a runtime for one model is none of their
// business, and what was stored before is only warned of.
func TestRules(t *testing.T) {
	kinds := runtimes.NewRules(settings.NewSource()).Guard().Kinds
	if len(kinds) != 2 {
		t.Fatalf("%d kinds are checked", len(kinds))
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			own := r.runtime(t)
			shared := &v1alpha1.ClusterServingRuntime{ObjectMeta: own.ObjectMeta, Spec: own.Spec}
			for i, obj := range []client.Object{own, shared} {
				_, err := kinds[i].Validate(t.Context(), nil, obj)
				switch {
				case r.said == "" && err != nil:
					t.Errorf("%T is refused: %v", obj, err)
				case r.said != "" && (err == nil || !strings.Contains(err.Error(), r.said)):
					t.Errorf("%T: %v, want %q", obj, err, r.said)
				}
			}
			warnings, err := kinds[0].Validate(t.Context(), own, own.DeepCopy())
			if err != nil || (len(warnings) > 0) != (r.said != "") {
				t.Errorf("an update of what is stored: %v, warnings %q", err, warnings)
			}
			own.Spec.MultiModel = ptr.To(false)
			if _, err := kinds[0].Validate(t.Context(), nil, own); err != nil {
				t.Errorf("one for one model is refused: %v", err)
			}
		})
	}
}
