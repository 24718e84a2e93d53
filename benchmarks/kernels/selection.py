"""Choosing and sampling elements: NonZero, TopK, suppression, resizing, grids and pools against onnxruntime on one thread.

    python -m benchmarks.kernels.selection [pattern]

Times are those of a session's whole call; all sizes are known only when it runs.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from onnx import parser

from benchmarks.kernels._race import race

SECONDS = 0.5  # for each case


def _cases() -> dict[str, tuple[str, dict[str, Any]]]:
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    corner, size = rng.random((1, 8400, 2)) * 640, rng.random((1, 8400, 2)) * 100 + 10
    boxes = np.concatenate([corner, corner + size], axis=2).astype(np.float32)
    scores = (rng.random((1, 80, 8400)) ** 8).astype(np.float32)
    regions = np.concatenate([corner[0, :100], corner[0, :100] + size[0, :100]], axis=1).astype(np.float32) / 4
    limits = "m = Constant<value=int64[1] {100}>() i = Constant<value=float[1] {0.5}>() t = Constant<value=float[1] {0.25}>()"
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        f"nonzero 512 x 512, {share} of them": (
            "(bool[A,B] x) => (int64[z] y) { y = NonZero(x) }",
            {"x": rng.random((512, 512)) < share},
        )
        for share in (0.01, 0.5)
    }
    cases["compress 100000"] = (
        "(float[A] x, bool[A] c) => (float[z] y) { y = Compress(x, c) }",
        {"x": floats(100000), "c": rng.random(100000) < 0.3},
    )
    for rows, length, k in ((1, 8400, 8), (1, 8400, 300), (1, 200000, 1000), (4, 1000, 1000), (100, 50, 20)):
        cases[f"top {k} of {rows} x {length}"] = (
            f"(float[A,B] x) => (float[z] v, int64[w] i) {{ k = Constant<value=int64[1] {{{k}}}>() v, i = TopK(x, k) }}",
            {"x": floats(rows, length)},
        )
    cases["suppression of 80 x 8400 boxes"] = (
        f"(float[N,B,4] b, float[N,C,B] s) => (int64[z] y) {{ {limits} y = NonMaxSuppression(b, s, m, i, t) }}",
        {"b": boxes, "s": scores},
    )
    for mode in ("nearest", "linear", "cubic"):
        cases[f"resize {mode} 64 x 80 x 80 by 1.5"] = (
            f"""(float[N,64,H,W] x) => (float[z] y) {{
                s = Constant<value_floats=[1.0,1.0,1.5,1.5]>() y = Resize<mode="{mode}">(x, , s)
            }}""",
            {"x": floats(1, 64, 80, 80)},
        )
        cases[f"grid {mode} 64 x 64 x 64"] = (
            f'(float[N,C,H,W] x, float[N,P,Q,2] g) => (float[z] y) {{ y = GridSample<mode="{mode}">(x, g) }}',
            {"x": floats(1, 64, 64, 64), "g": (rng.random((1, 64, 64, 2)) * 2 - 1).astype(np.float32)},
        )
    cases["100 regions of 256 channels"] = (
        """(float[N,C,H,W] x, float[R,4] r, int64[R] b) => (float[z] y) {
            y = RoiAlign<sampling_ratio=2, output_height=7, output_width=7>(x, r, b)
        }""",
        {"x": floats(1, 256, 64, 64), "r": regions, "b": np.zeros(100, np.int64)},
    )
    cases["max pool with places 64 x 112 x 112"] = (
        "(float[N,64,H,W] x) => (float[z] y, int64[w] i) { y, i = MaxPool<kernel_shape=[3,3], strides=[2,2]>(x) }",
        {"x": floats(1, 64, 112, 112)},
    )
    cases["LRN 96 x 55 x 55"] = ("(float[N,C,H,W] x) => (float[z] y) { y = LRN<size=5>(x) }", {"x": floats(1, 96, 55, 55)})
    cases["einsum bihd,bjhd->bhij"] = (
        '(float[B,I,H,D] x, float[B,J,H,D] w) => (float[z] y) { y = Einsum<equation="bihd,bjhd->bhij">(x, w) }',
        {"x": floats(1, 128, 12, 64), "w": floats(1, 128, 12, 64)},
    )
    return cases


def main(pattern: str = "") -> None:
    """Print a line for each case whose name has the pattern."""
    print(f"{'case':44} {'ours':>10} {'onnxruntime':>12} {'ratio':>7}")
    for name, (graph, feeds) in _cases().items():
        if pattern in name:
            model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> graph {graph}')
            for output in model.graph.output:
                output.type.tensor_type.ClearField("shape")
            ours, theirs = race(model.SerializeToString(), feeds, SECONDS)
            print(f"{name:44} {ours * 1e6:8.1f}us {theirs * 1e6:10.1f}us {theirs / ours:7.2f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
