"""Merge convolutions of one image whose results are added into one convolution.

    y = Conv(x, w3: [o, c, 3, 3]) {pads = 1} + Conv(x, w1: [o, c, 1, 1]) + BatchNormalization(x)     =>   y = Conv(x, w')

Nets that are trained with branches side by side (RepVGG, MobileOne, RepViT, FastViT) are exported with them: sums of convolutions
are linear, and a smaller kernel is a part of a larger one that stands on the same pixels. A BatchNormalization of the image is a
kernel of one pixel, and so is the image itself, where it costs nothing to add it (depthwise) or others are merged anyway.
Runs after FoldBatchNorm, which makes such branches of convolutions. Refuses: branches that are used elsewhere too, kernels of
which none covers all others (the corners of the smallest that does would multiply infinities by 0), different strides,
dilations or groups, pads that are computed (auto_pad), weights that would overflow, large weights that others share (they would
exist twice).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array, Tensor, origin_of
from sardonyx.passes.fold_affine import SHARED, normalization_factors, rounded
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import Rewriter, attr_ints
from sardonyx.records import dataclass

_SUMS: Final = frozenset(("Add", "Sub", "Sum"))


@dataclass(frozen=True)
class _Term:
    """A summand, and how it is computed if it is linear in an image: by a convolution, or by one factor for each channel."""

    value: Value
    sign: int
    source: Value | None = None
    conv: Node | None = None
    factors: tuple[Array, Array] | None = None  # scale and shift of each channel, if there is no convolution


@dataclass(frozen=True)
class _Geometry:
    """Where the kernel of a convolution stands."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int


@dataclass(frozen=True)
class _Merge:
    """Summands that become one convolution: the widest, and the others with the tap at which they begin."""

    widest: _Term
    others: tuple[tuple[_Term, tuple[int, ...]], ...]
    geometry: _Geometry


@dataclass(frozen=True)
class _Found:
    merges: list[_Merge]
    rest: list[_Term]


@dataclass(frozen=True)
class MergeBranches(Rule[_Found]):
    """Convolutions of one image that are added become one."""

    name: ClassVar[str] = "MergeBranches"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = _SUMS
    needs: ClassVar[frozenset[str]] = frozenset(("Conv",))

    def match(self, g: Rewriter, node: Node) -> _Found | None:
        if _is_inner(g, node):
            return None  # the last sum sees all summands
        summands = _summands(g, node)
        if len(summands) < 2 or not any(_conv_of(value) for value, _ in summands):
            return None
        terms = [_term(g, node, value, sign) for value, sign in summands]
        convs = [each for each in terms if each.conv is not None]
        sources = {each.source for each in convs}
        terms = [_as_image(each) if each.conv is None and each.value in sources else each for each in terms]
        merges: list[_Merge] = []
        left = list(terms)
        for source in dict.fromkeys(each.source for each in convs):
            found = _merge(g, [each for each in left if each.source is source])
            if found is not None:
                merges.append(found)
                taken = [found.widest, *(each for each, _ in found.others)]
                left = [each for each in left if not any(each is other for other in taken)]
        return _Found(merges, left) if merges else None

    def check(self, g: Rewriter, found: _Found) -> Any:
        facts = []
        for merge in found.merges:
            made = _weights(g, merge)
            if isinstance(made, Reject):
                return made
            facts.append(made)
        return facts

    def rewrite(self, g: Rewriter, found: _Found, facts: Any) -> None:
        node = g.anchor
        total: Value | None = None
        for merge, (weights, bias, origin) in zip(found.merges, facts, strict=True):
            conv = merge.widest.conv
            assert conv is not None
            inputs = [conv.inputs[0], g.constant(weights, "kernel", origin), g.constant(bias, "bias")]
            made = g.clone(conv, inputs)[0]
            total = made if total is None else g.op("Add", total, made)
        assert total is not None
        for term in found.rest:
            total = g.op("Add" if term.sign > 0 else "Sub", total, term.value)
        g.replace(node.outputs[0], total)


