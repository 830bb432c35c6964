// SPDX-License-Identifier: Apache-2.0

package validation

import "strings"

// isvc writes an InferenceService from a short form: annotations of ours without
// their prefix, then the spec.
func isvc(annotations, spec string) string { return named("iris", annotations, spec) }

func named(name, annotations, spec string) string {
	return `{apiVersion: serving.kserve.io/v1beta1, kind: InferenceService, metadata: {name: ` + name +
		`, namespace: a, annotations: {` + prefixed(annotations) + `}}, spec: ` + spec + `}`
}

func prefixed(annotations string) string {
	var out []string
	for _, a := range strings.Fields(annotations) {
		key, value, _ := strings.Cut(a, "=")
		if !strings.Contains(key, "/") {
			key = "serving.kserve.io/" + key
		}
		out = append(out, key+`: '`+value+`'`)
	}
	return strings.Join(out, ", ")
}

// recorded adds the mode that a stored service has.
func recorded(mode, object string) string {
	return strings.TrimSuffix(object, "}") + `, status: {deploymentMode: ` + mode + `}}`
}

const (
	standard = "deploymentMode=Standard"
	knative  = "deploymentMode=Knative"
	mesh     = "deploymentMode=ModelMesh"

	iris = `model: {modelFormat: {name: sklearn}, storageUri: s3://models/iris}`
)

func predictor(fields string) string { return `{predictor: {` + iris + `, ` + fields + `}}` }

func transformer(fields string) string {
	return `{predictor: {` + iris + `}, transformer: {containers: [{name: t, image: t}], ` + fields + `}}`
}

func explainer(fields string) string {
	return `{predictor: {` + iris + `}, explainer: {containers: [{name: e, image: e}], ` + fields + `}}`
}

var plain = `{predictor: {` + iris + `}}`

const configured = `{apiVersion: v1, kind: ConfigMap, metadata: {name: inferenceservice-config, namespace: kserve}, data: {deploy: '{"defaultDeploymentMode": "Serverless"}'}}`
const gatewayOn = `{apiVersion: v1, kind: ConfigMap, metadata: {name: inferenceservice-config, namespace: kserve}, data: {ingress: '{"enableGatewayApi": true, "ingressGateway": "a/b", "kserveIngressGateway": "a/b"}'}}`
const authAllowed = `{apiVersion: v1, kind: ConfigMap, metadata: {name: inferenceservice-config, namespace: kserve}, data: {ingress: '{"ingressGateway": "a/b", "allowedAnnotations": ["nginx.ingress.kubernetes.io/auth-*"]}'}}`

