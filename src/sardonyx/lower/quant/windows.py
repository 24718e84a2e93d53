"""Depthwise convolutions of bytes with constant kernels: one step on quads of rows (`kernel.quant.windows`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.ir.graph import Value
from sardonyx.ir.tensor import Array
from sardonyx.kernel.matmul.int8 import QUAD
from sardonyx.kernel.quant.windows import BLOCK, QuadWindowKernel, Taps, has_quad_windows
from sardonyx.lower.conv.conv_geometry import Geometry
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.quant.conv_weights import depthwise_distances
from sardonyx.program.constants import transform
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.target import cost
from sardonyx.target.target import Target

_LEAST: Final = -128  # of the distances that a byte holds
_MOST: Final = 127


def fits_quads(geometry: Geometry, target: Target) -> bool:
    """Whether windows lie in one plane, along rows or columns, and inside the border."""
    pads = (*geometry.pads_begin, *geometry.pads_end)
    known = all(not isinstance(pad, int) or pad >= 0 for pad in pads)
    return has_quad_windows(target) and not geometry.is_deep and geometry.taps > 1 and known


def parts_of(zero_point: Array | None, is_signed: bool) -> int:
    """How many bytes add up to any distance of a byte to its zero point."""
    low, high = (-128, 127) if is_signed else (0, 255)
    zeros = np.zeros(1, np.int64) if zero_point is None else zero_point.astype(np.int64)
    if not zeros.size:
        return 1
    least, most = low - int(zeros.max()), high - int(zeros.min())
    return max(-(-most // _MOST), -(least // -_LEAST), 1)


@transform("quad_windows", 1, is_numbers=True)
def quad_windows(
    kernels: Array, zero_point: Array | None, transposed: bool, row_stride: int, row_dilation: int, parts: int, lanes: int
) -> Array:
    """[channels, 1, rows, columns] as [vectors of channels, vectors of weights, lanes, 4] (`Taps.vectors`).

    `transposed`: what lies along columns is taken for rows.
    """
    channels, _, *window = kernels.shape
    rows, columns = (1, *window)[-2:]
    distances = depthwise_distances(kernels, zero_point).T.reshape(channels, rows, columns)
    if transposed:
        distances = distances.transpose(0, 2, 1)
    taps = Taps(*distances.shape[1:], row_stride, row_dilation, parts)
    planes = []
    for _ in range(parts):
        planes.append(distances.clip(_LEAST, _MOST))
        distances = distances - planes[-1]
    padded = -(-channels // lanes) * lanes
    made = np.zeros((len(taps.vectors), padded, QUAD), np.int8)
    for number, (part, result, line, column) in enumerate(taps.vectors):
        first = taps.first_tap(result, line)
        for tap in range(max(first, 0), min(first + QUAD, taps.rows)):
            made[number, :channels, tap - first] = planes[part][:, tap, column]
    return made.reshape(len(taps.vectors), padded // lanes, lanes, QUAD).transpose(1, 0, 2, 3)


def quad_window_step(
    ctx: LowerContext,
    group: Group,
    image: View,
    zero_points: tuple[Value | View | None, Value | None],
    kernels: View,
    geometry: Geometry,
    epilogue: GroupEpilogue,
    strides: Sequence[tuple[Dim, ...]],
) -> None:
    """The convolution of an image [N, 1, rows, columns, channels]; `strides` are the epilogue's over its results."""
    target, images, channels = ctx.target, image.shape[0], kernels.shape[0]
    assert isinstance(channels, int)
    transposed = geometry.kernel[1] == 1
    rows, columns = (3, 2) if transposed else (2, 3)  # axes of the image
    of_rows, of_columns = rows - 1, columns - 1  # the same of the geometry
    of_kernels = zero_points[1]
    data = None if of_kernels is None else ctx.constant_data(of_kernels)
    assert of_kernels is None or data is not None
    parts = parts_of(None if data is None else data.numpy(), kernels.buffer.dtype is dtypes.INT8)
    taps = Taps(
        geometry.kernel[of_rows], geometry.kernel[of_columns], geometry.stride[of_rows], geometry.dilation[of_rows], parts
    )
    block = min(channels, BLOCK)
    outer = [[own[0], own[rows], own[columns], own[4]] for own in strides]
    along_rows = [0 if all(stride == 0 for stride in own[:3]) else 1 for own in outer]
    kernel = QuadWindowKernel(
        source="i8" if image.buffer.dtype is dtypes.INT8 else "u8",
        block=block,
        flat=channels == block and image.strides[columns] == channels,
        whole=channels % target.lanes == 0,
        taps=taps,
        column_stride=geometry.stride[of_columns],
        column_dilation=geometry.dilation[of_columns],
        epilogue=epilogue.for_kernel([own[3] for own in outer], along_rows),
    )
    out_rows, out_columns = geometry.out[of_rows], geometry.out[of_columns]
    pixels = (out_columns - 1) * kernel.column_stride + (taps.columns - 1) * kernel.column_dilation + 1
    line = pixels * block + BLOCK  # vectors of weights and of channels that end inside a pixel read on
    lines = ctx.worker_scratch(dtypes.INT32, line * taps.lines, "quads of rows")
    zero = ctx.literal(np.zeros(1, image.buffer.dtype.numpy))
    given = zero_points[0]
    if given is not None:
        zero = given if isinstance(given, View) else ctx.view(given)
    vectors = -(-channels // target.lanes)
    source = None if of_kernels is None else ctx.view(of_kernels)
    parameters = (transposed, taps.row_stride, taps.row_dilation, parts, target.lanes)
    shape = (vectors, len(taps.vectors), target.lanes, QUAD)
    weights = ctx.packed(quad_windows, (kernels, source), *parameters, dtype=dtypes.INT8, shape=shape)
    arguments = kernel.arguments.entries(
        size=[image.shape[rows], image.shape[columns]],
        channels=channels,
        before=[geometry.pads_begin[of_rows], geometry.pads_begin[of_columns]],
        results=[out_rows, out_columns],
        line=line,
        image=(image.address, (image.strides[0], image.strides[rows], image.strides[columns])),
        zero=zero.address,
        weights=weights.address,
        lines=(Address(lines), (lines.size,)),
        operands=[(view.address, own) for view, own in zip(epilogue.views, outer)],
    )
    results = product([images, out_rows, out_columns, vectors])
    dots, made = len(taps.vectors) // taps.together, kernel.column_stride * taps.lines / taps.together
    work = cost.quad_windows(results, dots, made, kernel.epilogue.operations, target)
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            product([images, ceildiv(out_rows, taps.together), ceildiv(channels, block)]),
            work,
            (image.buffer, zero.buffer, weights.buffer, *epilogue.reads),
            (*epilogue.writes, lines),
            group.label,
            tuple(node.label for node in group.nodes),
        )
    )
