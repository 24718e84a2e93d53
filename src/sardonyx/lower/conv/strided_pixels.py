"""Pointwise convolutions with strides: the pixels they meet are copied next to each other where rows of results are short.

    row of 7 results, tiles of 6 pixels or 4          seven rows: 7 times a tile of 4 and one of 3, which each read the weights
    49 results in one row                             8 tiles of 6 and a pixel

It happens where the estimates of tiles say that one long row saves more time than the copy takes. Rows of pixels fit tiles of
many registers; but where products are as fast as loads, large images of pixels with others between them take longer as well: a
part of the sets of the caches does not hold them.
"""

from __future__ import annotations

from dataclasses import replace

from sardonyx import dtypes
from sardonyx.lower.conv.conv_task import Task
from sardonyx.lower.conv.conv_tiles import TileTask, choose_tile
from sardonyx.program.steps import View
from sardonyx.target import cost


def with_neighbouring_pixels(task: Task) -> Task:
    """The same convolution without strides, over a copy of the pixels it meets, where that is faster; else as it is."""
    geometry = task.geometry
    if not geometry.single_tap or set(geometry.stride) == {1} or not _saves_time(task):
        return task
    x = task.blocked_input()
    apart = tuple(step * stride for step, stride in zip(geometry.stride, x.strides[2:5]))
    met = View(x.buffer, (*x.shape[:2], *geometry.out, x.shape[5]), (*x.strides[:2], *apart, x.strides[5]), x.offset)
    copied = task.ctx.copy(met, task.ctx.scratch(dtypes.FLOAT32, met.shape, "pixels"), "copy pixels")
    beside = replace(geometry, size=geometry.out, stride=(1, 1, 1), pads_end=(0, 0, 0))
    return replace(task, x=copied, geometry=beside)


def _saves_time(task: Task) -> bool:
    planes, rows, columns = task.geometry.out
    if not isinstance(planes, int) or not isinstance(rows, int) or not isinstance(columns, int) or planes * rows < 2:
        return False
    target = task.ctx.target
    met = planes * rows * columns * task.weights.inputs  # elements
    apart = planes * rows * _time(task, columns) * cost.apart(met * 4, target)
    return apart - _time(task, planes * rows * columns) > cost.neighbours(met, target)


def _time(task: Task, columns: int) -> float:
    """Nanoseconds of a row, by its best tiles."""
    weights = task.weights
    tiles = TileTask(target=task.ctx.target, outputs=weights.outputs, inputs=weights.inputs, taps=1, columns=columns)
    best = choose_tile(tiles)
    return tiles.time(best.vectors, best.pixels)