var modeExamples = []example{
	accepted("no mode", isvc("", plain)),
	accepted("former spelling", isvc("deploymentMode=RawDeployment", plain)),
	accepted("unknown mode", isvc("deploymentMode=Bare", plain)),
	accepted("default from the configuration", isvc("", predictor("scaleMetric: rps, canaryTrafficPercent: 10"))).with(configured),
	rejected("default from the configuration, field of another mode", isvc("", predictor("deploymentStrategy: {type: Recreate}"))).with(configured),
	accepted("same mode", isvc(standard, plain)).over(recorded("Standard", isvc(standard, plain))),
	accepted("same mode, former spelling", isvc("deploymentMode=Serverless", plain)).over(recorded("Serverless", isvc("", plain))),
	accepted("mode left out", isvc("", predictor("minReplicas: 2"))).over(recorded("Standard", isvc(standard, plain))),
	rejected("another mode", isvc(knative, plain)).over(recorded("Standard", isvc(standard, plain))),
	rejected("another mode that does not exist", isvc("deploymentMode=Bare", plain)).over(recorded("Standard", isvc(standard, plain))),
	accepted("annotation that was wrong before", isvc(knative, predictor("minReplicas: 2"))).over(recorded("Standard", isvc(knative, plain))),

	rejected("snippet for the proxy of all", isvc("nginx.ingress.kubernetes.io/configuration-snippet=x", plain)),
	rejected("host of somebody else", isvc("nginx.ingress.kubernetes.io/server-alias=x", plain)),
	rejected("address that the proxy asks", isvc("nginx.ingress.kubernetes.io/auth-url=x", plain)),
	rejected("section of HAProxy's configuration", isvc("haproxy-ingress.github.io/config-backend=x", plain)),
	rejected("snippet that is new", isvc("nginx.org/server-snippets=x", plain)).over(isvc("", plain)),
	accepted("snippet that was there before", isvc("nginx.org/server-snippets=x", predictor("minReplicas: 2"))).over(isvc("nginx.org/server-snippets=x", plain)),
	rejected("another snippet than before", isvc("nginx.org/server-snippets=y", plain)).over(isvc("nginx.org/server-snippets=x", plain)),
	accepted("snippet where there is no Ingress", isvc("nginx.ingress.kubernetes.io/configuration-snippet=x", plain)).with(gatewayOn),
	accepted("snippet in Knative mode", isvc(knative+" nginx.ingress.kubernetes.io/configuration-snippet=x", plain)),
	accepted("annotation that the platform allows", isvc("nginx.ingress.kubernetes.io/auth-url=x", plain)).with(authAllowed),
	accepted("other annotations of the proxy", isvc("nginx.ingress.kubernetes.io/proxy-body-size=8m alb.ingress.kubernetes.io/auth-type=oidc", plain)),

	rejected("name starts with a digit", named("1-iris", standard, plain)),
	rejected("name ends with a dash", named("iris-", standard, plain)),
	accepted("longest name", named("a"+strings.Repeat("b", 47), standard, plain)),
	rejected("too long for a label", named("a"+strings.Repeat("b", 48), standard, plain)),
	accepted("longer in Knative mode", named("a"+strings.Repeat("b", 52), knative, plain)),
	rejected("too long for Knative", named("a"+strings.Repeat("b", 53), knative, plain)),
	accepted("long in the mesh", named("a"+strings.Repeat("b", 99), mesh, plain)),
	rejected("too long with the name of the predictor", named("a"+strings.Repeat("b", 40), standard, predictor("name: version-one"))),
	rejected("too long with a transformer", named("a"+strings.Repeat("b", 47), standard, transformer(""))),
	accepted("generated name", strings.Replace(isvc(standard, plain), "name: iris", "generateName: iris-", 1)),

	accepted("another predictor name with another model", isvc(standard, predictor("name: v2"))).
		over(isvc(standard, `{predictor: {name: v1, model: {modelFormat: {name: sklearn}, storageUri: s3://models/old}}}`)),
	rejected("another predictor name, same model", isvc(standard, predictor("name: v2"))).over(isvc(standard, predictor("name: v1"))),
	accepted("another predictor name, another path in the storage", isvc(standard, `{predictor: {name: v2, model: {modelFormat: {name: sklearn}, storage: {key: a, path: v2}}}}`)).
		over(isvc(standard, `{predictor: {name: v1, model: {modelFormat: {name: sklearn}, storage: {key: a, path: v1}}}}`)),

	accepted("what was wrong before stays", isvc(standard, predictor("minReplicas: 3, maxReplicas: 2, timeout: 5"))).
		over(isvc(standard, predictor("minReplicas: 3, maxReplicas: 2"))),
	rejected("what was wrong before gets worse", isvc(standard, predictor("minReplicas: 4, maxReplicas: 2"))).
		over(isvc(standard, predictor("minReplicas: 3, maxReplicas: 2"))),
	rejected("a second one of what was wrong before", isvc(standard, `{predictor: {`+iris+`, initContainers: [{name: a, env: [{name: PYTHONPATH}]}, {name: b, env: [{name: PYTHONPATH}]}]}}`)).
		over(isvc(standard, `{predictor: {`+iris+`, initContainers: [{name: a, env: [{name: PYTHONPATH}]}]}}`)),
	accepted("what was wrong before was stored without defaults",
		isvc(standard, `{predictor: {sklearn: {storageUri: s3://b, env: [{name: PYTHONPATH, value: /a}]}}}`)).
		over(isvc("", `{predictor: {sklearn: {storageUri: s3://a, env: [{name: PYTHONPATH, value: /a}]}}}`)),
}

