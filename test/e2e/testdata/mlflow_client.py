# SPDX-License-Identifier: Apache-2.0
"""What a data scientist does with MLflow: log, trace, read RUN, traced TRACE, delete RUN, gone RUN; several are separated by commas."""

import copy
import pathlib
import sys
import tempfile
import time

import mlflow
import mlflow.sklearn
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.tracking import rest_store
from sklearn.linear_model import LogisticRegression

WORKSPACE, EXPERIMENT, MODEL = "e2e-science", "flowers", "petals"
NOTE = "petals are counted by hand"


def log():
    mlflow.set_experiment(EXPERIMENT)
    with mlflow.start_run() as run:
        mlflow.log_param("regularisation", 1.0)
        mlflow.log_metric("accuracy", 0.75)
        note = pathlib.Path(tempfile.mkdtemp()) / "note.txt"
        note.write_text(NOTE)
        mlflow.log_artifact(str(note))
        classifier = LogisticRegression().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
        mlflow.sklearn.log_model(classifier, name="model", registered_model_name=MODEL)
    print("run=" + run.info.run_id)


def rewritten(send):
    """Does what the HTTPRoute does on the way: the server has the calls of OpenTelemetry without its prefix."""

    def request(host_creds, endpoint, *args, **kwargs):
        if endpoint.startswith("/v1/"):
            host_creds = copy.copy(host_creds)
            host_creds.host = host_creds.host.removesuffix("/mlflow")
        return send(host_creds, endpoint, *args, **kwargs)

    return request


def trace():
    rest_store.http_request = rewritten(rest_store.http_request)
    began = time.time_ns() - 2 * 3600 * 10**9  # old enough to be archived
    span = mlflow.start_span_no_context("answer", inputs={"question": NOTE}, start_time_ns=began)
    span.end(outputs={"petals": 5}, end_time_ns=began + 10**9)
    mlflow.flush_trace_async_logging()
    print("trace=" + span.trace_id)


def traced(trace):
    spans = mlflow.get_trace(trace).data.spans
    assert [(s.name, s.inputs, s.outputs) for s in spans] == [("answer", {"question": NOTE}, {"petals": 5})], spans


def read(run):
    data = MlflowClient().get_run(run).data
    assert data.params == {"regularisation": "1.0"}, data.params
    assert data.metrics == {"accuracy": 0.75}, data.metrics
    note = mlflow.artifacts.download_artifacts(run_id=run, artifact_path="note.txt")
    assert pathlib.Path(note).read_text() == NOTE, note
    classes = mlflow.sklearn.load_model(f"models:/{MODEL}/1").predict([[0.0], [3.0]]).tolist()
    assert classes == [0, 1], classes


def delete(run):
    MlflowClient().delete_run(run)


def gone(run):
    try:
        found = MlflowClient().get_run(run)
    except MlflowException as refused:
        assert refused.error_code == "RESOURCE_DOES_NOT_EXIST", refused
        return
    raise AssertionError(f"{run} is still there: {found.info.lifecycle_stage}")


if __name__ == "__main__":
    mlflow.set_workspace(WORKSPACE)
    for words in " ".join(sys.argv[1:]).split(","):
        action, *arguments = words.split()
        {"log": log, "trace": trace, "read": read, "traced": traced, "delete": delete, "gone": gone}[action](*arguments)
    print("done")
