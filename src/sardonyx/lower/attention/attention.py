"""ONNX's Attention, and attention that a graph writes out."""

from __future__ import annotations

from math import sqrt
from typing import Final

from ml_dtypes import finfo

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import dim_max, dim_min
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel import math
from sardonyx.kernel.attention.attention import NO_LIMIT
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import FLOATS, const, load, select
from sardonyx.lower.attention.attend import Attend, attend, capture, probabilities
from sardonyx.lower.attention.operands import float_kinds, input_at, joined, softcapped, split_heads, used_outputs
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import template
from sardonyx.lower.views import with_axes
from sardonyx.program.steps import View

_TIME_FIRST: Final = (0, 2, 1, 3)  # how a result with four axes lies: heads are mostly put beside each other next
_MASKED_SCORES: Final = 2  # a mode of storing scores: with masks; 0 is as they are, 1 pressed into bounds
_PROBABILITIES: Final = 3


def _accepts(node: Node) -> str:
    attrs = attribute_values(node)
    kinds = float_kinds(node, (0, 1, 2, 4, 5))
    if len(kinds) != 1:
        return f"no kernel for keys and values of different types: {', '.join(sorted(kinds))}"
    reason = _accepts_scores(node)
    if reason:
        return reason
    if (input_at(node, 4) is None) != (input_at(node, 5) is None) or (
        input_at(node, 6) is not None and input_at(node, 4) is not None
    ):
        return "inputs that do not belong together"
    for position, heads in ((0, "q_num_heads"), (1, "kv_num_heads"), (2, "kv_num_heads")):
        value = node.inputs[position]
        shape = None if value is None else value.shape
        if shape is None or len(shape) not in (3, 4) or (len(shape) == 3 and not attrs.get(heads)):
            return "an input without heads"
    q = node.inputs[0]
    if attrs.get("scale") is None and not (q is not None and q.shape and isinstance(q.shape[-1], int)):
        return "a scale that depends on a size known at run time only"
    mask = input_at(node, 3)
    if mask is not None and not 1 <= len(mask.shape or ()) <= 4:
        return "a mask without axes, or with more than four"
    return ""


def _accepts_scores(node: Node) -> str:
    """Scores before any mask are computed for keys that masks say something about."""
    if len(node.outputs) < 4 or not node.outputs[3].name:
        return ""
    attrs, mask, scores = attribute_values(node), input_at(node, 3), node.outputs[3].shape
    if attrs["qk_matmul_output_mode"] >= _MASKED_SCORES or mask is None:
        return ""
    reaches_all = bool(mask.shape) and bool(scores) and (mask.shape or ())[-1] == (scores or ())[-1]
    return "" if reaches_all else "scores of keys behind a short mask are an output"


@template("Attention", types={"T1": FLOATS, "T2": FLOATS}, accepts=_accepts)
def attention(ctx: LowerContext, group: Group) -> None:
    """The operator of ONNX."""
    node = group.root
    assert node is not None
    attrs = attribute_values(node)
    outputs = used_outputs(ctx, group, node)
    q, k, v = (
        split_heads(ctx.view(value), attrs.get(heads) or 0)
        for value, heads in zip(node.inputs, ("q_num_heads", "kv_num_heads", "kv_num_heads"))
        if value is not None
    )
    past_key, past_value = (input_at(node, position) for position in (4, 5))
    keys = joined(ctx, None if past_key is None else ctx.view(past_key), k, outputs[1])
    values = joined(ctx, None if past_value is None else ctx.view(past_value), v, outputs[2])
    if outputs[0] is None and outputs[3] is None:
        return
    kind = compute_type(q.buffer.dtype.name)
    scale = attrs.get("scale")
    size = q.shape[3] if isinstance(q.shape[3], int) else 1
    score = softcapped(accumulator(kind), attrs.get("softcap"))
    causal, left, right = bool(attrs.get("is_causal")), attrs.get("left_window_size"), attrs.get("right_window_size")
    right = 0 if causal and (right is None or right < 0) else min(right, 0) if causal and right is not None else right
    given = Attend(
        q,
        keys,
        values,
        split_heads(_result(ctx, node.outputs[0]), attrs.get("q_num_heads") or 0),
        1 / sqrt(max(size, 1)) if scale is None else float(scale),
        score,
        banded=causal or (left or -1) >= 0 or (right if right is not None else -1) >= 0,
        offset=0 if past_key is None else ctx.shape(past_key)[2],
        left=NO_LIMIT if left is None or left < 0 else left,
        right=NO_LIMIT if right is None or right < 0 else right,
    )
    lengths = input_at(node, 6)
    if lengths is not None:
        given.lengths = ctx.contiguous(lengths)
        ctx.check_equal(given.lengths.shape[0], q.shape[0])
    mask = input_at(node, 3)
    mode = attrs["qk_matmul_output_mode"]
    scores = outputs[3]
    if mode < _MASKED_SCORES:
        given.captured = accumulator(kind) if mode == 0 else score
        given.captures_all = scores is not None and (given.banded or given.lengths is not None)
    if mask is not None:
        _add_mask(ctx, given, ctx.view(mask), kind, hides_lowest=True)
    if scores is None:
        given.captured = None
    else:
        capture(ctx, given, scores, kind, probabilities=mode == _PROBABILITIES)
    attend(ctx, group, given)
    if scores is not None and mode == _PROBABILITIES:
        probabilities(ctx, group, given, scores)


