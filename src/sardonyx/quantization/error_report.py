"""What quantization costs, layer by layer: signal-to-quantization-noise ratios (SQNR) in decibels.

    for layer in layer_errors("model.onnx", "model.int8.onnx", feeds):
        print(layer.name, layer.weight, layer.output)

A weight's error is that of its numbers; an output's is that of the activation in the quantized model, with what was lost
in the layers before. 20 dB is a noise of a tenth of the signal, 40 dB of a hundredth.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ir.tensor import Tensor, unpack
from sardonyx.ir.types import TensorType
from sardonyx.mapped_file import release_range
from sardonyx.quantization import arithmetic, blocks
from sardonyx.quantization.base_quantizer import REAL
from sardonyx.quantization.models import dense, read_model
from sardonyx.records import dataclass
from sardonyx.session.inference_session import InferenceSession

Array = NDArray[Any]
_LEAST: Final = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class LayerError:
    """The errors of one node of the original model: of its weight and of its output; None where there is none to tell."""

    name: str
    op_type: str
    weight: float | None
    output: float | None


def layer_errors(original: str | Path, quantized: str | Path, feeds: Iterable[Mapping[str, Any]] = ()) -> list[LayerError]:
    """The errors of all nodes that have a quantized weight or, if there are feeds, an output that can be compared."""
    model, smaller = read_model(original), read_model(quantized)
    weights = weight_errors(model, smaller)
    outputs = output_errors(original, quantized, model, smaller, feeds)
    found = []
    for node in model.graph.nodes:
        own = [weights[value.name] for value in node.inputs if value is not None and value.name in weights]
        output = outputs.get(node.outputs[0].name) if node.outputs else None
        if own or output is not None:
            found.append(LayerError(node.name or node.outputs[0].name, node.op_type, min(own, default=None), output))
    return found


def decibels(signal: float, noise: float) -> float:
    """The ratio of two powers; infinite if there is no noise."""
    if noise <= 0:
        return math.inf
    return 10 * math.log10(max(signal, _LEAST) / noise)


def weight_errors(original: Model, quantized: Model) -> dict[str, float]:
    """The SQNR of each constant that is quantized, by its name in the original model; one is looked at after another."""
    names = {value.name: value for value in original.graph.initializers.values()}
    found: dict[str, float] = {}
    for name, decode in _quantized_constants(quantized.graph):
        source = dense(names.get(name))
        if source is None or source.dtype not in (*REAL, dtypes.BFLOAT16) or name in found:
            continue
        data = source.numpy()
        real = decode()
        if real.size == data.size:
            found[name] = _ratio(data, real)
        release_range(data)
    return found


def _ratio(data: Array, real: Array) -> float:
    """The SQNR of a weight, which the quantized model may have transposed (Gemm) or without leading ones."""
    exact = data.astype(np.float64)
    forms = [real.reshape(data.shape)] if real.ndim != 2 or real.shape == data.shape or data.ndim != 2 else []
    if real.ndim == data.ndim == 2 and real.shape == data.shape[::-1]:
        forms.append(real.T)
    signal = float((exact**2).sum())
    return max((decibels(signal, float(((form - exact) ** 2).sum())) for form in forms), default=-math.inf)


def _quantized_constants(graph: Graph) -> Iterable[tuple[str, Any]]:
    """The names that quantized constants had, and functions that give their real numbers."""
    for node in graph.nodes:
        if node.op_type == "MatMulNBits" and dense(node.inputs[1]) is not None:
            yield _original_name(node.inputs[1], ("_Q", "_DQ_Q")), lambda node=node: _block_numbers(node)
        elif node.op_type == "DequantizeLinear" and dense(node.inputs[0]) is not None:
            yield _original_name(node.inputs[0], ("_DQ_Q", "_quantized")), lambda node=node: _dequantized(node)
    for name, value in graph.initializers.items():
        if name.endswith("_quantized") and not any(node.op_type == "DequantizeLinear" for node in value.consumers):
            base = name.removesuffix("_quantized")
            scale, zero = (dense(graph.initializers.get(f"{base}{end}")) for end in ("_scale", "_zero_point"))
            held = dense(value)
            if held is not None and scale is not None and zero is not None and held.dtype is not dtypes.INT32:
                yield base, lambda parts=(held, scale, zero): _with_parameters(*parts)


def _original_name(value: Value | None, endings: tuple[str, ...]) -> str:
    name = "" if value is None else value.name
    for ending in endings:
        base, found, rest = name.rpartition(ending)
        if found and (not rest or rest[0].isdigit() or rest[0] == "G"):
            return base
    return name


def _block_numbers(node: Node) -> Array:
    """The weight [K, N] of a MatMulNBits."""
    codes, scales = (dense(value) for value in node.inputs[1:3])
    zeros = dense(node.inputs[3]) if len(node.inputs) > 3 else None
    assert codes is not None
    assert scales is not None
    bits, rows, columns = (int(node.attr(name, default)) for name, default in (("bits", 4), ("K", 0), ("N", 0)))
    count = arithmetic.block_count(rows, int(node.attr("block_size", 32)))
    found = blocks.BlockMatrix(
        _elements(codes.numpy(), bits).reshape(columns, count, -1),
        scales.numpy().astype(np.float32).reshape(columns, count),
        None if zeros is None else _zeros(zeros, bits, columns, count),
    )
    return blocks.dequantize_blocks(found, bits, rows)


def _zeros(zeros: Tensor, bits: int, columns: int, count: int) -> Array:
    if zeros.dtype is not dtypes.UINT8:
        return zeros.numpy().astype(np.float32).reshape(columns, count)
    return _elements(zeros.numpy(), bits).reshape(columns, -1)[:, :count]


def _elements(packed: Array, bits: int) -> Array:
    """Numbers of few bits out of bytes, low bits first."""
    if bits == 8:
        return packed
    dtype = dtypes.UINT4 if bits == 4 else dtypes.UINT2
    return unpack(packed.reshape(-1), dtype, packed.size * 8 // bits).astype(np.uint8)


def _dequantized(node: Node) -> Array:
    data, scale = (dense(value) for value in node.inputs[:2])
    zero = dense(node.inputs[2]) if len(node.inputs) > 2 else None
    assert data is not None
    if scale is None:
        return np.zeros(0, np.float32)
    axis = int(node.attr("axis", 1)) % max(len(data.shape), 1)
    scales, zeros = scale.numpy(), None if zero is None else zero.numpy()
    if scales.size == 1:
        scales, zeros = scales.reshape(()), None if zeros is None else zeros.reshape(())
    return arithmetic.dequantize(data.numpy(), zeros, scales, axis, int(node.attr("block_size", 0)))


def _with_parameters(data: Tensor, scale: Tensor, zero: Tensor) -> Array:
    """A weight of an integer operator: whole, or by channels along the axis that has as many."""
    scales, zeros, numbers = scale.numpy(), zero.numpy(), data.numpy()
    if scales.size == 1:
        return arithmetic.dequantize(numbers, zeros.reshape(()), scales.reshape(()))
    if scales.ndim != 1:
        return np.zeros(0, np.float32)
    axes = [axis for axis in (0, numbers.ndim - 1) if numbers.shape[axis] == scales.size]
    if not axes:
        return np.zeros(0, np.float32)
    return arithmetic.dequantize(numbers, zeros, scales, axes[0] if numbers.ndim > 2 else axes[-1])


def output_errors(
    original: str | Path, quantized: str | Path, model: Model, smaller: Model, feeds: Iterable[Mapping[str, Any]]
) -> dict[str, float]:
    """The SQNR of the activations that both models have, by name, over all feeds."""
    pairs = _comparable(model.graph, smaller.graph)
    samples = list(feeds)
    if not pairs or not samples:
        return {}
    sessions = [InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"]) for path in (original, quantized)]
    signal, noise = dict.fromkeys(pairs, 0.0), dict.fromkeys(pairs, 0.0)
    for feed in samples:
        exact = sessions[0].run([pair.original for pair in pairs.values()], dict(feed))
        rounded = sessions[1].run([pair.fetched for pair in pairs.values()], dict(feed))
        for (name, pair), left, right in zip(pairs.items(), exact, rounded):
            real = right if pair.scale is None else arithmetic.dequantize(right, pair.zero, pair.scale)
            if left.shape == real.shape:
                difference = left.astype(np.float64) - real.astype(np.float64)
                signal[name] += float((left.astype(np.float64) ** 2).sum())
                noise[name] += float((difference**2).sum())
    return {name: decibels(signal[name], noise[name]) for name in pairs}


@dataclass(frozen=True)
class _Pair:
    """An activation of the original model, and what to fetch of the quantized one; with parameters if that is quantized."""

    original: str
    fetched: str
    scale: Array | None = None
    zero: Array | None = None


def _comparable(graph: Graph, smaller: Graph) -> dict[str, _Pair]:
    """By the name of a node's output: what to compare.

    A Relu or Clip may have become part of the node before, whose output has its range then.
    """
    there = {value.name for node in smaller.nodes for value in node.outputs}
    kept = {node.name for node in smaller.nodes if node.op_type in ("Relu", "Clip")}
    found: dict[str, _Pair] = {}
    for node in graph.nodes:
        value = node.outputs[0] if node.outputs else None
        if value is None or not isinstance(value.type, TensorType) or value.type.dtype not in REAL:
            continue
        readers = value.consumers
        is_cut = len(readers) == 1 and readers[0].op_type in ("Relu", "Clip") and readers[0].name not in kept
        shown = readers[0].outputs[0].name if is_cut and readers[0].name else value.name
        pair = _pair(shown, value.name, there, smaller)
        is_absorbed = node.op_type in ("Relu", "Clip") and node.name and node.name not in kept
        if pair is not None and not is_absorbed:
            found[value.name] = pair
    return found


def _pair(shown: str, name: str, there: set[str], smaller: Graph) -> _Pair | None:
    """How an activation is found in the quantized model: as reals, or as integers with a scale."""
    for each in dict.fromkeys((shown, name)):
        fetched = next((known for known in (f"{each}_DequantizeLinear_Output", each) if known in there), None)
        if fetched is not None:
            return _Pair(shown, fetched)
        scale, zero = (dense(smaller.initializers.get(f"{each}{end}")) for end in ("_scale", "_zero_point"))
        if f"{each}_quantized" in there and scale is not None and zero is not None and scale.size == 1:
            return _Pair(shown, f"{each}_quantized", scale.numpy().reshape(()), zero.numpy().reshape(()))
    return None
