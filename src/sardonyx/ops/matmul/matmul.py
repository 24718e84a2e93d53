"""Matrix products: MatMul, Gemm, Einsum.

Floating point products run in BLAS; integer products too where float64 holds every partial sum exactly, which it does for all
products of 8-bit and 16-bit data. Otherwise they are computed in the integer type, wrapping around.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, format_shape
from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult, broadcast_dims, broadcast_shapes
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import einsum, matmul

_Size = TypeVar("_Size", int, Dim)


def exact_float(depth: int, *operands: Array) -> np.dtype[Any] | None:
    """The float type in which a sum of `depth` products of these integers is exact; None if there is none."""
    bound = float(max(depth, 1))
    for operand in operands:
        bound *= max(abs(float(operand.max(initial=0))), abs(float(operand.min(initial=0))))
    if bound < 2**24:
        return np.dtype(np.float32)
    return np.dtype(np.float64) if bound < 2**53 else None


def integer_matmul(a: Array, b: Array, dtype: Any = np.int32) -> Array:
    """The matrix product of integer arrays, as NumPy's matmul shapes it, in an integer type that wraps around."""
    exact = exact_float(a.shape[-1], a, b)
    if exact is not None:
        product = np.asarray(matmul(a.astype(exact), b.astype(exact)))
        return product.astype(np.int64).astype(dtype)
    with np.errstate(over="ignore"):
        return np.asarray(matmul(a.astype(dtype), b.astype(dtype)))


def matmul_core(a: Array, b: Array) -> Array:
    """MatMul for every numeric type; the result has the type of `a`."""
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"a scalar cannot be multiplied as a matrix: shapes are {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(f"shapes {a.shape} and {b.shape} do not fit: the last axis of A must be as long as the rows of B")
    if a.dtype.kind in "iu":
        return integer_matmul(a, b, a.dtype)
    with np.errstate(all="ignore"):
        return narrow(matmul(widen(a), widen(b)), a.dtype)