var fieldExamples = []example{
	accepted("replicas", isvc(standard, predictor("minReplicas: 1, maxReplicas: 2"))),
	accepted("replicas in the mesh", isvc(mesh, predictor("minReplicas: 1, maxReplicas: 2, scaleTarget: 1, scaleMetric: cpu, scaleMetricType: Value, timeout: 5, name: a, storageContainerName: b"))),
	accepted("metric type of Knative", isvc(knative, predictor("scaleMetricType: Value"))),
	rejected("autoScaling with Knative", isvc(knative, predictor("autoScaling: {metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}"))),
	rejected("autoScaling in the mesh", isvc(mesh, predictor("autoScaling: {metrics: []}"))),
	accepted("container concurrency", isvc(knative, predictor("containerConcurrency: 5"))),
	accepted("container concurrency that nobody counts", isvc(standard, predictor("containerConcurrency: 5"))),
	accepted("container concurrency of a transformer", isvc(standard, transformer("containerConcurrency: 5"))),
	accepted("container concurrency without limit", isvc(standard, predictor("containerConcurrency: 0"))),
	accepted("timeout with routes", isvc(standard, predictor("timeout: 5"))).with(gatewayOn),
	accepted("timeout with an Ingress", isvc(standard, predictor("timeout: 5"))),
	accepted("canary percent of a new service", isvc(standard, predictor("canaryTrafficPercent: 10"))),
	accepted("canary percent that says nothing", isvc(standard, predictor("canaryTrafficPercent: 100"))).over(isvc(standard, plain)),
	rejected("canary percent brought in later", isvc(standard, predictor("canaryTrafficPercent: 10"))).over(isvc(standard, plain)),
	rejected("canary percent changed later", isvc(standard, predictor("canaryTrafficPercent: 20"))).over(isvc(standard, predictor("canaryTrafficPercent: 10"))),
	accepted("canary percent left alone", isvc(standard, predictor("canaryTrafficPercent: 10, minReplicas: 2"))).over(isvc(standard, predictor("canaryTrafficPercent: 10"))),
	accepted("canary percent with Knative", isvc(knative, predictor("canaryTrafficPercent: 10"))).over(isvc(knative, plain)),
	rejected("canary percent in the mesh", isvc(mesh, predictor("canaryTrafficPercent: 10"))).over(isvc(mesh, plain)),
	rejected("canary percent of a transformer", isvc(standard, transformer("canaryTrafficPercent: 10"))).over(isvc(standard, transformer(""))),
	accepted("logger and batcher", isvc(knative, predictor("logger: {mode: all}, batcher: {maxBatchSize: 8}"))),
	rejected("logger in the mesh", isvc(mesh, predictor("logger: {mode: all}"))),
	accepted("logger of a transformer in the mesh", isvc(mesh, transformer("logger: {mode: all}, batcher: {maxBatchSize: 8}"))),
	accepted("batcher in the mesh", isvc(mesh, predictor("batcher: {maxBatchSize: 8}"))),
	accepted("batcher of an explainer", isvc(standard, explainer("batcher: {maxBatchSize: 8}"))),
	accepted("labels and annotations in the mesh", isvc(mesh, predictor("labels: {a: b}, annotations: {a: b}"))),
	accepted("strategy", isvc(standard, predictor("deploymentStrategy: {type: Recreate}"))),
	rejected("strategy with Knative", isvc(knative, predictor("deploymentStrategy: {type: Recreate}"))),
	rejected("strategy in the mesh", isvc(mesh, predictor("deploymentStrategy: {type: Recreate}"))),
	rejected("strategy of a transformer in the mesh", isvc(mesh, transformer("deploymentStrategy: {type: Recreate}"))),
	accepted("strategy that was stored", isvc(knative, predictor("deploymentStrategy: {type: Recreate}, minReplicas: 2"))).
		over(isvc(knative, predictor("deploymentStrategy: {type: Recreate}"))),
	rejected("strategy that is changed", isvc(knative, predictor("deploymentStrategy: {type: RollingUpdate}"))).
		over(isvc(knative, predictor("deploymentStrategy: {type: Recreate}"))),
	rejected("several addresses in the mesh", isvc(mesh, `{predictor: {model: {modelFormat: {name: sklearn}}, storageUris: [{uri: s3://a}]}}`)),
	rejected("several nodes with Knative", isvc(knative+" autoscalerClass=none", predictor("workerSpec: {}, model: {modelFormat: {name: huggingface}, storageUri: pvc://a}"))),
	rejected("several nodes in the mesh", isvc(mesh+" autoscalerClass=none", predictor("workerSpec: {}, model: {modelFormat: {name: huggingface}, storageUri: pvc://a}"))),
	rejected("containers in the mesh", isvc(mesh, `{predictor: {containers: [{name: kserve-container, image: a}]}}`)),
	rejected("confidential in the mesh", isvc(mesh, `{predictor: {model: {modelFormat: {name: sklearn}, storageUri: s3://a, confidential: {enabled: true}}}}`)),
	accepted("pod settings in the mesh", isvc(mesh, `{predictor: {nodeSelector: {a: b}, serviceAccountName: c, model: {modelFormat: {name: sklearn}, storageUri: s3://a, runtimeVersion: '1', image: b, args: [c]}}}`)),
	accepted("model in the mesh", isvc(mesh, plain)),
	accepted("framework block in the mesh", isvc(mesh, `{predictor: {sklearn: {storageUri: s3://a}}}`)),
	rejected("canary with Knative", isvc(knative, `{predictor: {`+iris+`}, canary: [{trafficPercent: 10, predictor: {name: b}}]}`)),
	rejected("canary in the mesh", isvc(mesh, `{predictor: {`+iris+`}, canary: [{trafficPercent: 10, predictor: {name: b}}]}`)),
}

