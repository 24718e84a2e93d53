"""Gradients of records: by our rules, by finite differences, by PyTorch, by compiled programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import torch

from gradient_records import Record
from pass_support import evaluate
from sardonyx.formats.loading import load
from sardonyx.ir.graph import Model, Value
from sardonyx.training.differentiate import differentiate
from sardonyx.training.step_program import GradientRequest, TrainingOptions, TrainingProgram

Array = np.ndarray[Any, Any]
NAMES = "abcde"
_STEP = 1e-5


def model_of(record: Record, kind: str = "double", symbolic: bool = False) -> Model:
    """The record's graph, with inputs of a kind of float; with `symbolic`, the first axis of `a` is open."""
    parts = []
    for name, shape in zip(NAMES, record.shapes):
        sizes = [str(size) for size in shape]
        if symbolic and name == "a" and sizes:
            sizes[0] = "N"
        parts.append(f"{kind}{_brackets(sizes)} {name}")
    for name, data in record.integers.items():
        element = {"bool": "bool", "int64": "int64", "int32": "int32", "float64": kind}[data.dtype.name]
        parts.append(f"{element}{_brackets([str(size) for size in data.shape])} {name}")
    text = record.nodes.replace("double", kind).replace("to=11", "to=11" if kind == "double" else "to=1")
    imports = f'["": {record.opset}, "com.microsoft": 1, "sardonyx": 1]'
    proto = onnx.parser.parse_model(
        f"<ir_version: 10, opset_import: {imports}> graph ({', '.join(parts)}) => ({kind}[M] y) {{ {text} }}"
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return load(proto.SerializeToString())


def _brackets(sizes: list[str]) -> str:
    return f"[{','.join(sizes)}]" if sizes else ""


def arrays_of(record: Record, seed: int = 0) -> dict[str, Array]:
    """Inputs for a record, in float64."""
    rng = np.random.default_rng(seed)
    made = {name: np.asarray(record.make(rng, shape), np.float64) for name, shape in zip(NAMES, record.shapes)}
    return {**made, **record.integers}


def rule_gradients(record: Record, feeds: dict[str, Array], dy: Array) -> dict[str, Array | None]:
    """The gradients by our rules, computed by NumPy in float64."""
    model = model_of(record)
    graph = model.graph
    inputs = [value for value in graph.inputs if value.name in NAMES]
    output = graph.outputs[0]

    seed = Value("seed", output.type)
    found = differentiate(graph, [output], inputs, [seed])
    graph.inputs.append(seed)
    kept = [(value.name, gradient) for value, gradient in zip(inputs, found.inputs)]
    graph.outputs[:] = [gradient for _, gradient in kept if gradient is not None]
    names = [name for name, gradient in kept if gradient is not None]
    results = evaluate(model, {**feeds, "seed": dy})
    return {**dict.fromkeys(value.name for value in inputs), **dict(zip(names, results))}


def output_of(record: Record, feeds: dict[str, Array]) -> Array:
    """The result of a record, by NumPy."""
    return np.asarray(evaluate(model_of(record), feeds)[0])


def slope_along(record: Record, feeds: dict[str, Array], dy: Array, name: str, direction: Array) -> float:
    """The derivative of sum(dy * y) as one input moves in a direction, by finite differences."""
    values = []
    for sign in (1, -1):
        moved = {**feeds, name: feeds[name] + sign * _STEP * direction}
        values.append(float((dy * output_of(record, moved)).sum()))
    return (values[0] - values[1]) / (2 * _STEP)


def torch_gradients(record: Record, feeds: dict[str, Array], dy: Array) -> tuple[Array, dict[str, Array | None]]:
    """What PyTorch computes: the result and the gradients."""
    assert record.torch is not None
    floats = {name: torch.tensor(feeds[name], requires_grad=True) for name in NAMES[: len(record.shapes)]}
    others = {name: torch.tensor(feeds[name]) for name in record.integers}
    y = record.torch(*floats.values(), *others.values())
    y.backward(torch.tensor(dy))
    return y.detach().numpy(), {name: None if x.grad is None else x.grad.numpy() for name, x in floats.items()}


def compiled(record: Record, symbolic: bool = True) -> TrainingProgram:
    """The record's training program, in float32."""
    model = model_of(record, "float", symbolic)
    inputs = tuple(value.name for value in model.graph.inputs if value.name in NAMES)
    return TrainingProgram(model, GradientRequest(("y",), inputs), TrainingOptions())


def narrowed(array: Array) -> Array:
    """An array as a compiled program takes it."""
    return array.astype(np.float32) if array.dtype == np.float64 else array
