# SPDX-License-Identifier: Apache-2.0
"""Writes the models of the tests. Needs numpy and onnx in the versions of examples/onnx/requirements.txt."""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

HERE = pathlib.Path(__file__).parent


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def save(name, nodes, inputs, outputs, weights=(), ml=False, check=True):
    graph = helper.make_graph(nodes, name, inputs, outputs, list(weights))
    opsets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid("ai.onnx.ml", 3)] if ml else [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="modelplane-tests")
    if check:
        onnx.checker.check_model(model)
    (HERE / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))


# One input and output of every type of the protocol.
kinds = {
    "bool": T.BOOL, "uint8": T.UINT8, "uint16": T.UINT16, "uint32": T.UINT32, "uint64": T.UINT64,
    "int8": T.INT8, "int16": T.INT16, "int32": T.INT32, "int64": T.INT64,
    "fp16": T.FLOAT16, "bf16": T.BFLOAT16, "fp32": T.FLOAT, "fp64": T.DOUBLE, "bytes": T.STRING,
}
save(
    "types",
    [helper.make_node("Identity", [k], [k + "_out"]) for k in kinds],
    [value(k, t, ["batch", 2]) for k, t in kinds.items()],
    [value(k + "_out", t, ["batch", 2]) for k, t in kinds.items()],
)

# Values without dimensions, going in and coming out.
save(
    "scalar",
    [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("ReduceMean", ["sum"], ["mean"], keepdims=0)],
    [value("a", T.FLOAT, ["n"]), value("b", T.FLOAT, [])],
    [value("mean", T.FLOAT, []), value("sum", T.FLOAT, ["n"])],
)

# Probabilities as converters from scikit-learn write them: a list of maps from class to number.
save(
    "zipmap",
    [helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[3, 5, 9])],
    [value("scores", T.FLOAT, ["batch", 3])],
    [helper.make_value_info("probabilities", helper.make_sequence_type_proto(
        helper.make_map_type_proto(T.INT64, helper.make_tensor_type_proto(T.FLOAT, []))))],
    ml=True,
)

# Its output says that it goes by rows, but it is one sum over all of them.
save(
    "total",
    [helper.make_node("ReduceSum", ["x"], ["total"], keepdims=1)],
    [value("x", T.FLOAT, ["batch"])],
    [value("total", T.FLOAT, ["any"])],
)

# Fails for a row that names an entry beyond the table.
save(
    "lookup",
    [helper.make_node("Gather", ["table", "index"], ["entry"])],
    [value("index", T.INT64, ["batch"])],
    [value("entry", T.FLOAT, ["batch"])],
    [numpy_helper.from_array(np.arange(10, dtype=np.float32) * 10, "table")],
)

# Takes as long as it is told: that many products of matrices, one after the other.
size = 128
body = helper.make_graph(
    [
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("MatMul", ["m", "eye"], ["product"]),
    ],
    "body",
    [value("i", T.INT64, []), value("go", T.BOOL, []), value("m", T.FLOAT, [size, size])],
    [value("go_on", T.BOOL, []), value("product", T.FLOAT, [size, size])],
)
save(
    "slow",
    [
        helper.make_node("Squeeze", ["rounds"], ["count"]),
        helper.make_node("ConstantOfShape", ["shape"], ["start"]),
        helper.make_node("EyeLike", ["start"], ["eye"]),
        helper.make_node("Loop", ["count", "", "eye"], ["last"], body=body),
        helper.make_node("ReduceSum", ["last"], ["trace"], keepdims=0),
        helper.make_node("Reshape", ["trace", "one"], ["result"]),
    ],
    [value("rounds", T.INT64, [1])],
    [value("result", T.FLOAT, [1])],
    [numpy_helper.from_array(np.array([size, size], dtype=np.int64), "shape"), numpy_helper.from_array(np.array([1], dtype=np.int64), "one")],
)

# Eight layers whose weights are made when the model is loaded: little to store, much to compute.
width = 512
names = ["x"] + [f"h{i}" for i in range(1, 8)] + ["y"]
save(
    "layers",
    [helper.make_node("ConstantOfShape", ["square"], ["w"], value=numpy_helper.from_array(np.array([1 / width], dtype=np.float32)))]
    + [helper.make_node("MatMul", [a, "w"], [b]) for a, b in zip(names, names[1:])],
    [value("x", T.FLOAT, ["batch", width])],
    [value("y", T.FLOAT, ["batch", width])],
    [numpy_helper.from_array(np.array([width, width], dtype=np.int64), "square")],
)
