"""Matrix products in the form that says most about them.

    Add(MatMul(a: f32[M,K], b: f32[K,N]), c: f32[N])      =>   Gemm(a, b, c)
    Gemm(Transpose(a), b)                                 =>   Gemm(a, b) {transA = 1}
    MatMul(a, Transpose(b)), last two axes swapped        =>   com.microsoft::FusedMatMul(a, b) {transB = 1}
    Mul(MatMul(Mul(q, 0.3), Mul(k, 0.3)), 2.0)            =>   com.microsoft::FusedMatMul(q, k) {alpha = 0.18}

Run after FoldConstants and the folding of scales into weights: what is constant is in the weights by then.
"""

from __future__ import annotations

from dataclasses import field
from math import isfinite
from typing import Any, ClassVar, Final

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.merge_transposes import permutation
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_FLOATS: Final = frozenset((dtypes.FLOAT32, dtypes.FLOAT64, dtypes.FLOAT16, dtypes.BFLOAT16))


@dataclass(frozen=True)
class _Sum:
    product: Node
    addend: Value


@dataclass(frozen=True)
class FormGemm(Rule[_Sum]):
    """A product of two matrices and an addend for every column are a Gemm."""

    name: ClassVar[str] = "FormGemm"
    ort_names: ClassVar[tuple[str, ...]] = ("MatMulAddFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Add",))

    def match(self, g: Rewriter, node: Node) -> _Sum | Reject | None:
        for value, addend in (node.inputs, node.inputs[::-1]):
            product = None if value is None else value.producer
            if product is not None and product.op_type == "MatMul" and is_standard(product) and addend is not None:
                return _Sum(product, addend)
        return None

    def check(self, g: Rewriter, found: _Sum) -> Any:
        a, b = found.product.inputs
        result = found.product.outputs[0]
        if a is None or b is None or len(a.shape or ()) != 2 or len(b.shape or ()) != 2 or result.shape is None:
            return Reject("the product is not one of two matrices")
        if dtype_of(result) not in _FLOATS:
            return Reject(f"the product is {result.type}")
        if not g.is_private(result):
            return Reject(f"the result of {found.product.label} is used elsewhere too")
        if found.addend.shape not in ((result.shape[1],), (1, result.shape[1])):
            return Reject(f"the addend is {found.addend.type}, not one number for each column")
        return None

    def rewrite(self, g: Rewriter, found: _Sum, facts: Any) -> None:
        g.replace(g.anchor.outputs[0], g.op("Gemm", *found.product.inputs, found.addend))


@dataclass(frozen=True)
class AbsorbTransposesInGemm(Rule[tuple[int, ...]]):
    """Transposes of matrices before a Gemm become its transA and transB."""

    name: ClassVar[str] = "AbsorbTransposesInGemm"
    ort_names: ClassVar[tuple[str, ...]] = ("GemmTransposeFusion",)
    roots: ClassVar[frozenset[str]] = frozenset(("Gemm",))

    def match(self, g: Rewriter, node: Node) -> tuple[int, ...] | Reject | None:
        positions = []
        for position in (0, 1):
            value = node.inputs[position]
            if value is not None and value.producer is not None and permutation(value.producer) == (1, 0):
                positions.append(position)
        return tuple(positions) or None

    def rewrite(self, g: Rewriter, found: tuple[int, ...], facts: Any) -> None:
        node = g.anchor
        inputs = list(node.inputs)
        changes = {}
        for position in found:
            transposed = inputs[position]
            assert transposed is not None
            assert transposed.producer is not None
            inputs[position] = transposed.producer.inputs[0]
            name = ("transA", "transB")[position]
            changes[name] = int(not node.attr(name, 0))
        g.replace(node.outputs[0], g.clone(node, inputs, **changes)[0])


@dataclass
class _Product:
    """A product with what was found around it."""

    end: Node
    inputs: list[Value]
    alpha: float = 1.0
    swapped: list[int] = field(default_factory=lambda: [0, 0])


@dataclass(frozen=True)
class FormFusedMatMul(Rule[_Product]):
    """Transposes of the last two axes and numbers before a product, and numbers after it, are part of FusedMatMul."""

    name: ClassVar[str] = "FormFusedMatMul"
    ort_names: ClassVar[tuple[str, ...]] = ("MatmulTransposeFusion", "MatMulScaleFusion")
    roots: ClassVar[frozenset[str]] = frozenset(("MatMul",))

    def match(self, g: Rewriter, node: Node) -> _Product | Reject | None:
        a, b = node.inputs
        if a is None or b is None or dtype_of(a) not in _FLOATS or min(len(a.shape or ()), len(b.shape or ())) < 2:
            return None
        found = _Product(node, [a, b])
        for position in (0, 1):
            self._look_before(g, found, position)
        self._look_after(g, found)
        return found if found.alpha != 1.0 or any(found.swapped) else None

    @staticmethod
    def _look_before(g: Rewriter, found: _Product, position: int) -> None:
        """Step over one Transpose and any number of scalings that serve this product only."""
        while True:
            value = found.inputs[position]
            maker = value.producer
            if maker is None or not g.is_private(value) or not is_standard(maker):
                return
            if maker.graph is not found.end.graph:  # done once there; in here perhaps in every iteration of a loop
                return
            perm = permutation(maker)
            source = maker.inputs[0]
            if perm is not None and source is not None:
                swap = (*range(len(perm) - 2), len(perm) - 1, len(perm) - 2)
                if len(perm) < 2 or perm != swap:
                    return
                found.swapped[position] ^= 1
                found.inputs[position] = source
                continue
            factor = _scaling(g, maker, value)
            if factor is None:
                return
            found.alpha *= factor[0]
            found.inputs[position] = factor[1]

    @staticmethod
    def _look_after(g: Rewriter, found: _Product) -> None:
        value = found.end.outputs[0]
        while g.is_private(value):
            reader = next(iter(value.uses))[0]
            factor = _scaling(g, reader, reader.outputs[0]) if reader.graph is found.end.graph else None
            if factor is None or factor[1] is not value:
                return
            found.alpha *= factor[0]
            found.end, value = reader, reader.outputs[0]

    def check(self, g: Rewriter, found: _Product) -> Any:
        if not isfinite(found.alpha) or (found.alpha and not 1e-30 < abs(found.alpha) < 1e30):
            return Reject(f"the factor is {found.alpha:g}")
        return None

    def rewrite(self, g: Rewriter, found: _Product, facts: Any) -> None:
        trans: dict[str, Any] = {name: 1 for name, swap in zip(("transA", "transB"), found.swapped, strict=True) if swap}
        alpha = found.alpha if found.alpha != 1.0 else None
        end = found.end
        g.replace(end.outputs[0], g.op("FusedMatMul", *found.inputs, domain=MICROSOFT, alpha=alpha, **trans))
        g.discard(end)


def _scaling(g: Rewriter, node: Node, result: Value) -> tuple[float, Value] | None:
    """The number a node multiplies a value by, and the value, if that changes neither type nor shape."""
    if node.op_type not in ("Mul", "Div") or not is_standard(node):
        return None
    first, second = node.inputs
    number, source = g.number(second), first
    if number is None and node.op_type == "Mul":
        number, source = g.number(first), second
    if number is None or source is None or source.shape is None or source.shape != result.shape:
        return None
    if node.op_type == "Div":
        return (1 / number, source) if number else None
    return number, source
