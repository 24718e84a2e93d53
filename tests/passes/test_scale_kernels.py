"""Convolutions that scale their kernels give what those of scaled images gave."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import sardonyx as sx
from conv_support import model as proto
from conv_support import numbers
from guarded_session import guarded_feeds, guarded_memory
from native_support import run_reference
from pass_support import operators
from sardonyx.formats.onnx import load
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.scale_kernels import ScaleKernels


def squeezed(channels: int, outputs: int, side: int, batch: int | str = 1, reads: tuple[str, ...] = ("y",)) -> bytes:
    """Depthwise convolution, squeeze-and-excite, pointwise convolution."""
    nodes = [
        helper.make_node("Conv", ["x", "d"], ["c"], group=channels, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["m"]),
        helper.make_node("Conv", ["m", "e"], ["h"]),
        helper.make_node("HardSigmoid", ["h"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["scaled"]),
        helper.make_node("Conv", ["scaled", "w", "b"], ["y"]),
    ]
    constants = {
        "d": numbers(1, channels, 1, 3, 3),
        "e": numbers(2, channels, channels, 1, 1),
        "w": numbers(3, outputs, channels, 1, 1),
        "b": numbers(4, outputs),
    }
    content: bytes = proto(nodes, {"x": (batch, channels, side, side)}, constants, reads).SerializeToString()
    return content


@pytest.mark.parametrize(
    ("channels", "outputs", "side", "batch", "reads", "changes"),
    [
        (32, 16, 80, 1, ("y",), 1),
        (40, 24, 64, 1, ("y",), 1),
        (19, 5, 90, 1, ("y",), 1),
        (40, 40, 60, 1, ("y",), 1),
        (32, 16, 20, 1, ("y",), 0),  # few pixels
        (240, 112, 28, 1, ("y",), 0),  # many outputs
        (32, 16, 80, 2, ("y",), 0),
        (32, 16, 80, "N", ("y",), 0),
        (32, 16, 80, 1, ("y", "scaled"), 0),
    ],
)
def test_results_stay_the_same(
    channels: int, outputs: int, side: int, batch: int | str, reads: tuple[str, ...], changes: int
) -> None:
    content = squeezed(channels, outputs, side, batch, reads)
    changed = load(content)
    infer_from_inputs(changed)
    assert ScaleKernels().run(changed).changes == changes
    assert operators(changed).count("Mul") == 1
    x = numbers(0, batch if isinstance(batch, int) else 3, channels, side, side)
    x[0, 1, 2, 3], x[0, 2, 5, 7] = np.inf, np.nan  # what they reach, the means among it, is not a number either way
    for values in (np.nan_to_num(x, posinf=1.0), x):
        session = sx.InferenceSession(content)
        with guarded_memory() as guard:
            results = session.run(None, guarded_feeds(guard, {"x": values}))
        for found, wanted in zip(results, run_reference(content, {"x": values})):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.nanmax(np.abs(wanted), initial=1))