def matmul_shape(a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape of a matrix product with NumPy's rules."""
    if a is None or b is None:
        return None
    if not a or not b:
        raise ValueError(f"a scalar cannot be multiplied as a matrix: shapes are {format_shape(a)} and {format_shape(b)}")
    left: Shape = a if len(a) > 1 else (1, *a)
    right: Shape = b if len(b) > 1 else (*b, 1)
    if isinstance(left[-1], int) and isinstance(right[-2], int) and left[-1] != right[-2]:
        raise ValueError(
            f"shapes {format_shape(a)} and {format_shape(b)} do not fit: {left[-1]} columns against {right[-2]} rows"
        )
    batch = broadcast_shapes(left[:-2], right[:-2])
    if batch is None:
        return None
    return batch + ((left[-2],) if len(a) > 1 else ()) + ((right[-1],) if len(b) > 1 else ())


def expect_product(ctx: InferContext, a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape of a matrix product; states that the sizes agree."""
    result = matmul_shape(a, b)
    if a is None or b is None or result is None:
        return result
    ctx.expect_equal(a[-1], b[-2 if len(b) > 1 else 0])
    batch = result[: max(len(a), len(b), 2) - 2]
    for shape in (a, b):
        ctx.expect_broadcast(shape[:-2], batch)
    return result


def _infer_matmul(ctx: InferContext) -> InferResult:
    return expect_product(ctx, ctx.shape(0), ctx.shape(1))


MATMUL = op("MatMul", eval=matmul_core, infer=_infer_matmul)


def gemm_core(
    a: Array, b: Array, c: Array | None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Array:
    """alpha * A @ B + beta * C. Integer types truncate alpha and beta times a product towards zero."""
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"A and B must be matrices, their shapes are {a.shape} and {b.shape}")
    left, right = (a.T if transA else a), (b.T if transB else b)
    if left.shape[1] != right.shape[0]:
        raise ValueError(f"A has {left.shape[1]} columns but B has {right.shape[0]} rows (shapes {a.shape} and {b.shape})")
    shape = (left.shape[0], right.shape[1])
    if c is not None:
        try:
            np.broadcast_to(c, shape)
        except ValueError:
            raise ValueError(f"C of shape {c.shape} does not broadcast to the result's {shape}") from None
    with np.errstate(all="ignore"):
        if a.dtype.kind in "iu":
            return _integer_gemm(left, right, c, alpha=alpha, beta=beta)
        result = matmul(widen(left), widen(right))
        if alpha != 1.0:
            result *= result.dtype.type(alpha)
        if c is not None and beta != 0.0:
            bias = widen(c)
            result += bias if beta == 1.0 else bias * bias.dtype.type(beta)
        return narrow(result, a.dtype)


def _integer_gemm(a: Array, b: Array, c: Array | None, *, alpha: float, beta: float) -> Array:
    dtype = a.dtype
    result = integer_matmul(a, b, dtype)
    if alpha != 1.0:
        result = (result * alpha).astype(dtype)
    if c is not None and beta != 0.0:
        result = result + (c if beta == 1.0 else (c * beta).astype(dtype))
    return result.astype(dtype, copy=False)


def gemm_shape(a: Shape | None, b: Shape | None, transA: int | None, transB: int | None) -> Shape | None:
    """The shape of Gemm's result; a dimension of an operand whose rank is unknown makes it unknown."""
    for name, shape in (("A", a), ("B", b)):
        if shape is not None and len(shape) != 2:
            raise ValueError(f"{name} must be a matrix, its shape is {format_shape(shape)}")
    if a is None or b is None:
        return None
    rows, inner = (a[1], a[0]) if transA else (a[0], a[1])
    depth, columns = (b[1], b[0]) if transB else (b[0], b[1])
    if isinstance(inner, int) and isinstance(depth, int) and inner != depth:
        raise ValueError(f"A has {inner} columns but B has {depth} rows")
    return rows, columns


def infer_gemm(ctx: InferContext) -> InferResult:
    """Rows of A by columns of B; states that the sizes agree, those of C with the result, too."""
    a, b, c = ctx.shape(0), ctx.shape(1), ctx.shape(2) if ctx.has(2) else None
    result = gemm_shape(a, b, ctx.attr("transA"), ctx.attr("transB"))
    if a is not None and b is not None and result is not None:
        ctx.expect_equal(a[0 if ctx.attr("transA") else 1], b[1 if ctx.attr("transB") else 0])
        ctx.expect_broadcast(c or (), result)
    return result


def _gemm(a: Array, b: Array, c: Array | None = None, *, alpha: float, beta: float, transA: int, transB: int) -> Array:
    return gemm_core(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


GEMM = op("Gemm", eval=_gemm, infer=infer_gemm)


_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


def parse_equation(equation: str, operands: int) -> tuple[list[str], str]:
    """The terms of an Einsum equation and its result, which is completed where the equation leaves it out.

    An implicit result has the ellipsis first, then the letters that occur once, in alphabetical order (capitals first).
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != operands:
        raise ValueError(f"equation {equation!r} has {len(terms)} terms for {operands} inputs")
    for term in (*terms, right):
        if not _TERM.fullmatch(term):
            raise ValueError(f"equation {equation!r}: {term!r} is not a list of letters with at most one ellipsis")
    letters = left.replace("...", "")
    if not arrow:
        once = sorted(letter for letter in set(letters) - {","} if letters.count(letter) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    for letter in right.replace("...", ""):
        if letter not in letters or right.count(letter) > 1:
            problem = "twice in its result" if letter in letters else "only in its result"
            raise ValueError(f"equation {equation!r} has {letter!r} {problem}")
    return terms, right


def _einsum(*inputs: Array, equation: str) -> Array:
    terms, result = parse_equation(equation, len(inputs))
    for position, (x, term) in enumerate(zip(inputs, terms, strict=True)):
        own: dict[str, int] = {}
        for letter, size in term_sizes(term, x.shape, f"input {position} of shape {x.shape}")[0]:
            if own.setdefault(letter, size) != size:  # NumPy reads outside of the array if the first is empty
                raise ValueError(f"axis {letter!r} of input {position} has sizes {own[letter]} and {size}: expected equal ones")
    if "..." not in result:  # what the result does not name is summed, and NumPy needs letters for that
        covered = max((ellipsis_rank(term, x.ndim, "") for x, term in zip(inputs, terms, strict=True)), default=0)
        spare = [chr(code) for code in range(ord("A"), ord("z") + 1) if chr(code).isalpha() and chr(code) not in equation]
        if covered > len(spare):
            raise ValueError(f"equation {equation!r} leaves no letters free for the {covered} axes of its ellipsis")
        terms = [
            term.replace("...", "".join(spare[covered - ellipsis_rank(term, x.ndim, "") : covered]))
            for x, term in zip(inputs, terms, strict=True)
        ]
    with np.errstate(all="ignore"):
        total = einsum(f"{','.join(terms)}->{result}", *map(widen, inputs), optimize=len(inputs) > 1)
    return narrow(total, inputs[0].dtype)


def ellipsis_rank(term: str, rank: int, what: str) -> int:
    """How many axes the ellipsis of a term stands for."""
    named = len(term.replace("...", ""))
    if rank < named or (rank > named and "..." not in term):
        raise ValueError(f"{what} does not fit the term {term!r}, which has {named} axes")
    return rank - named


def axis_names(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The names of all axes of the operands and of the result; those of an ellipsis are numbers, counted from the last."""
    terms, result = parse_equation(equation, len(ranks))
    covered = [ellipsis_rank(term, rank, term) for term, rank in zip(terms, ranks, strict=True)]

    def named(term: str, covered_axes: int) -> tuple[str, ...]:
        before, dots, after = term.partition("...")
        return (*before, *(str(number) for number in range(covered_axes if dots else 0, 0, -1)), *after)

    return [named(term, covered_axes) for term, covered_axes in zip(terms, covered)], named(result, max(covered))


def term_sizes(term: str, shape: tuple[_Size, ...], what: str) -> tuple[list[tuple[str, _Size]], tuple[_Size, ...]]:
    """The letters of a term with the sizes they stand for, and the sizes of its ellipsis."""
    before, _, after = term.partition("...")
    first, end = len(before), len(before) + ellipsis_rank(term, len(shape), what)
    return list(zip(before + after, shape[:first] + shape[end:], strict=True)), shape[first:end]


def _infer_einsum(ctx: InferContext) -> InferResult:
    terms, result = parse_equation(ctx.attr("equation"), len(ctx.inputs))
    sizes: dict[str, Dim] = {}
    covered: Shape | None = ()
    used: list[tuple[Dim, str]] = []
    spans: list[Shape] = []
    for index, term in enumerate(terms):
        shape = ctx.shape(index)
        if shape is None:
            if "..." in term and "..." in result:
                return None
            continue
        named, span = term_sizes(term, shape, f"input {index} of shape {format_shape(shape)}")
        covered = broadcast_shapes(covered, span)
        own: dict[str, Dim] = {}
        for letter, dim in named:
            ctx.expect_equal(own.setdefault(letter, dim), dim)  # a diagonal: no axis of it is broadcast
            sizes[letter] = broadcast_dims(sizes.get(letter, 1), dim)
            used.append((dim, letter))
        spans.append(span)
    for dim, letter in used:
        ctx.expect_broadcast((dim,), (sizes[letter],))
    for span in spans:
        ctx.expect_broadcast(span, covered or ())
    dims: list[Dim] = []
    for part in re.findall(r"\.\.\.|[A-Za-z]", result):
        if part == "...":
            dims.extend(covered or ())
        else:
            dims.append(sizes[part] if part in sizes else ctx.fresh())
    return tuple(dims)


EINSUM = op("Einsum", eval=_einsum, infer=_infer_einsum, since=12)