def _is_inner(g: Rewriter, node: Node) -> bool:
    """Whether the sum is a summand itself, and nothing else."""
    result = node.outputs[0]
    reader = result.consumers[0] if g.is_private(result) else None
    return reader is not None and reader.op_type in _SUMS and is_standard(reader) and reader.graph is node.graph


def _summands(g: Rewriter, root: Node) -> list[tuple[Value, int]]:
    """What is added in the end, with signs."""
    found: list[tuple[Value, int]] = []
    open_sums = [(root, 1, 0)]  # a sum, its sign, and the input to look at next; chains may be longer than Python's stack
    while open_sums:
        node, sign, number = open_sums.pop()
        if number == len(node.inputs):
            continue
        open_sums.append((node, sign, number + 1))
        value = node.inputs[number]
        if value is None:
            continue
        inner, own = value.producer, -sign if node.op_type == "Sub" and number == 1 else sign
        if inner is not None and inner.op_type in _SUMS and is_standard(inner) and _is_inner(g, inner):
            open_sums.append((inner, own, 0))
        else:
            found.append((value, own))
    return found


def _conv_of(value: Value) -> Node | None:
    node = value.producer
    return node if node is not None and node.op_type == "Conv" and is_standard(node) else None


def _term(g: Rewriter, root: Node, value: Value, sign: int) -> _Term:
    """How a summand is computed."""
    plain, node = _Term(value, sign), value.producer
    if node is None or node.graph is not root.graph or not g.is_private(value) or not is_standard(node):
        return plain
    if node.op_type == "Conv" and _geometry(g, node) is not None:
        return replace(plain, source=node.inputs[0], conv=node)
    if node.op_type == "BatchNormalization" and node.inputs[0] is not None:
        channels = (node.inputs[0].shape or (0, 0))[1]
        factors = normalization_factors(g, node, channels) if isinstance(channels, int) else None
        if isinstance(factors, tuple):
            return replace(plain, source=node.inputs[0], factors=factors)
    return plain


def _as_image(term: _Term) -> _Term:
    """A summand that is the image itself."""
    if term.factors is not None:
        return term
    channels = (term.value.shape or (0, 0))[1]
    if not isinstance(channels, int) or not channels:
        return term
    return replace(term, source=term.value, factors=(np.ones(channels), np.zeros(channels)))


def _geometry(g: Rewriter, conv: Node) -> _Geometry | None:
    """Where its kernel stands, if weights and bias are constants."""
    weights, bias = g.constant_of(conv.inputs[1]), conv.inputs[2] if len(conv.inputs) > 2 else None
    if weights is None or len(weights.shape) < 3 or not weights.dtype.is_float or conv.attr("auto_pad", "NOTSET") != "NOTSET":
        return None
    if bias is not None and g.constant_of(bias) is None:
        return None
    rank = len(weights.shape) - 2
    strides, dilations, pads = (
        attr_ints(conv, name) or (default,) * size
        for name, default, size in (("strides", 1, rank), ("dilations", 1, rank), ("pads", 0, 2 * rank))
    )
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        return None
    return _Geometry(weights.shape[2:], strides, dilations, pads, int(conv.attr("group", 1)))


def _merge(g: Rewriter, terms: list[_Term]) -> _Merge | None:
    """The summands of one image that the widest kernel among them covers."""
    known = [(each, _geometry(g, each.conv)) for each in terms if each.conv is not None]
    convs = [(term, geometry) for term, geometry in known if geometry is not None]
    if not convs:
        return None
    widest, geometry = max(convs, key=lambda each: np.prod(each[1].kernel))
    weights = _kernel(g, widest)
    others: list[tuple[_Term, tuple[int, ...]]] = []
    images: list[tuple[_Term, tuple[int, ...]]] = []
    for term in terms:
        if term is widest:
            continue
        taps = _first_taps(g, term, geometry, weights)
        if taps is not None:
            is_image = term.conv is None and term.value is term.source
            (images if is_image else others).append((term, taps))
    if images and (others or geometry.groups == weights.shape[0]):
        others += images
    return _Merge(widest, tuple(others), geometry) if others else None


