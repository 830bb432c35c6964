// SPDX-License-Identifier: Apache-2.0

package validation

const (
	hpa  = standard + " autoscalerClass=hpa"
	keda = standard + " autoscalerClass=keda"
)

// activatorOn is a platform with an activator.
const activatorOn = `{apiVersion: v1, kind: ConfigMap, metadata: {name: inferenceservice-config}, data: {autoscaler: '{"activator": "modelplane-activator"}'}}`

func metrics(list string) string { return predictor(`autoScaling: {metrics: [` + list + `]}`) }

var scalingExamples = []example{
	accepted("class hpa", isvc(hpa, plain)),
	accepted("class keda", isvc(keda, plain)),
	accepted("class external", isvc(standard+" autoscalerClass=external", plain)),
	accepted("class none", isvc(standard+" autoscalerClass=none", plain)),
	rejected("class of Knative", isvc(standard+" autoscalerClass=kpa.autoscaling.knative.dev", plain)),
	rejected("empty class", isvc(standard+" autoscalerClass=", plain)),
	rejected("class hpa with Knative", isvc(knative+" autoscalerClass=hpa", plain)),
	rejected("class keda with Knative", isvc(knative+" autoscalerClass=keda", plain)),
	accepted("class none with Knative", isvc(knative+" autoscalerClass=none", plain)),
	accepted("class in the mesh", isvc(mesh+" autoscalerClass=hpa", plain)),

	rejected("less than no pod", isvc(standard, predictor("minReplicas: -1, maxReplicas: -2"))),
	rejected("more at least than at most", isvc(standard, transformer("minReplicas: 3, maxReplicas: 2"))),
	accepted("no upper bound", isvc(standard, predictor("minReplicas: 3, maxReplicas: 0"))),
	accepted("scale to zero with keda", isvc(keda, predictor("minReplicas: 0"))),
	accepted("scale to zero with hpa", isvc(standard, predictor("minReplicas: 0"))),
	accepted("scale to zero with the activator", isvc(standard, predictor("minReplicas: 0, containerConcurrency: 4, scaleTarget: 200"))).with(activatorOn),
	accepted("requests with the activator", isvc(standard, predictor("scaleMetric: rps, scaleTarget: 200"))).with(activatorOn),
	rejected("requests with hpa beside the activator", isvc(hpa, predictor("scaleMetric: rps"))).with(activatorOn),
	rejected("no target for the activator", isvc(standard, predictor("minReplicas: 0, scaleTarget: 0"))).with(activatorOn),
	accepted("to zero by cpu", isvc(standard, predictor("minReplicas: 0, scaleMetric: cpu, scaleTarget: 50"))).with(activatorOn),
	rejected("concurrency below 0", isvc(knative, predictor("containerConcurrency: -1"))),
	rejected("batcher with numbers below 1", isvc(standard, predictor("batcher: {maxBatchSize: 0, maxLatency: -1, timeout: -5}"))),
	accepted("batcher with a timeout", isvc(standard, predictor("batcher: {maxLatency: 5000, timeout: 1}"))),
	rejected("timeout below 0 in Standard mode", isvc(standard, `{predictor: {timeout: -5}, transformer: {timeout: -1}}`)),
	rejected("timeout below 0", isvc(knative, predictor("timeout: -1"))),
	rejected("more than all traffic", isvc(knative, predictor("canaryTrafficPercent: 101"))),

	accepted("cpu", isvc(hpa, predictor("scaleMetric: cpu, scaleTarget: 100"))),
	rejected("cpu above 100 percent", isvc(hpa, predictor("scaleMetric: cpu, scaleTarget: 101"))),
	accepted("cpu above 100 percent without class", isvc(standard, predictor("scaleTarget: 150"))),
	accepted("cpu above 100 that is no percentage", isvc(hpa, predictor("scaleTarget: 150, scaleMetricType: AverageValue"))),
	rejected("cpu of nothing", isvc(standard, predictor("scaleTarget: 0"))),
	accepted("memory above 100", isvc(hpa, predictor("scaleMetric: memory, scaleTarget: 512"))),
	rejected("memory of nothing", isvc(hpa, predictor("scaleMetric: memory, scaleTarget: 0"))),
	rejected("concurrency with hpa", isvc(hpa, predictor("scaleMetric: concurrency"))),
	rejected("requests with hpa and no class", isvc(standard, predictor("scaleMetric: rps"))),
	accepted("requests that were stored", isvc(standard, predictor("scaleMetric: rps, minReplicas: 2"))).over(isvc(standard, predictor("scaleMetric: rps"))),
	accepted("metrics for hpa", isvc(hpa, metrics(`{type: Resource, resource: {name: cpu, target: {type: Utilization}}}, {type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 120}}}`))),
	rejected("external metric for hpa", isvc(hpa, metrics(`{type: External, external: {metric: {backend: prometheus, query: a}, target: {type: Value, value: 1}}}`))),
	rejected("metric for hpa without block", isvc(hpa, metrics(`{type: Resource}`))),
	rejected("metric for hpa without target", isvc(hpa, metrics(`{type: Resource, resource: {name: memory, target: {type: Utilization}}}, {type: Resource, resource: {name: cpu, target: {type: AverageValue}}}`))),
	rejected("metric for hpa with nothing as target", isvc(hpa, metrics(`{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 0}}}`))),
	accepted("short form beside metrics", isvc(hpa, predictor(`scaleTarget: 10, scaleMetric: cpu, autoScaling: {metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization}}}]}`))),
	accepted("settings nobody reads", isvc(standard+" autoscalerClass=none", predictor("scaleTarget: 1, scaleMetric: cpu, autoScaling: {}"))),

	rejected("short metric with keda", isvc(keda, predictor("scaleMetric: cpu"))),
	accepted("metrics for keda", isvc(keda, metrics(`{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}},
		{type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1Mi}}},
		{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 150}}},
		{type: External, external: {metric: {backend: prometheus, query: a}, target: {type: Value, value: 5}}},
		{type: PodMetric, podmetric: {metric: {backend: opentelemetry, query: a}, target: {type: Value, value: 5}}}`))),
	rejected("cpu value with keda", isvc(keda, metrics(`{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 1}}}`))),
	rejected("cpu share with keda", isvc(keda, metrics(`{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 101}}}`))),
	rejected("cpu without share", isvc(keda, metrics(`{type: Resource, resource: {name: cpu, target: {type: Utilization}}}`))),
	rejected("memory value of another type", isvc(keda, metrics(`{type: Resource, resource: {name: memory, target: {type: Value, value: 1}}}`))),
	rejected("memory without value", isvc(keda, metrics(`{type: Resource, resource: {name: memory, target: {type: AverageValue}}}`))),
	rejected("memory below 1 MiB", isvc(keda, metrics(`{type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1k}}}`))),
	rejected("memory share of nothing", isvc(keda, metrics(`{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 0}}}`))),
	rejected("other resource", isvc(keda, metrics(`{type: Resource, resource: {name: disk, target: {type: Utilization}}}`))),
	rejected("external metric without query, backend and value", isvc(keda, metrics(`{type: External, external: {metric: {}, target: {}}}`))),
	rejected("external metric with another value", isvc(keda, metrics(`{type: External, external: {metric: {backend: prometheus, query: a}, target: {type: AverageValue, value: 1}}}`))),
	rejected("pod metric without query and value", isvc(keda, metrics(`{type: PodMetric, podmetric: {metric: {backend: opentelemetry}, target: {}}}`))),
	rejected("metrics without blocks", isvc(keda, metrics(`{type: Resource}, {type: External}, {type: PodMetric}, {type: Guess}`))),

	accepted("concurrency with Knative", isvc(knative, predictor("scaleMetric: concurrency, scaleTarget: 5"))),
	accepted("requests with Knative", isvc(knative, predictor("scaleMetric: rps, scaleTarget: 1"))),
	rejected("no requests with Knative", isvc(knative, predictor("scaleMetric: rps, scaleTarget: 0"))),
	rejected("no concurrency with Knative", isvc(knative, predictor("scaleTarget: 0"))),
	rejected("cpu with Knative", isvc(knative, predictor("scaleMetric: cpu"))),
	rejected("cpu of a transformer in the mesh", isvc(mesh, transformer("scaleMetric: cpu"))),
	accepted("cpu with the hpa of Knative", isvc(knative+" autoscaling.knative.dev/class=hpa.autoscaling.knative.dev", predictor("scaleMetric: cpu, scaleTarget: 50"))),
	accepted("memory with the hpa of Knative on a component", isvc(knative, predictor("scaleMetric: memory, scaleTarget: 500, annotations: {autoscaling.knative.dev/class: hpa.autoscaling.knative.dev}"))),
	rejected("requests with the hpa of Knative", isvc(knative+" autoscaling.knative.dev/class=hpa.autoscaling.knative.dev", predictor("scaleMetric: rps"))),
}

