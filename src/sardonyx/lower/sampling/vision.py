"""NonMaxSuppression; it means what `ops/sampling/vision.py` says."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_min
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.kernel.rows import sort
from sardonyx.kernel.sampling import suppress
from sardonyx.kernel.sampling.suppress import FIELDS, ListKernel, SuppressKernel
from sardonyx.lower.creation.creation import scalar_input
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.compaction import add_up
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.target import cost


def _input(node: Node, position: int) -> Value | None:
    return node.inputs[position] if len(node.inputs) > position else None


def _accepts_boxes(node: Node) -> str:
    shapes = [None if value is None else value.shape for value in node.inputs[:2]]
    if any(shape is None or len(shape) != 3 for shape in shapes):
        return "boxes and scores need three axes"
    return "" if shapes[0] is not None and shapes[0][2] == 4 else "a box may not have four numbers"


@template("NonMaxSuppression", accepts=_accepts_boxes, data_dependent_sizes=True)
def non_max_suppression(ctx: LowerContext, group: Group) -> None:
    """Chosen boxes for every image and class, then all of them in one list."""
    node = root_of(group)
    output = node.outputs[0]
    boxes, scores = (ctx.contiguous(given(node, position)) for position in (0, 1))
    images, classes, count = scores.shape
    ctx.check_equal(images, boxes.shape[0])
    ctx.check_equal(count, boxes.shape[1])
    ctx.check_equal(dim_min(count, sort.LONGEST), count)
    known = ctx.integers(_input(node, 2))
    room: Dim = dim_min(count, max(known[0], 0)) if known else count
    most = _number(ctx, node, 2, np.zeros((), np.int64))
    overlap = _number(ctx, node, 3, np.zeros((), np.float32))
    scored = _input(node, 4) is not None
    rows = images * classes
    kernel = SuppressKernel(center=bool(attribute_values(node).get("center_point_box")), scored=scored)
    words = ctx.worker_scratch(dtypes.INT64, count * 2, "words")
    corners = ctx.worker_scratch(dtypes.FLOAT32, suppress.corner_room(room, ctx.target) * FIELDS, "corners")
    chosen = ctx.scratch(dtypes.INT64, (rows, room), "chosen")
    counts = ctx.scratch(dtypes.INT64, (rows,), "counts")
    reads = [boxes, scores, most, overlap, *([scalar_input(ctx, node, 4)] if scored else [])]
    written = [chosen, counts]
    record, code = ctx.fault(node, "iou_threshold is not between 0 and 1")
    arguments = kernel.arguments.entries(
        rows=rows,
        classes=classes,
        boxes=count,
        room=room,
        **{name: view.address for name, view in zip(("box", "score", "most", "overlap", "least"), reads)},
        chosen=chosen.address,
        counts=counts.address,
        record=record,
        code=code,
        words=(Address(words), (words.size,)),
        corners=(Address(corners), (corners.size,)),
    )
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            rows,
            cost.suppress(rows * count),
            tuple(view.buffer for view in reads),
            (*(view.buffer for view in written), words, corners),
            group.label,
            (node.label,),
        )
    )
    starts, total = add_up(ctx, counts, group.label)
    ctx.bind_sizes(total, ctx.shape(output)[:1], node)
    target = ctx.output(output)
    sources = (chosen, counts, starts)
    listing = ListKernel()
    arguments = listing.arguments.entries(
        classes=classes,
        room=room,
        chosen=chosen.address,
        counts=counts.address,
        starts=starts.address,
        target=target.address,
    )
    ctx.step(
        KernelStep(
            listing,
            arguments,
            rows,
            cost.listed(ctx.shape(output)[0]),
            tuple(view.buffer for view in sources),
            (target.buffer,),
            group.label,
            (node.label,),
        )
    )


def _number(ctx: LowerContext, node: Node, position: int, otherwise: Array) -> View:
    """An input of one element, or what it is if it is left out."""
    if _input(node, position) is not None:
        return scalar_input(ctx, node, position)
    return ctx.literal(otherwise)
