"""Recognise attention that was exported as products and a softmax.

    s = MatMul(q, Transpose(k)) * scale
    p = Softmax(Where(causal, s, -inf) + mask)          =>   y = SoftmaxAttention(q, k, v, mask) {scale}
    y = MatMul(p, v)

One kernel computes scores, softmax and the product with V for a block of queries: the scores of all queries never lie in memory.
Operands are [batch, heads, time, size], or [batch, time, size] with one head; they may lie transposed, as those of attention over
images do (V times the transposed weights, with channels before pixels), or be multiplied by an Einsum in any order of axes (but
for batch and heads, which the result has in the order of the weights). Axes before time may be grouped in other ways, also on the
way from the scores to the weights (`attention_axes`). Query heads may share heads of K and V. Scores may
be pressed into bounds (Tanh between two factors) before masks. What is added to the scores becomes one mask; a Where stays a mask
of truth values or, beside others, is the same as adding its other side, if that is so low that scores vanish beside it. Zeros in
place of weights that are NaN, as exporters write them behind masks of truth values, are part of it. Runs late: factors have
become a part of the product by then (FormFusedMatMul), and the result is an operator of our own. Refuses: scores or weights that
are used elsewhere too, operands that broadcast otherwise, masks that broadcast the scores or have one element for all keys.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import ClassVar, Final

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.ir.dims import product as count
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import Shape
from sardonyx.passes.attention_axes import (
    before_regrouping,
    before_repeating,
    before_swapping,
    can_regroup,
    mask_axes,
    outer_axes,
    regrouped,
)
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_DOMAIN: Final = "sardonyx"
_ONE_AXIS: Final = 13  # the opset version since which Softmax works on one axis alone
_VANISHING: Final = -1e30  # what float32 scores are lost beside
_MOST_STEPS: Final = 6  # between the scores and the softmax


@dataclass(frozen=True)
class _Product:
    """alpha * a @ b, where each of them may lie transposed, and the result, too."""

    node: Node
    a: Value
    b: Value
    alpha: float
    is_transposed: bool  # b
    is_a_transposed: bool = False
    is_result_transposed: bool = False
    a_order: tuple[int, ...] = ()  # in which the axes of a are taken first, if not as they are; b and the result the same
    b_order: tuple[int, ...] = ()
    result_order: tuple[int, ...] = ()

    def exchanged(self) -> _Product:
        """The same with the operands in the other order: a @ b is the transposed product of b transposed with a transposed."""
        return replace(
            self,
            a=self.b,
            b=self.a,
            is_transposed=not self.is_a_transposed,
            is_a_transposed=not self.is_transposed,
            is_result_transposed=True,
            a_order=self.b_order,
            b_order=self.a_order,
        )


@dataclass(frozen=True)
class _Mask:
    """What is added to the scores; of a Where its condition, and what stands where it holds (or does not)."""

    value: Value
    scores: Value  # before it
    masked: Value  # with it
    low: float | None = None
    is_low_where_true: bool = False


@dataclass(frozen=True)
class _Scores:
    """Scores from their product on: the masks, and the values in between, the last one first."""

    product: _Product
    scale: float
    masks: tuple[_Mask, ...]
    inside: tuple[Value, ...]
    cap: float = 0.0  # what their hyperbolic tangents are multiplied by, if they are pressed into bounds
    factor: Value | None = None  # that is computed, or one for each head: the same for all queries and keys of it


@dataclass(frozen=True)
class _Attention:
    scores: _Scores
    weighted: _Product
    softmax: Node
    between: tuple[Value, ...]  # what NaN of the weights is found by, if 0 takes its place
    weights: Value  # before their axes are grouped in another way, if they are


@dataclass(frozen=True)
class _Axes:
    """The axes before time of an attention: those of the scores and of K and V; None: there is one of both."""

    outer: tuple[Dim, Dim] | None
    shared: tuple[Dim, Dim] | None
    keys: Value | None = None  # before their heads are repeated
    values: Value | None = None
    is_swapped: bool = False  # keys lie the other way round before


def _product(value: Value) -> _Product | None:
    node = value.producer
    if node is None or len(node.inputs) != 2:
        return None
    a, b = node.inputs
    assert a is not None
    assert b is not None
    if node.op_type == "MatMul" and is_standard(node):
        return _Product(node, a, b, 1.0, False)
    if node.op_type == "Einsum" and is_standard(node):
        return _einsum(node, a, b)
    if node.op_type != "FusedMatMul" or node.domain != MICROSOFT:
        return None
    if node.attr("transBatchA", 0) or node.attr("transBatchB", 0):
        return None
    alpha, swapped, second = node.attr("alpha", 1.0), node.attr("transA", 0), node.attr("transB", 0)
    return _Product(node, a, b, float(alpha), bool(second), bool(swapped))


def _einsum(node: Node, a: Value, b: Value) -> _Product | None:
    """A product of matrices in letters: all but one of each operand's are the result's, and one of both is summed over."""
    terms = str(node.attr("equation", "")).replace(" ", "").replace("->", ",").split(",")
    if len(terms) != 3 or any(not term.isalpha() or len(set(term)) != len(term) for term in terms):
        return None
    left, right, out = terms
    rows, columns = ([letter for letter in out if letter not in other] for other in (right, left))
    inner = [letter for letter in left if letter not in out]
    if len(rows) != 1 or len(columns) != 1 or len(inner) != 1 or {*left} - {*rows} != {*right} - {*columns}:
        return None
    if {*out} - {*rows, *columns} != {*left} - {*rows, *inner}:
        return None
    if out.index(rows[0]) > out.index(columns[0]):
        left, right, rows, columns, a, b = right, left, columns, rows, b, a
    outer = [letter for letter in out if letter in left and letter in right]
    a_order, is_a_transposed = _order_of(left, [*outer, *rows, *inner])
    b_order, is_b_transposed = _order_of(right, [*outer, *inner, *columns])
    made = [*outer, *rows, *columns]
    result_order = () if made == list(out) else tuple(made.index(letter) for letter in out)
    return _Product(node, a, b, 1.0, is_b_transposed, is_a_transposed, False, a_order, b_order, result_order)


def _order_of(letters: str, wanted: list[str]) -> tuple[tuple[int, ...], bool]:
    """How axes are brought into an order: by taking them in another, if any, or by a matrix that lies transposed."""
    if [*wanted[:-2], wanted[-1], wanted[-2]] == list(letters):
        return (), True
    return (() if wanted == list(letters) else tuple(letters.index(letter) for letter in wanted)), False


def _ordered(shape: Shape | None, order: tuple[int, ...]) -> Shape | None:
    return shape if shape is None or not order else tuple(shape[axis] for axis in order)


def _is(value: Value | None, operator: str) -> bool:
    node = None if value is None else value.producer
    return node is not None and node.op_type == operator and is_standard(node)


def _weights(g: Rewriter, value: Value) -> tuple[Node, tuple[Value, ...]] | None:
    """The softmax that weights are, and the values behind it, if 0 stands there for NaN: Where(IsNaN(weights), 0, weights)."""
    between: tuple[Value, ...] = ()
    node = value.producer
    if node is not None and _is(value, "Where"):
        condition, zero, weights = node.inputs
        marks = None if condition is None or not _is(condition, "IsNaN") else condition.producer
        if marks is None or condition is None or weights is None or marks.inputs[0] is not weights or g.number(zero) != 0:
            return None
        between, node = (condition, weights), weights.producer
    if node is None or not _is(node.outputs[0], "Softmax"):
        return None
    return node, between


def _weighted(g: Rewriter, value: Value) -> tuple[_Product, Node, tuple[Value, ...], Value] | None:
    """A product of weights, which are its `a` as they lie, with something; they may have had other axes before time."""
    product = _product(value)
    if product is None:
        return None
    for each in (product, product.exchanged()):
        if each.is_a_transposed or each.a_order:
            continue
        weights = before_regrouping(each.a) or each.a
        found = _weights(g, weights)
        if found is not None:
            return each, *found, weights
    return None


def _scores(g: Rewriter, value: Value | None, steps: int = 0) -> _Scores | None:
    """The product that a value is made of by factors and masks."""
    node = None if value is None else value.producer
    if value is None or node is None or steps == _MOST_STEPS:
        return None
    product = _product(value)
    if product is not None:
        return None if product.result_order else _Scores(product, product.alpha, (), (value,))
    if not is_standard(node) or len(node.inputs) < 2:
        return None
    first, second = node.inputs[:2]
    if node.op_type == "Reshape":
        found = _scores(g, before_regrouping(value), steps + 1)
        return None if found is None else replace(found, inside=(value, *found.inside))
    if node.op_type in ("Mul", "Div"):
        factor = g.number(second)
        if factor and node.op_type == "Mul" and _is(first, "Tanh"):
            return _pressed(g, value, factor, steps)
        if factor is None and node.op_type == "Mul":
            return _multiplied(g, value, steps)
        found = _scores(g, first, steps + 1) if factor else None
        if found is None or factor is None or found.masks or found.cap:  # a factor of masks, too
            return None
        scale = found.scale * factor if node.op_type == "Mul" else found.scale / factor
        return replace(found, scale=scale, inside=(value, *found.inside))
    if node.op_type == "Add":
        for scores, mask in ((first, second), (second, first)):
            found = _scores(g, scores, steps + 1)
            if found is not None and mask is not None:
                added = _Mask(mask, found.inside[0], value)
                return replace(found, masks=(*found.masks, added), inside=(value, *found.inside))
    if node.op_type == "Where":
        condition, *sides = node.inputs
        for position, side in enumerate(sides):
            low = g.number(sides[1 - position])
            found = _scores(g, side, steps + 1) if low is not None else None
            if found is not None and condition is not None:
                where = _Mask(condition, found.inside[0], value, low, is_low_where_true=position == 1)
                return replace(found, masks=(*found.masks, where), inside=(value, *found.inside))
    return None


def _multiplied(g: Rewriter, value: Value, steps: int) -> _Scores | None:
    """Scores times a factor that is no constant number."""
    node = value.producer
    assert node is not None
    for first, factor in (node.inputs[:2], node.inputs[1::-1]):
        shape = None if factor is None else factor.shape
        if shape is None or any(size != 1 for size in shape[-2:]):
            continue
        found = _scores(g, first, steps + 1)
        if found is None or found.masks or found.cap or found.factor is not None or len(found.inside) != 1:
            continue
        return replace(found, factor=factor, inside=(value, *found.inside))
    return None


def _pressed(g: Rewriter, value: Value, cap: float, steps: int) -> _Scores | None:
    """tanh(scores) * cap."""
    node = value.producer
    tanh = None if node is None or node.inputs[0] is None else node.inputs[0]
    if tanh is None or tanh.producer is None:
        return None
    found = _scores(g, tanh.producer.inputs[0], steps + 1)
    if found is None or found.masks or found.cap:
        return None
    return replace(found, cap=cap, inside=(value, tanh, *found.inside))


@dataclass(frozen=True)
class FuseAttention(Rule[_Attention]):
    """Two products with a softmax between them are attention."""

    name: ClassVar[str] = "FuseAttention"
    ort_names: ClassVar[tuple[str, ...]] = ("AttentionFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("MatMul", "FusedMatMul", "Einsum"))
    needs: ClassVar[frozenset[str]] = frozenset(("Softmax",))
    domains: ClassVar[frozenset[str]] = frozenset(("", MICROSOFT))

    def match(self, g: Rewriter, node: Node) -> _Attention | Reject | None:
        found = _weighted(g, node.outputs[0])
        if found is None:
            return None
        weighted, softmax, between, weights = found
        shape = weights.shape
        if shape is None or softmax.attr("axis", -1 if softmax.version >= _ONE_AXIS else 1) not in (-1, len(shape) - 1):
            return None
        scores = _scores(g, softmax.inputs[0])
        if scores is None:
            return None
        inside = list(dict.fromkeys((weighted.a, weights, *between[:1], *scores.inside)))
        shared = next((value for value in inside if not g.is_private(value)), None)
        if shared is None and between and (len(between[1].uses) != 2 or g.is_output(between[1])):
            shared = between[1]
        if shared is not None:
            return Reject(f"{shared.name!r} is used elsewhere too")
        return _Attention(scores, weighted, softmax, between, weights)

    def check(self, g: Rewriter, found: _Attention) -> _Axes | Reject:
        weighted, product = found.weighted, found.scores.product
        q, k = _ordered(product.a.shape, product.a_order), _ordered(product.b.shape, product.b_order)
        v, scores = _ordered(weighted.b.shape, weighted.b_order), product.node.outputs[0].shape
        kinds = {dtype_of(value) for value in (product.a, product.b, weighted.b)}
        shapes = [value.shape for value in (*found.scores.inside, found.weights, weighted.a)]
        if q is None or k is None or v is None or scores is None or len(kinds) != 1 or len(q) < 3 or None in shapes:
            return Reject("types or ranks are not known, or there are less than three axes")
        if weighted.alpha != 1.0:
            return Reject("weights are multiplied by a number")
        for mask in found.scores.masks:
            if mask.masked.shape != mask.scores.shape:
                return Reject(f"masks broadcast the scores {mask.scores.type} to {mask.masked.type}")
        axes = _axes(found, q, k, v)
        if isinstance(axes, Reject):
            return axes
        if found.scores.factor is not None and found.scores.inside[-2].shape != scores:
            return Reject("a factor broadcasts the scores")
        for mask in found.scores.masks:
            shape = mask.value.shape
            if not shape or shape[-1] != scores[-1]:
                return Reject(f"the mask {mask.value.type} is not known to have an element for each key")
            if axes.outer is not None and _mask_axes(mask, axes.outer) is None:
                return Reject(f"the mask {mask.value.type} has other axes than {axes.outer}")
        if weighted.a.shape is None or weighted.a.shape[-2:] != scores[-2:]:
            return Reject(f"weights {weighted.a.type} are not those of the scores {product.node.outputs[0].type}")
        lows = [mask.low for mask in found.scores.masks if mask.low is not None]
        if len(found.scores.masks) > 1 and not all(low <= _VANISHING for low in lows):
            return Reject("a mask puts numbers that do not vanish in place of scores, beside others")
        return axes

    def rewrite(self, g: Rewriter, found: _Attention, facts: _Axes) -> None:
        weighted, product = found.weighted, found.scores.product
        sources = (
            (product.a, product.a_order),
            (facts.keys or product.b, product.b_order),
            (facts.values or weighted.b, weighted.b_order),
        )
        q, k, v = (g.op("Transpose", value, perm=list(order)) if order else value for value, order in sources)
        factor = found.scores.factor
        if factor is not None:
            q = g.op("Mul", q, factor)  # it has the axes that q has before time, and one element for the others
        if facts.outer is not None and facts.shared is not None:
            q, k, v = (regrouped(g, each, axes) for each, axes in ((q, facts.outer), (k, facts.shared), (v, facts.shared)))
        rank = len(q.shape or ())
        swapped = [*range(rank - 2), rank - 1, rank - 2]
        if product.is_a_transposed:
            q = g.op("Transpose", q, perm=swapped)
        if product.is_transposed == facts.is_swapped:
            k = g.op("Transpose", k, perm=swapped)
        if weighted.is_transposed:
            v = g.op("Transpose", v, perm=swapped)
        masks, attrs = [_grouped_mask(g, mask, facts) for mask in found.scores.masks], {"scale": found.scores.scale}
        operands = [q, k, v]
        if len(masks) == 1 and masks[0].low is not None:
            operands.append(g.op("Not", masks[0].value) if masks[0].is_low_where_true else masks[0].value)
            attrs["masked"] = masks[0].low
        elif masks:
            operands.append(reduce(lambda a, b: g.op("Add", a, b), [_added(g, mask, q) for mask in masks]))
        if found.scores.cap:
            attrs["cap"] = found.scores.cap
        if found.between:
            attrs["without_nan"] = 1
        made = g.op("SoftmaxAttention", *operands, domain=_DOMAIN, **attrs)
        if weighted.is_result_transposed:
            made = g.op("Transpose", made, perm=swapped)
        if facts.outer is not None:
            made = regrouped(g, made, (weighted.a.shape or ())[:-2])
        if weighted.result_order:
            made = g.op("Transpose", made, perm=list(weighted.result_order))
        g.replace(weighted.node.outputs[0], made)


def _axes(found: _Attention, q: Shape, k: Shape, v: Shape) -> _Axes | Reject:
    """How the axes before time of an attention are grouped, if its operands can be brought into one form."""
    product, weighted = found.scores.product, found.weighted
    mixed = (weighted.a.shape or ())[:-2]
    shapes = [value.shape or () for value in (*found.scores.inside, found.weights, weighted.a)]
    if not (_are_equal(k[:-2], q[:-2]) and _are_equal(v[:-2], mixed)):
        shared = k[:-2]
        if v[:-2] != shared or len(q) != len(k) or len(q) < 4 or shared != (*q[:-3], 1) or mixed != q[:-2]:
            return Reject(f"operands broadcast: {product.a.type}, {product.b.type}, {weighted.b.type}")
        if any(shape[:-2] != q[:-2] for shape in shapes):
            return Reject("scores of shared heads change their axes")
        if len(q) == 4:
            return _Axes((q[0], q[1]), (k[0], k[1]))
        batch = count(list(q[:-4]))
        grouped, of_keys = (batch, q[-4] * q[-3]), (batch, q[-4])
        fits = can_regroup(q, grouped) and can_regroup(k, of_keys) and can_regroup((*grouped, 0, 0), mixed)
        return _Axes(grouped, of_keys) if fits else Reject("the sizes of shared heads are not known")
    outer = outer_axes([q, *shapes])
    if outer is None:
        return _Axes(None, None)
    values = None if weighted.b_order else before_repeating(weighted.b)
    apart = None if product.b_order else before_swapping(product.b)
    keys = None if product.b_order else before_repeating(apart or product.b)
    if keys is not None and values is not None and len(q) == len(shapes[-1]) == 4:
        heads = (keys.shape or ())[:2]
        if heads == (values.shape or ())[:2] and heads[0] == q[0]:
            return _Axes(outer, (heads[0], heads[1]), keys, values, is_swapped=apart is not None)
    targets = [(q, outer), (k, outer), (v, outer), ((*outer, 0, 0), mixed)]
    if not all(can_regroup(shape, axes) for shape, axes in targets):
        return Reject(f"the sizes of axes before time are not known: {product.a.type}, {weighted.a.type}")
    return _Axes(outer, outer)


def _are_equal(first: Shape, second: Shape) -> bool:
    """Whether axes are the same but for some of one element before them."""
    length = max(len(first), len(second))
    return (1,) * (length - len(first)) + tuple(first) == (1,) * (length - len(second)) + tuple(second)


def _mask_axes(mask: _Mask, outer: tuple[Dim, Dim]) -> tuple[Dim, ...] | None:
    shape = mask.value.shape or ()
    return () if len(shape) < 3 else mask_axes(shape, mask.scores.shape or (), outer)


def _grouped_mask(g: Rewriter, mask: _Mask, axes: _Axes) -> _Mask:
    """A mask with the axes that an attention has."""
    own = None if axes.outer is None else _mask_axes(mask, axes.outer)
    shape = mask.value.shape or ()
    if own is None or len(shape) < 3:
        return mask
    return replace(mask, value=regrouped(g, mask.value, own or (1, 1)))


def _added(g: Rewriter, mask: _Mask, scores: Value) -> Value:
    """A mask as numbers to be added."""
    if mask.low is None:
        return mask.value
    dtype = dtype_of(scores)
    assert dtype is not None
    low, zero = (g.constant(np.asarray(number, dtype.numpy), "added") for number in (mask.low, 0.0))
    return g.op("Where", mask.value, *((low, zero) if mask.is_low_where_true else (zero, low)))
