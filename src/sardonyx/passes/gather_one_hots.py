"""The product of one-hot encodings and a matrix of weights is the rows of weights at the categories.

    Gemm(Concat(Reshape(OneHotEncoder(x)), y), w, c)   =>   Gemm(y, rows of w for y, c) + Gather(rows of w for x, position of x)

A table has a row of zeros behind the rows of its categories, for what is none of them. So a product with thousands of categories
reads one row of weights instead of all, and no encoding is written. Runs after EncodeTexts and ExpandLinearModels, before
ExpandFeatures. Refuses: encoders that must know every category, and those of several features at once; categories that stand
twice; few categories, whose encodings are written in no time; weights that are not finite, or no constants.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Model, Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.passes.classical_rule import ML, ScoreRewriter
from sardonyx.passes.protocol import PassResult, Reject, exchange_node
from sardonyx.passes.rewriter import all_graphs, dtype_of
from sardonyx.records import dataclass

_ENCODER: Final = "OneHotEncoder"
_LEAST: Final = 8  # categories
_INTEGERS: Final = (dtypes.INT64, dtypes.INT32)


class _Part(NamedTuple):
    """Some columns of a matrix: an encoding of categories, or a value."""

    value: Value
    width: int
    categories: tuple[int, ...]  # none: the columns are what they are


@dataclass(frozen=True)
class GatherOneHots:
    """Ensures: no product reads the encodings of many categories."""

    name: ClassVar[str] = "GatherOneHots"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset((_ENCODER,))

    def run(self, model: Model) -> PassResult:
        """Apply the rule wherever it matches, in subgraphs too."""
        graphs = all_graphs(model)
        if not any(_is_encoder(node) for graph in graphs for node in graph.nodes):
            return PassResult(False)
        g = ScoreRewriter(model, graphs)
        reasons: dict[str, None] = {}
        changes = 0
        for graph in g.graphs():
            changes += self._gather(g, graph, reasons)
        return PassResult(changes > 0, tuple(reasons), changes)

    def _gather(self, g: ScoreRewriter, graph: Graph, reasons: dict[str, None]) -> int:
        changes = 0
        for node in graph.nodes:
            if node.op_type not in ("Gemm", "MatMul") or node.domain != ONNX_DOMAIN:
                continue
            x = node.inputs[0]
            parts = None if x is None or x.shape is None or len(x.shape) != 2 else _parts(x)
            if parts is None or not any(part.categories for part in parts):
                continue
            g.at(node)
            made = _gathered(g, node, parts)
            changes += exchange_node(g, node, made, reasons)
        return changes


def _is_encoder(node: Node) -> bool:
    return node.op_type == _ENCODER and node.domain == ML


def _parts(value: Value) -> list[_Part] | None:
    """The columns of a matrix, or of one with an axis of size 1 in the middle; None if their number is not known."""
    shape = value.shape
    width = shape[-1] if shape else None
    if shape is None or not isinstance(width, int) or width < 1:
        return None
    node = value.producer
    plain = [_Part(value, width, ())]
    if node is None:
        return plain
    if _is_encoder(node):
        return [_Part(value, width, _categories(node))]
    x = node.inputs[0] if node.inputs else None
    if node.domain != ONNX_DOMAIN or x is None or x.shape is None:
        return plain
    if node.op_type == "Concat" and node.attr("axis") in (-1, len(shape) - 1):
        found: list[_Part] = []
        for each in node.inputs:
            parts = None if each is None else _parts(each)
            if parts is None:
                return None
            found += parts
        return found
    if node.op_type in ("Reshape", "Flatten", "Squeeze") and len(shape) == 2 and len(x.shape) == 3 and x.shape[1:] == (1, width):
        return _parts(x)
    return plain


def _categories(encoder: Node) -> tuple[int, ...]:
    """The categories of an encoder of one integer for each row that gives zeros for others; none if it is another one."""
    attrs, x = attribute_values(encoder), encoder.inputs[0]
    categories = tuple(attrs.get("cats_int64s") or ())
    if x is None or x.shape is None or not attrs["zeros"] or dtype_of(x) not in _INTEGERS:
        return ()
    has_one = len(x.shape) == 1 or (len(x.shape) == 2 and x.shape[1] == 1)
    is_worth_it = len(categories) >= _LEAST and len(set(categories)) == len(categories)
    return categories if has_one and is_worth_it else ()


def _gathered(g: ScoreRewriter, node: Node, parts: list[_Part]) -> Value | Reject:
    """What takes the place of a product."""
    attrs: dict[str, Any] = attribute_values(node) if node.op_type == "Gemm" else {}
    weights = g.array(node.inputs[1])
    if weights is None or weights.ndim != 2 or weights.dtype != np.float32 or attrs.get("transA"):
        return Reject("weights that are no constant matrix of float32")
    rows = weights.T if attrs.get("transB") else weights
    if len(rows) != sum(part.width for part in parts):
        return Reject(f"{len(rows)} rows of weights for {sum(part.width for part in parts)} columns")
    if not np.isfinite(rows).all():
        return Reject("weights that are not finite: zeros times them are none")
    alpha, beta = (np.float32(attrs.get(name, 1.0)) for name in ("alpha", "beta"))
    addend = node.inputs[2] if len(node.inputs) > 2 else None
    plain: list[_Part] = []
    plain_rows: list[Array] = []
    gathers: list[Value] = []
    first = 0
    for part in parts:
        own = rows[first : first + part.width]
        first += part.width
        if part.categories:
            table = np.concatenate([own * alpha, np.zeros((1, rows.shape[1]), np.float32)])
            gathers.append(g.op("Gather", g.constant(table, "table"), _position(g, part), axis=0))
        else:
            plain.append(part)
            plain_rows.append(own)
    if plain:
        columns = [part.value if len(part.value.shape or ()) == 2 else _as_matrix(g, part) for part in plain]
        left = columns[0] if len(columns) == 1 else g.op("Concat", *columns, axis=1)
        kept = g.constant(np.concatenate(plain_rows), "coefficients")
        if node.op_type == "Gemm":
            total = g.op("Gemm", left, kept, addend, alpha=float(alpha), beta=float(beta))
        else:
            total = g.op("MatMul", left, kept)
    else:
        total = gathers.pop(0)
        if addend is not None:
            total = g.op("Add", total, addend if beta == 1 else g.op("Mul", addend, g.scalar(addend, float(beta))))
    for each in gathers:
        total = g.op("Add", total, each)
    return total


def _as_matrix(g: ScoreRewriter, part: _Part) -> Value:
    return g.op("Reshape", part.value, g.int64s(-1, part.width))


def _position(g: ScoreRewriter, part: _Part) -> Value:
    """Which category each row is, a vector; -1, or one more than the last, if it is none."""
    encoder = part.value.producer
    assert encoder is not None
    assert encoder.inputs[0] is not None
    x = g.op("Reshape", g.cast(encoder.inputs[0], dtypes.INT64), g.int64s(-1))
    smallest, count = part.categories[0], len(part.categories)
    if part.categories != tuple(range(smallest, smallest + count)):
        return g.searched(x, np.array(part.categories, np.int64), np.array([*range(count), -1], np.int64))
    if smallest:  # whatever wraps around is no category either
        x = g.op("Sub", x, g.scalar(x, smallest))
    return g.op("Clip", x, g.scalar(x, -1), g.scalar(x, count))
