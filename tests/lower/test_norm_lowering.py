"""Normalisations, natively against their NumPy meaning, alone and with their neighbours in one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper

from lowering_case import F16, F32, F64, TOLERANCE, Array, model
from native_support import assert_native_agrees, compile_native, run_native
from sardonyx.program.steps import KernelStep

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DTYPES = pytest.mark.parametrize("dtype", [F32, F64, F16], ids=str)
NARROW = pytest.mark.parametrize("dtype", [F32, F16], ids=str)


def numbers(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) * 2 + 1).astype(dtype)


def check(
    nodes: list[NodeProto], feeds: dict[str, Array], outputs: dict[str, Any], opset: int = 21, symbolic: bool = False
) -> None:
    tolerance = 4 * TOLERANCE[feeds["x"].dtype]
    assert_native_agrees(model(nodes, feeds, outputs, opset=opset, symbolic=symbolic), feeds, rtol=tolerance, atol=tolerance)


def labels(nodes: list[NodeProto], feeds: dict[str, Array], outputs: dict[str, Any]) -> list[str]:
    _, compiled = compile_native(model(nodes, feeds, outputs, opset=21).SerializeToString())
    return [step.label for step in compiled.lowered.steps if isinstance(step, KernelStep)]


@DTYPES
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((4, 768), -1), ((3, 5, 1301), -1), ((2, 3, 40), -1), ((2, 3, 40), 1), ((3, 5), 0), ((2, 3, 4, 5), 2), ((3, 1), 1)],
)
def test_layer_and_rms_normalization(shape: tuple[int, ...], axis: int, dtype: np.dtype[Any]) -> None:
    x, s, b = numbers(dtype, shape), numbers(dtype, shape[axis:], 1), numbers(dtype, shape[axis:], 2)
    layer, rms = "LayerNormalization", "RMSNormalization"
    feeds = {"x": x, "s": s, "b": b}
    check([helper.make_node(layer, ["x", "s", "b"], ["y"], axis=axis)], feeds, {"y": dtype}, symbolic=True)
    two = {"x": x, "s": s}
    check([helper.make_node(layer, ["x", "s"], ["y", "m", "i"], axis=axis)], two, {"y": dtype, "m": F32, "i": F32})
    check([helper.make_node(rms, ["x", "s"], ["y"], axis=axis, epsilon=0.01)], two, {"y": dtype}, opset=23)
    last = {"x": x, "s": numbers(dtype, shape[-1:], 3)}
    check([helper.make_node(layer, ["x", "s"], ["y"], axis=axis)], last, {"y": dtype})


@NARROW
@pytest.mark.parametrize("shape", [(3, 70), (2, 3, 70), (5, 777)])
def test_forms_of_onnxruntime(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    rows = {name: numbers(dtype, shape[-1:], seed) for seed, name in enumerate(("g", "be", "bi"), 1)}
    feeds = {"x": numbers(dtype, shape), "k": numbers(dtype, shape, 5), **rows}
    skip, simple = "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"
    domain = "com.microsoft"
    check(
        [helper.make_node(skip, ["x", "k", "g", "be", "bi"], ["y", "", "", "t"], domain=domain)], feeds, {"y": dtype, "t": dtype}
    )
    check([helper.make_node(skip, ["x", "k", "g", "be", "bi"], ["y"], domain=domain)], feeds, {"y": dtype})
    few = {name: feeds[name] for name in ("x", "k", "g")}
    check([helper.make_node(simple, ["x", "k", "g"], ["y", "", "", "t"], domain=domain)], few, {"y": dtype, "t": dtype})
    plain = {name: feeds[name] for name in ("x", "g")}
    check([helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["y"], axis=-1)], plain, {"y": dtype})


@DTYPES
@pytest.mark.parametrize("shape", [(2, 6, 40), (2, 6, 5, 7), (1, 4, 3, 3, 3), (2, 4, 29, 31)])
def test_normalization_by_channels(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    channels = shape[1]
    feeds = {"x": numbers(dtype, shape), "s": numbers(dtype, (channels,), 1), "b": numbers(dtype, (channels,), 2)}
    check([helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"])], feeds, {"y": dtype})
    groups = [helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)]
    check(groups, feeds, {"y": dtype})
    assert labels(groups, feeds, {"y": dtype}) == ["GroupNormalization"]
    by_group = {"x": feeds["x"], "s": feeds["s"][:2], "b": feeds["b"][:2]}
    check([helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)], by_group, {"y": dtype}, opset=18)
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("GroupNormalization", ["a", "s", "b"], ["c"], num_groups=2),
        helper.make_node("Add", ["c", "x"], ["y"]),
    ]
    check(nodes, feeds, {"y": dtype, "a": dtype})
    statistics = {**feeds, "m": numbers(dtype, (channels,), 3), "v": np.abs(numbers(dtype, (channels,), 4))}
    nodes = [helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    check(nodes, statistics, {"y": dtype}, symbolic=True)
    assert labels(nodes, statistics, {"y": dtype}) == ["BatchNormalization+Relu"]


@DTYPES
@pytest.mark.parametrize("axes", [(0, 2, 3), (1,), (2, 3), (0, 1), (0, 1, 2, 3)])
def test_mean_and_variance_over_any_axes(axes: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    x = numbers(dtype, (2, 6, 5, 7))
    check([helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=axes)], {"x": x}, {"y": dtype})


@DTYPES
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [1, -1])
def test_a_row_of_zeros_has_no_norm_and_stays(axis: int, p: int, dtype: np.dtype[Any]) -> None:
    x = numbers(dtype, (3, 6, 20))
    x[0] = 0
    check([helper.make_node("LpNormalization", ["x"], ["y"], axis=axis, p=p)], {"x": x}, {"y": dtype})


@NARROW
@pytest.mark.parametrize("escapes", [False, True])
def test_a_residual_sum_an_activation_and_a_normalization_are_one_kernel(escapes: bool, dtype: np.dtype[Any]) -> None:
    x, r = numbers(dtype, (4, 100)), numbers(dtype, (4, 100), 1)
    feeds = {"x": x, "r": r, "s": numbers(dtype, (100,), 2), "b": numbers(dtype, (100,), 3)}
    nodes = [
        helper.make_node("Add", ["x", "r"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["c"]),
        helper.make_node("LayerNormalization", ["c", "s", "b"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("Add", ["e", "r"], ["y"]),
    ]
    outputs = {"y": dtype, "c": dtype, "a": dtype} if escapes else {"y": dtype}
    check(nodes, feeds, outputs)
    assert labels(nodes, feeds, outputs) == ["Add+Sigmoid+LayerNormalization+Relu+Add"]


def test_the_variance_of_large_numbers_keeps_its_digits() -> None:
    x = (np.random.default_rng(0).standard_normal((3, 500)) + 10_000).astype(np.float32)
    feeds = {"x": x, "s": np.ones(500, np.float32)}
    nodes = [helper.make_node("LayerNormalization", ["x", "s"], ["y"])]
    graph, compiled = compile_native(model(nodes, feeds, {"y": F32}, opset=21).SerializeToString())
    (actual,) = run_native(graph, compiled, feeds)
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / exact.std(1, keepdims=True)
    np.testing.assert_allclose(actual, exact, atol=3e-3)  # the mean itself is rounded to a thousandth


@pytest.mark.parametrize(("shape", "copied"), [((1, 96, 20, 21), True), ((2, 65, 80), True), ((3, 5, 7), False)])
def test_rows_of_a_transposed_tensor_are_brought_into_order_first(shape: tuple[int, ...], copied: bool) -> None:
    axes = [0, *range(2, len(shape)), 1]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=axes),
        helper.make_node("LayerNormalization", ["t", "s", "b"], ["y"], axis=-1),
    ]
    feeds = {"x": numbers(F32, shape), "s": numbers(F32, (shape[1],), 1), "b": numbers(F32, (shape[1],), 2)}
    check(nodes, feeds, {"y": F32})
    assert ("copy" in labels(nodes, feeds, {"y": F32})) is copied


@pytest.mark.parametrize("size", [7, 768])
def test_rows_that_lie_apart(size: int) -> None:
    """Reading such a row branches, by how far its elements are apart."""
    feeds = {"x": numbers(F32, (1, size, 7, 7)), "scale": numbers(F32, (size,), 1)}
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1])]
    nodes.append(helper.make_node("LayerNormalization", ["t", "scale"], ["y"]))
    for symbolic in (False, True):
        check(nodes, feeds, {"y": F32}, symbolic=symbolic)