func nodes(annotations, model, worker string) string {
	return isvc(standard+" "+annotations, `{predictor: {model: {modelFormat: {name: huggingface}, `+model+`}, workerSpec: {`+worker+`}}}`)
}

const onClaim = "storageUri: pvc://models/large"

var nodeExamples = []example{
	accepted("two nodes", nodes("autoscalerClass=none", onClaim, "pipelineParallelSize: 2, tensorParallelSize: 1, containers: [{name: worker-container, resources: {limits: {nvidia.com/gpu: 1}}}]")),
	accepted("image", nodes("autoscalerClass=none", "storageUri: oci://models/large", "")),
	rejected("two containers", nodes("autoscalerClass=none", onClaim, "containers: [{name: worker-container}, {name: other}]")),
	rejected("sizes in variables", nodes("autoscalerClass=none", onClaim+", env: [{name: PIPELINE_PARALLEL_SIZE, value: '2'}, {name: TENSOR_PARALLEL_SIZE, value: '2'}]", "")),
	rejected("unknown accelerators", nodes("autoscalerClass=none", onClaim+", resources: {limits: {example.com/gpu: 1}, requests: {example.com/gpu: 1}}", "containers: [{name: worker-container, resources: {requests: {example.com/npu: 1}}}]")),
	accepted("accelerator of the annotation", nodes(`autoscalerClass=none gpu-resource-types=["example.com/gpu"]`, onClaim+", resources: {limits: {example.com/gpu: 1, cpu: 1, memory: 1Gi, ephemeral-storage: 1Gi, hugepages-2Mi: 1Gi}}", "")),
	accepted("accelerator of the configuration", nodes("autoscalerClass=none", onClaim+", resources: {limits: {example.com/gpu: 1}}", "")).
		with(`{apiVersion: v1, kind: ConfigMap, metadata: {name: inferenceservice-config}, data: {multiNode: '{"customGPUResourceTypeList": ["example.com/gpu"]}'}}`),
	rejected("annotation that is no list", nodes(`autoscalerClass=none gpu-resource-types=example.com/gpu`, onClaim, "")),
	rejected("no model", nodes("autoscalerClass=none", "runtime: a", "")),
	rejected("model that must be fetched", nodes("autoscalerClass=none", "storageUri: s3://models/large", "")),
	rejected("scaled", nodes("", onClaim, "")),
	rejected("scaled by keda", nodes("autoscalerClass=keda", onClaim, "")),
	rejected("sizes below 1", nodes("autoscalerClass=none", onClaim, "pipelineParallelSize: 0, tensorParallelSize: -1")),
	rejected("ephemeral containers", nodes("autoscalerClass=none", onClaim, "ephemeralContainers: [{name: debug}]")),
}