var implementationExamples = []example{
	rejected("empty predictor", isvc(standard, `{predictor: {}}`)),
	rejected("predictor with pod settings only", isvc(standard, `{predictor: {minReplicas: 1, serviceAccountName: a, name: b}}`)),
	rejected("two frameworks", isvc(standard, `{predictor: {sklearn: {storageUri: s3://a}, xgboost: {storageUri: s3://a}}}`)),
	rejected("model and server of the user", isvc(standard, `{predictor: {`+iris+`, containers: [{name: kserve-container, image: a}]}}`)),
	accepted("model and helper", isvc(standard, `{predictor: {`+iris+`, containers: [{name: helper, image: a}]}}`)),
	accepted("framework block applied over the model it became", isvc(standard, `{predictor: {sklearn: {storageUri: s3://b}, `+iris+`}}`)),
	accepted("server of the user", isvc(standard, `{predictor: {containers: [{image: a, name: x}]}}`)),
	accepted("server of the user with protocol", isvc(standard, `{predictor: {containers: [{image: a, name: x, env: [{name: PROTOCOL, value: v2}]}]}}`)),
	rejected("unknown protocol", isvc(standard, `{predictor: {containers: [{image: a, name: x, env: [{name: PROTOCOL, value: v3}]}]}}`)),
	rejected("transformer without container", isvc(standard, `{predictor: {`+iris+`}, transformer: {minReplicas: 1}}`)),
	rejected("explainer without implementation", isvc(standard, `{predictor: {`+iris+`}, explainer: {minReplicas: 1}}`)),
	rejected("explainer with two", isvc(standard, explainer("art: {type: SquareAttack}"))),
	accepted("explainer", isvc(standard, `{predictor: {`+iris+`}, explainer: {art: {type: SquareAttack}}}`)),
	rejected("model without format", isvc(standard, `{predictor: {model: {storageUri: s3://a}}}`)),
	rejected("name in a block", isvc(standard, `{predictor: {sklearn: {name: a, storageUri: s3://a}}}`)),

	rejected("PYTHONPATH in a model", isvc(standard, `{predictor: {model: {modelFormat: {name: sklearn}, env: [{name: PYTHONPATH, value: /x}]}}}`)),
	rejected("PYTHONPATH everywhere", isvc(standard, `{predictor: {containers: [{name: a, env: [{name: B}, {name: PYTHONPATH}]}], initContainers: [{name: b, env: [{name: PYTHONPATH}]}]},
		transformer: {containers: [{name: a, env: [{name: PYTHONPATH}]}], initContainers: [{name: a, env: [{name: PYTHONPATH}]}]},
		explainer: {art: {env: [{name: PYTHONPATH}]}, initContainers: [{name: a, env: [{name: PYTHONPATH}]}]}}`)),
	rejected("PYTHONPATH in a worker", isvc(standard+" autoscalerClass=none", `{predictor: {model: {modelFormat: {name: a}, storageUri: pvc://a}, workerSpec: {containers: [{name: worker-container, env: [{name: PYTHONPATH}]}]}}}`)),
	rejected("PYTHONPATH in a canary", isvc(standard, `{predictor: {`+iris+`}, canary: [{trafficPercent: 1, predictor: {name: b, model: {env: [{name: PYTHONPATH}]}}}]}`)),
	rejected("model address in the transformer container", isvc(standard, `{predictor: {containers: [{name: kserve-container, image: a}, {name: transformer-container, env: [{name: STORAGE_URI, value: s3://a}]}]}}`)),
	accepted("model address in the predictor container", isvc(standard, `{predictor: {containers: [{name: kserve-container, env: [{name: STORAGE_URI, value: s3://a}]}, {name: transformer-container}]}}`)),

	rejected("tensorflow without GPU in the tag", isvc(mesh, `{predictor: {tensorflow: {storageUri: s3://a, runtimeVersion: '2.1', resources: {limits: {nvidia.com/gpu: 1}}}}}`)),
	rejected("pytorch with GPU in the tag", isvc(mesh, `{predictor: {pytorch: {storageUri: s3://a, runtimeVersion: 2.1-gpu}}}`)),
	accepted("pytorch with GPU in tag and limits", isvc(mesh, `{predictor: {pytorch: {storageUri: s3://a, runtimeVersion: 2.1-gpu, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}}}`)),
	rejected("onnx with another ending", isvc(mesh, `{predictor: {onnx: {storageUri: s3://a/b.zip}}}`)),
	accepted("onnx", isvc(mesh, `{predictor: {onnx: {storageUri: s3://a/b.onnx}}}`)),
	accepted("onnx folder", isvc(mesh, `{predictor: {onnx: {storageUri: s3://a/b}}}`)),
	rejected("unknown storage", isvc(mesh, `{predictor: {sklearn: {storage: {path: a, parameters: {type: ftp}}}}}`)),
	accepted("known storage", isvc(mesh, `{predictor: {sklearn: {storage: {path: a, parameters: {type: s3}}}}}`)),

	rejected("many problems at once", named("Iris", standard, `{predictor: {minReplicas: -1, containerConcurrency: -1}, transformer: {timeout: -1}}`)),
}

