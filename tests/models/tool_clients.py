"""Tools that make, shrink or check ONNX models by running them with onnxruntime, as their users write them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def rounded(array: Any) -> Any:
    """Numbers of an array to three digits."""
    return np.round(np.asarray(array, np.float64), 3).tolist()


def onnxscript_eager() -> Any:
    """Operators and a function called like Python functions: each is a model that runs at once."""
    from onnxscript import opset18 as op

    x = np.linspace(-2, 2.5, 6).astype(np.float32)
    values, places = op.TopK(x, np.array([2]))
    parts = op.SplitToSequence(x, np.array([2, 4]))
    found = op.Erf(op.Softmax(x.reshape(2, 3), axis=0))
    return [
        rounded(each.value) for each in (found, values, places, op.SequenceAt(parts, np.array(1)), op.ReduceSum(x, keepdims=0))
    ]


def torch_verification() -> Any:
    """A program out of torch's exporter, run by itself and verified value by value against torch."""
    import torch
    from torch.onnx import verification

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3, padding=1), torch.nn.ReLU(), torch.nn.Linear(4, 3), torch.nn.Softmax(-1))
    x = torch.randn(2, 2, 4)
    program = torch.onnx.export(model.eval(), (x,), dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False)
    assert program is not None
    verified = [
        [item.name, float(item.max_abs_diff) < 1e-4]
        for whole in (False, True)
        for item in verification.verify_onnx_program(program, compare_intermediates=whole)
    ]
    return [verified, rounded(program(x)[0].detach())]


def spox() -> Any:
    """A graph built value by value; constants are computed on the way by onnxruntime."""
    import onnxruntime
    import spox as builder
    import spox._future as settings
    import spox.opset.ai.onnx.ml.v3 as ml
    import spox.opset.ai.onnx.v21 as op

    settings.set_value_prop_backend(settings.ValuePropBackend.ONNXRUNTIME)
    x = builder.argument(builder.Tensor(np.float32, ("N", 3)))
    weights = op.const(np.arange(6, dtype=np.float32).reshape(2, 3))
    product = op.matmul(x, op.transpose(op.mul(weights, weights)))
    positive = op.greater(op.reduce_sum(product, keepdims=False), op.const(np.float32(0)))
    [chosen] = op.if_(positive, then_branch=lambda: [op.relu(product)], else_branch=lambda: [op.neg(product)])
    numbers = ml.label_encoder(op.const(np.array(["a", "b"])), keys_strings=["a", "b"], values_int64s=[4, 5])
    model = builder.build({"x": x}, {"chosen": chosen, "numbers": numbers})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    known = numbers._get_value()  # what onnxruntime computed while the graph was built
    return [*(rounded(found) for found in session.run(None, {"x": np.ones((2, 3), np.float32)})), rounded(known)]


def onnxslim() -> Any:
    """A model made smaller, and checked against itself."""
    import onnxslim as slimmer
    import torch

    torch.manual_seed(0)
    layers = [
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 4)).eval()
        torch.onnx.export(
            model, (torch.randn(1, 3, 16, 16),), path, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "N"}}
        )
        slim = slimmer.slim(path, model_check=True, model_check_inputs=["x:2,3,16,16"])
        return [node.op_type for node in slim.graph.node]


CLIENTS = (onnxscript_eager, torch_verification, spox, onnxslim)
PACKAGES = {"onnxscript_eager": "onnxscript", "torch_verification": "torch"}