def _result(ctx: LowerContext, value: Value) -> View:
    """Memory for the result of an attention."""
    return ctx.output(value, _TIME_FIRST if len(ctx.shape(value)) == 4 else None)


def _accepts_written_out(node: Node) -> str:
    shapes = [value.shape for value in node.inputs[:3] if value is not None]
    mask = input_at(node, 3)
    is_bool = mask is not None and float_kinds(node, (3,)) == {"bool"}
    kinds = float_kinds(node, (0, 1, 2) if is_bool else (0, 1, 2, 3))
    if any(shape is None or len(shape) not in (3, 4) for shape in shapes) or len(kinds) != 1:
        return "other than three or four axes, or operands of different types"
    return "a mask without axes" if mask is not None and not mask.shape else ""


@template("SoftmaxAttention", domain="sardonyx", types={"T": FLOATS, "M": (*FLOATS, "bool")}, accepts=_accepts_written_out)
def softmax_attention(ctx: LowerContext, group: Group) -> None:
    """Attention as graphs write it out; without an axis of heads there is one."""
    node = group.root
    assert node is not None
    assert node.inputs[0] is not None
    if not used_outputs(ctx, group, node)[0]:
        return
    is_plain = len(ctx.shape(node.inputs[0])) == 3
    q, k, v, result = (
        with_axes(view, (1,)) if is_plain else view
        for view in (*(ctx.view(value) for value in node.inputs[:3] if value is not None), _result(ctx, node.outputs[0]))
    )
    kind = compute_type(q.buffer.dtype.name)
    attrs = attribute_values(node)
    score = accumulator(kind)
    if attrs["cap"]:
        score = math.tanh(score) * float(attrs["cap"])
    clears_nan = bool(attrs["without_nan"])
    given = Attend(q, k, v, result, float(attrs["scale"]), score, nan_rows=not clears_nan, clears_nan=clears_nan)
    mask = input_at(node, 3)
    if mask is not None:
        shown = ctx.view(mask)
        ctx.check_equal(shown.shape[-1], k.shape[2])
        shown = with_axes(shown, (1,)) if is_plain and len(shown.shape) == 3 else shown
        _add_mask(ctx, given, shown, kind, float(attrs["masked"]))
    attend(ctx, group, given)


def _add_mask(
    ctx: LowerContext, given: Attend, mask: View, kind: str, masked: float = float("-inf"), *, hides_lowest: bool = False
) -> None:
    """A mask, boolean (with what stands for scores where it is false) or added. Keys it says nothing about do not take part.

    `hides_lowest`: nor do keys to whose scores the lowest number is added, or minus infinity, whatever these scores are.
    """
    total = given.k.shape[2]
    reach = mask.shape[-1]
    ctx.check_equal(dim_max(reach, total), total)
    given.keys = dim_min(reach, total)
    ctx.check_broadcast(mask.shape[:-1], given.q.shape[:3])
    name = mask.buffer.dtype.name
    value = load(0, name)
    if name == "bool":
        given.score = select(value, given.score, const(masked, kind))
    else:
        wide = value.cast(compute_type(name))
        added = given.score + wide.cast(kind)
        lowest = float(finfo(dtypes.from_name(name).numpy).min)  # type: ignore[no-untyped-call]
        hidden = const(float("-inf"), kind)
        given.score = select(wide <= lowest, hidden, added) if hides_lowest else added
    # One key that is masked is a mask of one key: it must not be read as one for all.
    given.operands.append(View(mask.buffer, (*mask.shape[:-1], given.keys), mask.strides, mask.offset))