var storageExamples = []example{
	rejected("one address and several", isvc(standard, `{predictor: {`+iris+`, storageUris: [{uri: s3://a}]}}`)),
	rejected("one address and several in a server of the user", isvc(standard, `{predictor: {containers: [{name: kserve-container, env: [{name: STORAGE_URI, value: s3://a}]}], storageUris: [{uri: s3://a}]}}`)),
	rejected("one address and several in an ART explainer", isvc(standard, `{predictor: {`+iris+`}, explainer: {art: {storageUri: s3://a}, storageUris: [{uri: s3://a}]}}`)),
	accepted("several", isvc(standard, uris(`{uri: s3://a, mountPath: /mnt/models/a}, {uri: hf://b, mountPath: /mnt/models/b}, {uri: pvc://c, mountPath: /mnt/claim}`))),
	accepted("several into one folder", isvc(standard, uris(`{uri: s3://a}, {uri: hf://b}`))),
	rejected("empty address", isvc(standard, uris(`{uri: ''}`))),
	rejected("root", isvc(standard, uris(`{uri: s3://a, mountPath: /}`))),
	rejected("root in disguise", isvc(standard, uris(`{uri: s3://a, mountPath: //./}`))),
	rejected("relative", isvc(standard, uris(`{uri: s3://a, mountPath: models}`))),
	rejected("way up", isvc(standard, uris(`{uri: s3://a, mountPath: /mnt/../etc}`))),
	rejected("nothing in common", isvc(standard, uris(`{uri: s3://a, mountPath: /mnt/a}, {uri: s3://b, mountPath: /opt/b}`))),
	rejected("same name is no folder in common", isvc(standard, uris(`{uri: s3://a, mountPath: /models-a}, {uri: s3://b, mountPath: /models-b}`))),
	rejected("two claims at one path", isvc(standard, uris(`{uri: pvc://a, mountPath: /mnt/a}, {uri: pvc://b, mountPath: /mnt/a/}`))),
	rejected("claim where a download goes", isvc(standard, uris(`{uri: pvc://a}, {uri: s3://b}`))),
	rejected("claim where downloads meet", isvc(standard, uris(`{uri: pvc://a, mountPath: /mnt/x}, {uri: s3://b, mountPath: /mnt/x/b}, {uri: s3://c, mountPath: /mnt/x/c}`))),
	rejected("transformer", isvc(standard, transformer(`storageUris: [{uri: s3://a, mountPath: /}]`))),

	accepted("confidential", isvc(standard, confidentialModel(`storageUri: s3://a, confidential: {enabled: true, resourceId: 'kbs:///a/b/c.d'}`))),
	accepted("confidential turned off", isvc(standard, confidentialModel(`confidential: {enabled: false, resourceId: what}`))),
	rejected("confidential without address", isvc(standard, confidentialModel(`confidential: {enabled: true}`))),
	rejected("confidential with another key", isvc(standard, confidentialModel(`storageUri: s3://a, confidential: {enabled: true, resourceId: 'https://a/b/c'}`))),
	accepted("confidential image", isvc(standard, confidentialModel(`storageUri: oci://a, confidential: {enabled: true}`))),
	accepted("confidential claim", isvc(standard, confidentialModel(`storageUri: pvc://a, confidential: {enabled: true}`))),

	rejected("logger without mode", isvc(standard, predictor(`logger: {url: 'http://a'}`))),
	rejected("unknown logger mode", isvc(standard, predictor(`logger: {mode: some}`))),
	accepted("logger with storage", isvc(standard, predictor(`logger: {mode: all, storage: {path: a, key: b, parameters: {type: s3}}}`))),
	rejected("logger with empty storage", isvc(standard, explainer(`logger: {mode: all, storage: {}}`))),
}

func uris(list string) string {
	return `{predictor: {model: {modelFormat: {name: sklearn}}, storageUris: [` + list + `]}}`
}

func confidentialModel(fields string) string {
	return `{predictor: {model: {modelFormat: {name: sklearn}, ` + fields + `}}}`
}
