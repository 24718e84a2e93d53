"""Operators with kernels of their own while all memory is guarded: results, scratch memory and tables, too, not only inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from guarded_session import guarded_feeds, guarded_memory
from model_text import model
from native_support import compile_native, host_nodes, run_native, run_reference
from sardonyx.ir.tensor import Array

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def constants(**values: str) -> str:
    return " ".join(f"{name} = Constant<value = {value}>()" for name, value in values.items())


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "NonZero": ("(float[A,B,C] x) => (int64[z] y) { y = NonZero(x) }", {"x": (floats(3, 50, 17) > 0.5).astype(np.float32)}),
    "NonZero of nothing": ("(float[A,B] x) => (int64[z] y) { y = NonZero(x) }", {"x": np.zeros((5, 7), np.float32)}),
    "Compress": (
        "(float[A,B] x, bool[A] c) => (float[z] y) { y = Compress<axis=0>(x, c) }",
        {"x": floats(37, 5), "c": RNG.random(37) < 0.5},
    ),
    "TopK of few": (
        f"(float[A,B] x) => (float[z] v, int64[w] i) {{ {constants(k='int64[1] {5}')} v, i = TopK(x, k) }}",
        {"x": floats(7, 75)},
    ),
    "TopK of many": (
        "(double[A,B] x, int64[1] k) => (double[z] v, int64[w] i) { v, i = TopK<axis=0, largest=0>(x, k) }",
        {"x": floats(75, 20).astype(np.float64), "k": np.array([70])},
    ),
    "MaxPool with places": (
        "(float[N,3,H,W] x) => (float[z] y, int64[w] i) { y, i = MaxPool<kernel_shape=[3,2], strides=[2,1], pads=[1,1,1,0]>(x) }",
        {"x": floats(2, 3, 9, 19)},
    ),
    **{
        f"RoiAlign of {channels} channels": (
            """(float[N,C,H,W] x, float[R,4] r, int64[R] b) => (float[z] y) {
                y = RoiAlign<output_height=3, output_width=5, sampling_ratio=2>(x, r, b)
            }""",
            {"x": floats(2, channels, 9, 11), "r": np.abs(floats(7, 4)) * 6, "b": RNG.integers(0, 2, 7)},
        )
        for channels in (1, 37, 64)
    },
    "GridSample of many channels": (
        "(float[N,37,H,W] x, float[N,P,Q,2] g) => (float[z] y) { y = GridSample(x, g) }",
        {"x": floats(2, 37, 9, 11), "g": floats(2, 3, 5, 2)},
    ),
    "LpPool": ("(float[N,3,H,W] x) => (float[z] y) { y = LpPool<kernel_shape=[3,3], p=3>(x) }", {"x": floats(2, 3, 9, 37)}),
    "LRN": ("(float[N,C,H,W] x) => (float[z] y) { y = LRN<size=3>(x) }", {"x": floats(2, 7, 5, 7)}),
    "Einsum": (
        '(float[B,I,H,D] x, float[B,J,H,D] w) => (float[z] y) { y = Einsum<equation="bihd,bjhd->bhij">(x, w) }',
        {"x": floats(2, 5, 3, 19), "w": floats(2, 7, 3, 19)},
    ),
    "NonMaxSuppression": (
        f"""(float[N,B,4] b, float[N,C,B] s) => (int64[z] y) {{
            {constants(m="int64[1] {4}", i="float[1] {0.3}", t="float[1] {0.2}")} y = NonMaxSuppression(b, s, m, i, t)
        }}""",
        {"b": floats(2, 33, 4), "s": RNG.random((2, 21, 33)).astype(np.float32)},
    ),
    "MatMulInteger": (
        "(uint8[M,K] a, int8[K,N] b, uint8[M] p) => (int32[z] y) { y = MatMulInteger(a, b, p) }",
        {
            "a": RNG.integers(0, 256, (5, 33)).astype(np.uint8),
            "b": RNG.integers(-128, 128, (33, 19)).astype(np.int8),
            "p": RNG.integers(0, 256, 5).astype(np.uint8),
        },
    ),
    "GridSample": (
        '(float[N,C,H,W] x, float[N,P,Q,2] g) => (float[z] y) { y = GridSample<padding_mode="reflection">(x, g) }',
        {"x": floats(2, 3, 5, 6), "g": floats(2, 3, 7, 2)},
    ),
    "AffineGrid": (
        "(float[N,2,3] t, float[N,C,H,W] x) => (float[z] y) { s = Shape(x) y = AffineGrid(t, s) }",
        {"t": floats(2, 2, 3), "x": floats(2, 1, 5, 7)},
    ),
    "RoiAlign": (
        """(float[N,C,H,W] x, float[R,4] r, int64[R] b) => (float[z] y) {
            y = RoiAlign<sampling_ratio=2, output_height=3, output_width=3>(x, r, b)
        }""",
        {"x": floats(2, 3, 8, 7), "r": floats(5, 4) * 8, "b": np.array([0, 1, 1, 0, 1])},
    ),
    **{
        f"Resize {mode}": (
            f'(float[N,C,H,W] x, float[A,B] l) => (float[z] y) {{ s = Shape(l) y = Resize<mode="{mode}",axes=[2,3]>(x,,,s) }}',
            {"x": floats(2, 3, 7, 9), "l": floats(11, 5)},
        )
        for mode in ("nearest", "linear", "cubic")
    },
}  # fmt: skip


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_nothing_outside_is_touched(case: str, at_start: bool) -> None:
    text, feeds = CASES[case]
    graph, compiled = compile_native(model(text))
    assert not host_nodes(compiled)
    with guarded_memory(at_start) as guard:
        results = [np.array(result) for result in run_native(graph, compiled, guarded_feeds(guard, feeds))]
    for actual, expected in zip(results, run_reference(model(text), feeds)):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
