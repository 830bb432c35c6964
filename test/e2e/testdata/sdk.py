"""Serves a model as people do who write Python, changes it for a broken one and back: sdk.py NAMESPACE."""

import sys
import time

from kserve import (
    KServeClient,
    V1beta1InferenceService,
    V1beta1InferenceServiceSpec,
    V1beta1ModelFormat,
    V1beta1ModelSpec,
    V1beta1PredictorSpec,
)
from kubernetes.client import V1ObjectMeta

NAME, NAMESPACE = "by-python", sys.argv[1]


def service(model):
    predictor = V1beta1PredictorSpec(
        model=V1beta1ModelSpec(model_format=V1beta1ModelFormat(name="onnx"), storage_uri="pvc://models/" + model)
    )
    return V1beta1InferenceService(
        api_version="serving.kserve.io/v1beta1",
        kind="InferenceService",
        metadata=V1ObjectMeta(name=NAME, namespace=NAMESPACE),
        spec=V1beta1InferenceServiceSpec(predictor=predictor),
    )


def changed(client, model):
    return client.patch(NAME, service(model), namespace=NAMESPACE)["metadata"]["generation"]


def served(client, generation, seconds):
    try:
        client.wait_isvc_ready(
            NAME, namespace=NAMESPACE, timeout_seconds=seconds, polling_interval=1, expected_generation=generation
        )
    except RuntimeError as error:
        return str(error)
    return None


def state(client):
    return client.get(NAME, namespace=NAMESPACE)["status"]["modelStatus"]["transitionStatus"]


client = KServeClient()
client.create(service("iris"))
if said := served(client, 1, 120):
    sys.exit("the first generation is not served: " + said)

broken = changed(client, "words")
for _ in range(60):
    if state(client) == "BlockedByFailedLoad":
        break
    time.sleep(1)
else:
    sys.exit("a model that cannot be loaded leaves the state at " + state(client))
if served(client, broken, 2) is None:
    sys.exit("generation %d is taken for served" % broken)
if not client.is_isvc_ready(NAME, namespace=NAMESPACE):
    sys.exit("the model from before does not answer")

if said := served(client, changed(client, "contrary"), 120):
    sys.exit("the mended generation is not served: " + said)
if state(client) != "UpToDate":
    sys.exit("the mended service says " + state(client))
client.delete(NAME, namespace=NAMESPACE)
print("done")
