// SPDX-License-Identifier: Apache-2.0

package validation

import "strings"

func runtimeOf(name, spec string) string {
	return `{apiVersion: serving.kserve.io/v1alpha1, kind: ClusterServingRuntime, metadata: {name: ` + name + `}, spec: {` + spec + `}}`
}

func local(object string) string {
	return strings.Replace(strings.Replace(object, "kind: ClusterServingRuntime", "kind: ServingRuntime", 1), "metadata: {", "metadata: {namespace: a, ", 1)
}

const (
	oneContainer = "containers: [{name: kserve-container, image: a}]"
	format       = oneContainer + ", protocolVersions: [v2], supportedModelFormats: [{name: sklearn, version: '1', autoSelect: true, priority: 1}]"
)

var runtimeExamples = []example{
	accepted("plain", runtimeOf("a", format)),
	rejected("two priorities for one format", runtimeOf("a", oneContainer+", supportedModelFormats: [{name: sklearn, autoSelect: true, priority: 1}, {name: sklearn, version: '1', autoSelect: true, priority: 2}]")),
	rejected("two priorities though disabled", runtimeOf("a", "disabled: true, "+oneContainer+", supportedModelFormats: [{name: sklearn, autoSelect: true, priority: 1}, {name: sklearn, autoSelect: true, priority: 2}]")),
	accepted("two priorities that nobody looks at", runtimeOf("a", oneContainer+", supportedModelFormats: [{name: sklearn, autoSelect: true, priority: 1}, {name: sklearn, priority: 2}]")),
	rejected("same priority as another", runtimeOf("a", format)).with(runtimeOf("b", strings.Replace(format, "sklearn", "SKLearn", 1))),
	rejected("same priority as another of the namespace", local(runtimeOf("a", format))).with(local(runtimeOf("b", format))),
	accepted("same priority in another namespace", local(runtimeOf("a", format))).with(strings.Replace(local(runtimeOf("b", format)), "namespace: a", "namespace: b", 1)),
	accepted("same priority in the cluster", local(runtimeOf("a", format))).with(runtimeOf("b", format)),
	accepted("same priority, disabled", runtimeOf("a", "disabled: true, "+format)).with(runtimeOf("b", format)),
	accepted("same priority, other disabled", runtimeOf("a", format)).with(runtimeOf("b", "disabled: true, "+format)),
	accepted("same priority, other for many models", runtimeOf("a", format)).with(runtimeOf("b", "multiModel: true, "+format)),
	accepted("same priority, other protocol", runtimeOf("a", format)).with(runtimeOf("b", strings.Replace(format, "v2", "v1", 1))),
	accepted("same priority, other version", runtimeOf("a", format)).with(runtimeOf("b", strings.Replace(format, "'1'", "'2'", 1))),
	accepted("same priority, never chosen", runtimeOf("a", format)).with(runtimeOf("b", strings.Replace(format, "autoSelect: true, ", "", 1))),
	accepted("other priority", runtimeOf("a", format)).with(runtimeOf("b", strings.Replace(format, "priority: 1", "priority: 2", 1))),
	accepted("itself", runtimeOf("a", format)).with(runtimeOf("a", format)).over(runtimeOf("a", format)),
	accepted("same priority as before", runtimeOf("a", "schedulerName: x, "+format)).over(runtimeOf("a", format)).with(runtimeOf("b", format)),

	rejected("PYTHONPATH", runtimeOf("a", "containers: [{name: kserve-container, env: [{name: PYTHONPATH}]}], workerSpec: {containers: [{name: worker-container, env: [{name: PYTHONPATH}]}]}")),
	rejected("PYTHONPATH though disabled", runtimeOf("a", "disabled: true, containers: [{name: kserve-container, env: [{name: PYTHONPATH}]}]")),
	accepted("several nodes", runtimeOf("a", oneContainer+", workerSpec: {pipelineParallelSize: 2, containers: [{name: worker-container}]}")),
	rejected("workers taken away", runtimeOf("a", oneContainer)).over(runtimeOf("a", oneContainer+", workerSpec: {containers: [{name: worker-container}]}")),
	rejected("no worker container", runtimeOf("a", oneContainer+", workerSpec: {containers: []}")),
	rejected("two worker containers", runtimeOf("a", oneContainer+", workerSpec: {containers: [{name: worker-container}, {name: b}]}")),
	rejected("sizes in variables", runtimeOf("a", "containers: [{name: kserve-container, env: [{name: PIPELINE_PARALLEL_SIZE}, {name: TENSOR_PARALLEL_SIZE}]}], workerSpec: {containers: [{name: worker-container}]}")),
	rejected("sizes below 1", runtimeOf("a", oneContainer+", workerSpec: {pipelineParallelSize: 0, tensorParallelSize: 0, containers: [{name: worker-container}]}")),
	rejected("unknown accelerators", runtimeOf("a", "containers: [{name: kserve-container, resources: {limits: {example.com/gpu: 1}}}], workerSpec: {containers: [{name: worker-container, resources: {limits: {example.com/gpu: 1}}}]}")),
	accepted("accelerator of the annotation", runtimeOf("a", "annotations: {serving.kserve.io/gpu-resource-types: '[\"example.com/gpu\"]'}, containers: [{name: kserve-container, resources: {limits: {example.com/gpu: 1}}}], workerSpec: {containers: [{name: worker-container}]}")),
	rejected("annotation that is no list", runtimeOf("a", "annotations: {serving.kserve.io/gpu-resource-types: 'example.com/gpu'}, "+oneContainer+", workerSpec: {containers: [{name: worker-container}]}")),
}

