"""Convolutions of bytes against the NumPy meaning of their operators: groups, strides, borders, zero points, targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

from guarded import guarded
from lowering_case import model
from native_support import assert_native_agrees, compile_native, run_native
from sardonyx.ir.tensor import Array
from sardonyx.kernel.loops import LoopKernel
from sardonyx.kernel.matmul.int8 import Int8MatMulKernel
from sardonyx.kernel.quant.windows import QuadWindowKernel, has_quad_windows
from sardonyx.program.steps import KernelStep
from targets import here, names_here

TARGETS = st.sampled_from(names_here())
BYTES = st.sampled_from([np.uint8, np.int8])
# group, channels of a group, kernels of a group
GROUPS = st.sampled_from([(1, 3, 5), (1, 4, 17), (1, 16, 70), (2, 5, 3), (3, 4, 20), (9, 1, 1), (33, 1, 1), (4, 1, 2), (1, 1, 1)])
SMALL = st.integers(1, 3)


def integers(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Array:
    limits = np.iinfo(dtype)
    found = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
    extreme = rng.random(shape) < 0.3
    return np.where(extreme, rng.choice(np.array([limits.min, limits.max], dtype), shape), found)


def image(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...], last: bool) -> Array:
    return integers(rng, dtype, (shape[0], *shape[2:], shape[1]) if last else shape)


@settings(max_examples=150, deadline=None)
@given(
    types=st.tuples(BYTES, BYTES, BYTES),
    groups=GROUPS,
    window=st.tuples(SMALL, SMALL),
    strides=st.tuples(SMALL, SMALL),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    sizes=st.tuples(st.integers(1, 2), st.integers(1, 9), st.integers(1, 11)),
    columnwise=st.booleans(),
    zero=st.sampled_from(["zero", "one", "each"]),
    bias=st.booleans(),
    form=st.sampled_from(["last", "front", "computed"]),
    target=TARGETS,
    seed=st.integers(0, 99),
)
def test_quantized_convolutions(
    types: tuple[Any, Any, Any],
    groups: tuple[int, int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, int, int, int],
    sizes: tuple[int, int, int],
    columnwise: bool,
    zero: str,
    bias: bool,
    form: str,
    target: str,
    seed: int,
) -> None:
    batch, *spatial = sizes
    for size, width, apart, first, last in zip(spatial, window, dilations, pads[:2], pads[2:]):
        assume(size + first + last >= (width - 1) * apart + 1)
    rng = np.random.default_rng(seed)
    count, channels, each = groups
    kernels = count * each
    inputs = {
        "x": image(rng, types[0], (batch, count * channels, *spatial), form == "last"),
        "xs": np.array(0.013, np.float32),
        "xz": integers(rng, types[0], ()),
        "w": integers(rng, types[1], (kernels, channels, *window)),
        "ws": (rng.random(kernels if columnwise else 1) * 0.1 + 1e-4).astype(np.float32),
        "wz": np.zeros((), types[1]) if zero == "zero" else integers(rng, types[1], (kernels,) if zero == "each" else (1,)),
        "ys": np.array(0.7, np.float32),
        "yz": integers(rng, types[2], ()),
    }
    if bias:
        inputs["b"] = rng.integers(-5000, 5000, kernels).astype(np.int32)
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads, "group": count, "kernel_shape": window}
    domain = ""
    if form == "last":
        domain, attrs["channels_last"] = "com.microsoft", 1
    fixed = {} if form == "computed" else {name: array for name, array in inputs.items() if name != "x"}
    feeds = {name: guarded(array) for name, array in inputs.items() if name not in fixed}
    node = helper.make_node("QLinearConv", list(inputs), ["y"], domain=domain, **attrs)
    made = model([node], feeds, {"y": types[2]}, constants=fixed, opset=21)
    assert_native_agrees(made, feeds, target=target)


@settings(max_examples=40, deadline=None)
@given(
    types=st.tuples(BYTES, BYTES),
    groups=GROUPS,
    rank=st.integers(1, 3),
    zeros=st.tuples(st.booleans(), st.sampled_from(["none", "one", "each"])),
    constant=st.booleans(),
    symbolic=st.booleans(),
    seed=st.integers(0, 99),
)
def test_sums_of_convolutions_of_every_rank(
    types: tuple[Any, Any],
    groups: tuple[int, int, int],
    rank: int,
    zeros: tuple[bool, str],
    constant: bool,
    symbolic: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    count, channels, each = groups
    inputs = {
        "x": integers(rng, types[0], (2, count * channels, *(7, 6, 5)[:rank])),
        "w": integers(rng, types[1], (count * each, channels, *(3, 2, 3)[:rank])),
    }
    if zeros[0] or zeros[1] != "none":
        inputs["xz"] = integers(rng, types[0], ())
    if zeros[1] != "none":
        inputs["wz"] = integers(rng, types[1], (count * each,) if zeros[1] == "each" else ())
    fixed = {name: array for name, array in inputs.items() if name in ("w", "wz")} if constant else {}
    feeds = {name: guarded(array) for name, array in inputs.items() if name not in fixed}
    node = helper.make_node("ConvInteger", list(inputs), ["y"], group=count, pads=[1, 1, 0, 1, 0, 2][: 2 * rank])
    made = model([node], feeds, {"y": np.int32}, constants=fixed, opset=21, symbolic=symbolic and constant)
    assert_native_agrees(made, feeds)


def _layer(groups: int) -> tuple[Any, dict[str, Array]]:
    rng = np.random.default_rng(0)
    constants: dict[str, Array] = {
        "s": np.array(0.02, np.float32),
        "z": np.array(7, np.uint8),
        "w": integers(rng, np.int8, (32, 32 // groups, 3, 3)),
        "ws": (rng.random(32) * 0.01).astype(np.float32),
        "wz": np.zeros(32, np.int8),
    }
    feeds = {"x": integers(rng, np.uint8, (1, 14, 14, 32)), "r": integers(rng, np.uint8, (1, 14, 14, 32))}
    attrs = {"channels_last": 1, "group": groups, "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "s", "z"], ["c"], domain="com.microsoft", **attrs),
        helper.make_node("QLinearAdd", ["c", "s", "z", "r", "s", "z", "s", "z"], ["y"], domain="com.microsoft"),
    ]
    return model(nodes, feeds, {"y": np.uint8}, constants=constants, opset=21), feeds


OF_CHANNELS = QuadWindowKernel if has_quad_windows(here()) else LoopKernel


@pytest.mark.parametrize(("groups", "kernel"), [(1, Int8MatMulKernel), (2, Int8MatMulKernel), (32, OF_CHANNELS)])
def test_a_sum_that_follows_is_part_of_the_kernel(groups: int, kernel: type[Any]) -> None:
    made, feeds = _layer(groups)
    assert_native_agrees(made, feeds)
    _, compiled = compile_native(made.SerializeToString())
    labels = [step for step in compiled.lowered.steps if isinstance(step, KernelStep) and step.label == "QLinearConv+QLinearAdd"]
    assert [type(step.kernel) for step in labels] == [kernel]


@pytest.mark.parametrize("groups", [1, 2, 32])
def test_bits_do_not_depend_on_the_number_of_workers(groups: int) -> None:
    made, feeds = _layer(groups)
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(made.SerializeToString(), workers)
        results.append(run_native(graph, compiled, feeds)[0].tobytes())
    assert results[0] == results[1] == results[2]
