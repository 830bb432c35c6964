# SPDX-License-Identifier: Apache-2.0
"""Trains the two example models and writes them with requests and their right answers.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt && venv/bin/python train.py

The data comes with scikit-learn. The flowers and digits in the requests were kept out of the training, and only such are
chosen as the model knows; the answers are the labels of the data set, not what the model says.
"""

import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

HERE = pathlib.Path(__file__).parent
SEED = 7


def weight(name, value, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(value, dtype=dtype), name)


def save(folder, name, doc, nodes, inputs, outputs, weights):
    """Writes model.onnx with a first dimension of any size, so that requests can be put together."""
    graph = helper.make_graph(nodes, name, inputs, outputs, weights)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="modelplane-examples",
        doc_string=doc,
    )
    onnx.checker.check_model(model, full_check=True)
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{path.relative_to(HERE)}: {path.stat().st_size} bytes")


def write(path, value):
    path.write_text(json.dumps(value) + "\n")


def requests(folder, name, tensor, rows, shape, classes):
    """The same rows in both protocols, and the classes that are right."""
    flat = [v for row in rows for v in np.ravel(row).tolist()]
    write(folder / "request-v1.json", {"instances": [np.asarray(r).tolist() for r in rows]})
    write(
        folder / "request-v2.json",
        {"inputs": [{"name": tensor, "datatype": "FP32", "shape": [len(rows), *shape], "data": flat}]},
    )
    write(folder / "classes.json", {"model": name, "classes": [int(c) for c in classes]})


def pick(known, labels, count):
    """Indices of test rows that the model knows, going round the classes."""
    by_class = {c: [i for i in np.flatnonzero(known) if labels[i] == c] for c in np.unique(labels)}
    order = [i for group in zip(*by_class.values()) for i in group]
    return order[:count]


def iris():
    data = load_iris()
    x_train, x_test, y_train, y_test = train_test_split(
        data.data, data.target, test_size=0.3, random_state=SEED, stratify=data.target
    )
    scaler = StandardScaler().fit(x_train)
    model = LogisticRegression(max_iter=1000, random_state=SEED).fit(scaler.transform(x_train), y_train)
    known = model.predict(scaler.transform(x_test))
    print(f"iris: {accuracy_score(y_test, known):.3f} of the flowers it has not seen")

    # The scaling is folded into the weights: w·(x-m)/s + b = (w/s)·x + (b - w·m/s).
    w = model.coef_ / scaler.scale_
    b = model.intercept_ - w @ scaler.mean_
    folder = HERE / "iris"
    save(
        folder,
        "iris",
        "Which of three irises a flower is: 0 setosa, 1 versicolor, 2 virginica.",
        [
            helper.make_node("Gemm", ["flowers", "w", "b"], ["scores"]),
            helper.make_node("ArgMax", ["scores"], ["class"], axis=1, keepdims=0),
        ],
        [helper.make_tensor_value_info("flowers", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("class", TensorProto.INT64, ["batch"])],
        [weight("w", w.T), weight("b", b)],
    )
    rows = pick(known == y_test, y_test, 6)
    requests(folder, "iris", "flowers", [x_test[i] for i in rows], [4], [y_test[i] for i in rows])


def digits():
    data = load_digits()
    images = data.images.astype(np.float32) / 16
    x_train, x_test, y_train, y_test = train_test_split(
        images, data.target, test_size=0.3, random_state=SEED, stratify=data.target
    )
    model = MLPClassifier(hidden_layer_sizes=(24,), max_iter=600, alpha=0.01, random_state=SEED)
    model.fit(x_train.reshape(len(x_train), 64), y_train)
    known = model.predict(x_test.reshape(len(x_test), 64))
    print(f"digits: {accuracy_score(y_test, known):.3f} of the digits it has not seen")

    (w1, w2), (b1, b2) = model.coefs_, model.intercepts_
    folder = HERE / "digits"
    save(
        folder,
        "digits",
        "Which digit an image of 8 by 8 grey values between 0 and 1 shows, and how likely each digit is.",
        [
            helper.make_node("Flatten", ["image"], ["flat"], axis=1),
            helper.make_node("Gemm", ["flat", "w1", "b1"], ["hidden"]),
            helper.make_node("Relu", ["hidden"], ["active"]),
            helper.make_node("Gemm", ["active", "w2", "b2"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
            helper.make_node("ArgMax", ["scores"], ["digit"], axis=1, keepdims=0),
        ],
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 8, 8])],
        [
            helper.make_tensor_value_info("digit", TensorProto.INT64, ["batch"]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10]),
        ],
        [weight("w1", w1), weight("b1", b1), weight("w2", w2), weight("b2", b2)],
    )
    rows = pick(known == y_test, y_test, 10)
    requests(folder, "digits", "image", [x_test[i] for i in rows], [8, 8], [y_test[i] for i in rows])


if __name__ == "__main__":
    iris()
    digits()