func graph(nodes string) string { return graphNamed("g", nodes) }

func graphNamed(name, nodes string) string {
	return `{apiVersion: serving.kserve.io/v1alpha1, kind: InferenceGraph, metadata: {name: ` + name + `}, spec: {nodes: {` + nodes + `}}}`
}

func trained(name, uri, memory string) string {
	return `{apiVersion: serving.kserve.io/v1alpha1, kind: TrainedModel, metadata: {name: ` + name + `}, spec: {inferenceService: i, model: {storageUri: '` +
		uri + `', framework: sklearn, memory: ` + memory + `}}}`
}

func container(spec string) string {
	return `{apiVersion: serving.kserve.io/v1alpha1, kind: ClusterStorageContainer, metadata: {name: c}, spec: {container: {name: a, image: b}, ` + spec + `}}`
}

var otherExamples = []example{
	accepted("graph", graph("root: {routerType: Sequence, steps: [{name: a, serviceName: a}, {name: b, nodeName: next}]}, next: {routerType: Splitter, steps: [{serviceUrl: 'http://a', weight: 30}, {serviceName: b, weight: 70}]}")),
	rejected("graph with times below 0", strings.Replace(graph("root: {routerType: Sequence, steps: [{serviceName: a}]}"), "spec: {", "spec: {timeout: -5, routerTimeouts: {serverRead: -1, serverWrite: -1, serverIdle: -1, serviceClient: -1}, ", 1)),
	accepted("graph without time limits", strings.Replace(graph("root: {routerType: Sequence, steps: [{serviceName: a}]}"), "spec: {", "spec: {timeout: 0, minReplicas: 0, routerTimeouts: {serviceClient: 0}, ", 1)),
	rejected("graph with fewer pods than none", strings.Replace(graph("root: {routerType: Sequence, steps: [{serviceName: a}]}"), "spec: {", "spec: {minReplicas: -1, maxReplicas: -1, ", 1)),
	rejected("graph with more pods at least than at most", strings.Replace(graph("root: {routerType: Sequence, steps: [{serviceName: a}]}"), "spec: {", "spec: {minReplicas: 3, maxReplicas: 2, ", 1)),
	rejected("graph with a dot in its name", graphNamed("a.b", "root: {routerType: Sequence, steps: [{serviceName: a}]}")),
	rejected("graph without root", graph("start: {routerType: Sequence, steps: [{serviceName: a}]}")),
	rejected("graph with a step name twice", graph("root: {routerType: Ensemble, steps: [{name: a, serviceName: a}, {name: a, serviceName: b}]}")),
	rejected("graph with a step to nowhere", graph("root: {routerType: Sequence, steps: [{name: a}]}")),
	rejected("graph with a step to two places", graph("root: {routerType: Sequence, steps: [{serviceName: a, serviceUrl: 'http://b'}]}")),
	rejected("graph with a step to a missing node", graph("root: {routerType: Sequence, steps: [{nodeName: next}]}")),
	rejected("splitter without weights", graph("root: {routerType: Splitter, steps: [{serviceName: a}, {serviceName: b, weight: 100}]}")),
	rejected("splitter with too little weight", graph("root: {routerType: Splitter, steps: [{serviceName: a, weight: 30}, {serviceName: b, weight: 30}]}")),
	rejected("splitter with odd weights", graph("root: {routerType: Splitter, steps: [{serviceName: a, weight: -50}, {serviceName: b, weight: 150}]}")),
	rejected("splitter without steps", graph("root: {routerType: Splitter}")),
	accepted("graph that was wrong before", graph("root: {routerType: Sequence, steps: [{nodeName: next}, {serviceName: b}]}")).over(graph("root: {routerType: Sequence, steps: [{nodeName: next}]}")),

	accepted("trained model", trained("a", "s3://a", "1Gi")),
	accepted("trained model, other address", trained("a", "gs://a", "1Gi")).over(trained("a", "s3://a", "1024Mi")),
	rejected("trained model with a dot in its name", trained("a.b", "s3://a", "1Gi")),
	rejected("trained model on a claim", trained("a", "pvc://a", "1Gi")),
	rejected("trained model with other memory", trained("a", "s3://a", "2Gi")).over(trained("a", "s3://a", "1Gi")),

	accepted("storage container", container("supportedUriFormats: [{prefix: 's3://'}, {regex: 'https://(.+?)/(.+)'}], workloadType: localModelDownloadJob")),
	accepted("storage container with prefix and regex", container("supportedUriFormats: [{prefix: 's3://', regex: a}]")),
	rejected("storage container with a broken expression", container("supportedUriFormats: [{prefix: a}, {regex: '('}]")),
	rejected("storage container with an empty entry", container("supportedUriFormats: [{}]")),
	rejected("storage container for something else", container("supportedUriFormats: [], workloadType: sidecar")),
}