func canaries(stable, list string) string {
	return isvc(standard, `{predictor: {`+stable+`}, canary: [`+list+`]}`)
}

const second = `{trafficPercent: 10, predictor: {name: v2, model: {modelFormat: {name: sklearn}, storageUri: s3://models/v2}}}`

var canaryExamples = []example{
	accepted("one", canaries("name: v1, minReplicas: 2, "+iris, second)).with(gatewayOn),
	accepted("nobody shares out traffic", canaries("name: v1, "+iris, second)),
	accepted("framework blocks", canaries("sklearn: {storageUri: s3://a}", "{trafficPercent: 100, predictor: {name: v2, sklearn: {storageUri: s3://b}}}")).with(gatewayOn),
	accepted("only other resources", canaries(iris, "{trafficPercent: 0, predictor: {name: v2, model: {resources: {limits: {cpu: 1}}}}}")).with(gatewayOn),
	accepted("server of the user with a model", canaries("containers: [{name: kserve-container, env: [{name: STORAGE_URI, value: s3://a}]}]", "{trafficPercent: 1, predictor: {name: v2}}")).with(gatewayOn),
	rejected("server of the user without a model", canaries("containers: [{name: kserve-container, image: a}]", "{trafficPercent: 1, predictor: {name: v2}}")).with(gatewayOn),
	rejected("another kind of predictor", canaries(iris, "{trafficPercent: 1, predictor: {name: v2, containers: [{name: kserve-container, image: a}]}}")).with(gatewayOn),
	rejected("without name", canaries(iris, "{trafficPercent: 1, predictor: {"+iris+"}}")).with(gatewayOn),
	rejected("names twice", canaries("name: v1, "+iris, second+", "+second+", {trafficPercent: 1, predictor: {name: v1}}")).with(gatewayOn),
	rejected("more than all traffic", canaries(iris, "{trafficPercent: 60, predictor: {name: a}}, {trafficPercent: 60, predictor: {name: b}}")).with(gatewayOn),
	rejected("no percentage", canaries(iris, "{trafficPercent: -1, predictor: {name: a}}, {trafficPercent: 101, predictor: {name: b}}")).with(gatewayOn),
	rejected("more pods than the stable predictor", canaries(iris, "{trafficPercent: 1, predictor: {name: a, minReplicas: 2}}")).with(gatewayOn),
	rejected("scaling of its own", canaries(iris, "{trafficPercent: 1, predictor: {name: a, maxReplicas: 2, scaleTarget: 1, scaleMetric: cpu, autoScaling: {}, workerSpec: {}}}")).with(gatewayOn),
	rejected("traffic by revision", canaries(iris, "{trafficPercent: 1, predictor: {name: a, canaryTrafficPercent: 5}}")).over(canaries(iris, "{trafficPercent: 1, predictor: {name: a}}")).with(gatewayOn),
	rejected("ephemeral containers", canaries(iris, "{trafficPercent: 1, predictor: {name: a, ephemeralContainers: [{name: debug}]}}")).with(gatewayOn),
	rejected("two implementations", canaries(iris, "{trafficPercent: 1, predictor: {name: a, sklearn: {}, xgboost: {}}}")).with(gatewayOn),
}
