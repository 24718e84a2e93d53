"""Views of views: the same memory under another shape. Nothing moves."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir.dims import Dim, mod, product
from sardonyx.lower.loop_builder import broadcast_strides
from sardonyx.program.steps import View, row_major


def transposed(view: View, order: Sequence[int]) -> View:
    """The axes in another order."""
    return View(view.buffer, tuple(view.shape[axis] for axis in order), tuple(view.strides[axis] for axis in order), view.offset)


def sliced(view: View, axis: int, start: Dim, size: Dim, step: Dim = 1) -> View:
    """Part of an axis: `size` elements from `start` on, `step` apart (backwards if it is negative)."""
    shape, strides = list(view.shape), list(view.strides)
    offset = view.offset + strides[axis] * start
    shape[axis], strides[axis] = size, strides[axis] * step
    return View(view.buffer, tuple(shape), tuple(strides), offset)


def expanded(view: View, shape: Sequence[Dim]) -> View:
    """The view repeated over a shape it broadcasts to."""
    return View(view.buffer, tuple(shape), broadcast_strides(view, shape), view.offset)


def without_axes(view: View, axes: Sequence[int]) -> View:
    """Without some axes of size 1."""
    kept = [axis for axis in range(len(view.shape)) if axis not in axes]
    return transposed(view, kept)


def with_axes(view: View, axes: Sequence[int]) -> View:
    """With axes of size 1 at these positions of the result."""
    shape, strides = list(view.shape), list(view.strides)
    for axis in sorted(axes):
        shape.insert(axis, 1)
        strides.insert(axis, 0)
    return View(view.buffer, tuple(shape), tuple(strides), view.offset)


def reshaped(view: View, shape: Sequence[Dim]) -> View | None:
    """The elements in the same order under another shape; None if that needs a copy.

    Both shapes are cut into runs of axes with equally many elements. Within a run the old axes must follow each other without a
    jump; the new ones then do, too.
    """
    shape = tuple(shape)
    if view.is_contiguous:
        return View(view.buffer, shape, row_major(shape), view.offset)
    old = [(size, stride) for size, stride in zip(view.shape, view.strides) if size != 1]
    new = [size for size in shape if size != 1]
    strides: list[Dim] = []
    before = after = 0
    while before < len(old) or after < len(new):
        stop, end = before + 1, after + 1
        while True:
            if stop > len(old) or end > len(new):
                return None
            have, want = product([size for size, _ in old[before:stop]]), product(new[after:end])
            if have == want:
                break
            if 0 in (have, want):
                return None
            old_is_less = have < want if isinstance(have, int) and isinstance(want, int) else mod(want, have) == 0
            new_is_less = want < have if isinstance(have, int) and isinstance(want, int) else mod(have, want) == 0
            stop += int(old_is_less or not new_is_less)  # where neither shows, both may go on
            end += int(new_is_less or not old_is_less)
        run = old[before:stop]
        if any(stride != run[index + 1][1] * run[index + 1][0] for index, (_, stride) in enumerate(run[:-1])):
            return None
        strides += [stride * run[-1][1] for stride in row_major(new[after:end])]
        before, after = stop, end
    found = iter(strides)
    return View(view.buffer, shape, tuple(0 if size == 1 else next(found) for size in shape), view.offset)