def _kernel(g: Rewriter, term: _Term) -> Tensor:
    assert term.conv is not None
    held = g.constant_of(term.conv.inputs[1])
    assert held is not None
    return held


def _first_taps(g: Rewriter, term: _Term, widest: _Geometry, weights: Tensor) -> tuple[int, ...] | None:
    """The tap of the widest kernel at which that of a summand begins; None if it is no part of it."""
    rank = len(widest.kernel)
    if term.conv is None:
        channels = weights.shape[1] * widest.groups
        if term.factors is None or channels != weights.shape[0] or len(term.factors[0]) != channels:
            return None
        own = _Geometry((1,) * rank, (1,) * rank, (1,) * rank, (0,) * (2 * rank), widest.groups)
    else:
        found, held = _geometry(g, term.conv), _kernel(g, term)
        if found is None or held.shape[:2] != weights.shape[:2] or held.dtype is not weights.dtype:
            return None
        own = found
    if own.strides != widest.strides or own.groups != widest.groups or len(own.kernel) != rank:
        return None
    taps = []
    for axis in range(rank):
        dilation = widest.dilations[axis]
        before = widest.pads[axis] - own.pads[axis]
        after = widest.pads[rank + axis] - own.pads[rank + axis]
        first, excess = divmod(before, dilation)
        spare = widest.kernel[axis] - own.kernel[axis]
        fits = own.kernel[axis] == 1 or own.dilations[axis] == dilation
        if not fits or excess or not 0 <= first <= spare or after != (spare - first) * dilation:
            return None
        taps.append(first)
    return tuple(taps)


def _weights(g: Rewriter, merge: _Merge) -> Reject | tuple[Array, Array, str]:
    """Kernel and bias of the whole, and where the kernel comes from."""
    terms = (merge.widest, *(term for term, _ in merge.others))
    held = [_kernel(g, each) for each in terms if each.conv is not None]
    dtype, outputs = held[0].dtype, held[0].shape[0]
    data = g.array(merge.widest.conv.inputs[1]) if merge.widest.conv is not None else None
    for term in terms:
        source = term.conv.inputs[1] if term.conv is not None else None
        if source is not None and len(source.uses) > 1 and _kernel(g, term).nbytes > SHARED:
            return Reject(f"the weights {source.name!r} are used elsewhere too")
    if data is None:
        return Reject("the weights cannot be read")
    wide = np.float64 if data.dtype == np.float64 else np.float32
    total: Any = np.array(data, wide) * merge.widest.sign
    shift = np.zeros(outputs)
    facts: list[Any] = [merge.widest.sign]
    for term, taps in ((merge.widest, None), *merge.others):
        bias = g.array(term.conv.inputs[2]) if term.conv is not None and len(term.conv.inputs) > 2 else None
        if bias is not None:
            shift += term.sign * np.asarray(bias, np.float64)
        if taps is None:
            continue
        facts.append((term.sign, taps))
        if term.conv is None:
            assert term.factors is not None
            scale, own_shift = term.factors
            shift += term.sign * own_shift
            rows = np.arange(outputs)
            with np.errstate(all="ignore"):
                total[(rows, rows % total.shape[1], *taps)] += (term.sign * scale).astype(wide)
            facts.append(scale.tobytes())
            continue
        part = g.array(term.conv.inputs[1])
        if part is None:
            return Reject("the weights cannot be read")
        window = tuple(slice(first, first + size) for first, size in zip(taps, part.shape[2:], strict=True))
        with np.errstate(all="ignore"):
            total[(slice(None), slice(None), *window)] += term.sign * np.asarray(part, wide)
    weights, bias = rounded(total, dtype), rounded(shift, dtype)
    if weights is None or bias is None:
        return Reject("the weights would overflow")
    return weights, bias, origin_of("merge branches", held, facts)
