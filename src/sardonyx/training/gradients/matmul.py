"""Gradients of matrix products: each operand's is a product of the result's with the other operand, transposed."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import Shape, TensorType
from sardonyx.training.gradients.rules import Backward, dtype_of, gradient

Results = Sequence[Value | None]


def _swapped(b: Backward, value: Value, rank: int) -> Value:
    """The last two axes exchanged."""
    return b.Transpose(value, perm=[*range(rank - 2), rank - 1, rank - 2])


@gradient("MatMul")
def _matmul(b: Backward) -> Results:
    return product_gradients(b, b.dy())


@gradient("FusedMatMul", domain="com.microsoft")
def _fused_matmul(b: Backward) -> Results:
    """alpha * A' B', where A' and B' may be transposed."""
    if b.attr("transBatchA") or b.attr("transBatchB"):
        b.refuse("it transposes batches")
    alpha, dy = b.attr("alpha"), b.dy()
    if alpha != 1.0:
        dy = (b.d() * alpha).value
    left, right = bool(b.attr("transA")), bool(b.attr("transB"))
    sides = [_swapped(b, b.x(i), b.rank(b.x(i))) if transposed else b.x(i) for i, transposed in enumerate((left, right))]
    shapes = []
    for i, transposed in enumerate((left, right)):
        shape = b.shape(b.x(i))
        shapes.append((*shape[:-2], shape[-1], shape[-2]) if transposed else shape)
    for side, shape, i in zip(sides, shapes, (0, 1)):
        side.type = TensorType(dtype_of(b.x(i)), shape)
    found = product_gradients(b, dy, sides[0], sides[1])
    return [
        _swapped(b, d, b.rank(b.x(i))) if d is not None and transposed else d
        for i, (d, transposed) in enumerate(zip(found, (left, right)))
    ]


def product_gradients(b: Backward, dy: Value, a: Value | None = None, c: Value | None = None) -> list[Value | None]:
    """The gradients of both operands of a MatMul."""
    a, c = a or b.x(0), c or b.x(1)
    left, right = b.rank(a), b.rank(c)
    wide = dy
    if right == 1:
        wide = b.Unsqueeze(wide, b.ints(-1))
    if left == 1:
        wide = b.Unsqueeze(wide, b.ints(-2))
    batch = b.shape(b.y())[: max(left, right) - 2] if max(left, right) > 2 else ()
    results: list[Value | None] = [None, None]
    if b.wants(0):
        if right == 1:
            d = b.Mul(wide, c)  # an outer product
        else:
            d = b.MatMul(wide, _swapped(b, c, right))
        if left == 1:
            d = b.Squeeze(d, b.ints(-2))
            full = (*batch, b.shape(a)[0])
        else:
            full = (*batch, *b.shape(a)[-2:])
        results[0] = b.sum_to(d, full, a)
    if b.wants(1):
        results[1] = _of_right(b, a, c, wide, batch)
    return results


def _of_right(b: Backward, a: Value, c: Value, wide: Value, batch: Shape) -> Value:
    left, right = b.rank(a), b.rank(c)
    if right == 2 and left > 2:  # all rows of A are rows of one matrix: one product instead of one for each batch
        rows = b.Reshape(a, b.Concat(b.ints(-1), b.sizes(a, left - 1), axis=0))
        columns = b.Reshape(wide, b.Concat(b.ints(-1), b.sizes(c, 1), axis=0))
        return b.g.op("Gemm", rows, columns, transA=1)
    if left == 1:
        d = b.Mul(b.Unsqueeze(a, b.ints(-1)), wide)
    else:
        d = b.MatMul(_swapped(b, a, left), wide)
    if right == 1:
        d = b.Squeeze(d, b.ints(-1))
        return b.sum_to(d, (*batch, b.shape(c)[0]), c)
    return b.sum_to(d, (*batch, *b.shape(c)[-2:]), c)


@gradient("Gemm")
def _gemm(b: Backward) -> Results:
    alpha, beta = b.attr("alpha"), b.attr("beta")
    left, right = bool(b.attr("transA")), bool(b.attr("transB"))
    dy, a, c = b.dy(), b.x(0), b.x(1)
    results: list[Value | None] = [None, None, None]
    if b.wants(0):
        found = (c, dy, right, True) if left else (dy, c, False, not right)
        results[0] = b.g.op("Gemm", found[0], found[1], alpha=alpha, transA=int(found[2]), transB=int(found[3]))
    if b.wants(1):
        found = (dy, a, True, left) if right else (a, dy, not left, False)
        results[1] = b.g.op("Gemm", found[0], found[1], alpha=alpha, transA=int(found[2]), transB=int(found[3]))
    if b.has(2) and b.wants(2):
        scaled = dy if beta == 1.0 else (b.d() * beta).value
        results[2] = b.sum_to(scaled, b.y().shape, b.x(2))
    return results


def transposed_product(b: Backward, product: Node) -> Value:
    """The transpose of a Gemm of two operands: the product of both, transposed, in the other order; no copy is made."""
    if len(product.inputs) > 2 and product.inputs[2] is not None:
        return b.Transpose(product.outputs[0])
    left, right = product.inputs[:2]
    assert left is not None
    assert right is not None
    first, second = 1 - int(product.attr("transB", 0)), 1 - int(product.attr("transA", 0))
    return b.g.op("Gemm", right, left, alpha=float(product.attr("alpha", 1.0)), transA=first, transB=second)


@gradient("Einsum")
def _einsum(b: Backward) -> Results:
    """The gradient of an operand is an Einsum of the result's with the other operands."""
    equation = b.attr("equation").replace(" ", "")
    if "." in equation:
        b.refuse("its equation has an ellipsis")
    if "->" not in equation:
        letters = [each for each in equation if each.isalpha()]
        equation += "->" + "".join(sorted(each for each in set(letters) if letters.count(each) == 1))
    given, result = equation.split("->")
    terms = given.split(",")
    results: list[Value | None] = []
    for index, term in enumerate(terms):
        if not b.wants(index):
            results.append(None)
            continue
        if len(set(term)) < len(term):
            b.refuse(f"{term!r} names an axis twice")
        others = [(terms[i], b.x(i)) for i in range(len(terms)) if i != index]
        known = set(result).union(*(text for text, _ in others)) if others else set(result)
        kept = "".join(letter for letter in term if letter in known)
        left = ",".join([result, *(text for text, _ in others)])
        d = b.g.op("Einsum", b.dy(), *(value for _, value in others), equation=f"{left}->{kept}")
        if kept != term:  # summed over in the product: the same gradient for every element
            missing = [axis for axis, letter in enumerate(term) if letter not in known]
            d = b.Expand(b.Unsqueeze(d, b.ints(*missing)), b.Shape(b.x(index)))
        results.append(d)
    return results
