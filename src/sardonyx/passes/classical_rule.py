"""What passes over ai.onnx.ml have in common, and how scores are finished in operators of ONNX.

    class ExpandScaler(ClassicalRule):
        roots = frozenset(("Scaler",))

        def rewrite(self, g, node, attrs): ...     values in place of the node's outputs, or a Reject

Such a pass runs when all portable ones are done: new nodes are of one version of ONNX, whatever the model imports, so that rules
need not know how operators were written before. What a score becomes: `ops.ml.ml_scores`, whose cases are here one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.dtypes import DType
from sardonyx.ir.graph import Model, Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.ops.ml.key_lookup import slots_of
from sardonyx.passes.protocol import PassResult, Reject
from sardonyx.passes.rewriter import Rewriter, all_graphs, dtype_of

ML: Final = "ai.onnx.ml"
_OWN: Final = "sardonyx"
_FEW: Final = 24  # scores of a row that are worth more digits than they have in the end
_VERSION: Final = 18  # of the ONNX nodes that are made: axes of reductions are inputs from here on


class ScoreRewriter(Rewriter):
    """A rewriter with words for scores: columns, transforms, labels."""

    @property
    def version(self) -> int:
        """The ai.onnx version of new nodes."""
        return _VERSION

    def scalar(self, like: Value, value: float) -> Value:
        """A constant of the type of another value."""
        dtype = dtype_of(like)
        assert dtype is not None
        return self.constant(np.array(value, dtype.numpy), "number")

    def row(self, like: Value, values: Any) -> Value:
        """A constant with an element for each column, of the type of another value."""
        dtype = dtype_of(like)
        assert dtype is not None
        return self.constant(np.asarray(values).astype(dtype.numpy).reshape(1, -1), "row")

    def cast(self, value: Value, dtype: DType) -> Value:
        """A value as another element type."""
        return value if dtype_of(value) is dtype else self.op("Cast", value, to=dtype.onnx)

    def int64s(self, *values: int) -> Value:
        """A constant of int64."""
        return self.constant(np.array(values, np.int64), "numbers")

    def columns(self, value: Value, first: int, end: int) -> Value:
        """Some columns of a matrix."""
        return self.op("Slice", value, self.int64s(first), self.int64s(end), self.int64s(1))

    def column_as_vector(self, value: Value) -> Value:
        """A matrix of one column as a vector."""
        return self.op("Reshape", value, self.int64s(-1))

    def matrix(self, value: Value) -> Value | None:
        """The input of a model as a matrix, one row for each observation; None if its rank is not known."""
        rank = None if value.shape is None else len(value.shape)
        if rank == 1:
            return self.op("Reshape", value, self.int64s(1, -1))
        return value if rank == 2 else None

    def searched(self, x: Value, keys: Array, values: Array) -> Value:
        """The value of the key that each element is, out of a table of slots; the last value if it is none."""
        slots, table, empty = slots_of(keys, values[:-1], values[-1])
        return self.op("KeyLookup", x, self.constant(slots, "slots"), self.constant(table, "values"), domain=_OWN, empty=empty)

    # What becomes of scores

    def probit(self, scores: Value) -> Value:
        """See `ml_scores.probit`."""
        one, a = self.scalar(scores, 1.0), self.scalar(scores, 0.147)
        value = self.op("Sub", self.op("Mul", scores, self.scalar(scores, 2.0)), one)
        log = self.op("Log", self.op("Mul", self.op("Sub", one, value), self.op("Add", one, value)))
        half = self.op("Add", self.scalar(scores, 2 / (3.14159 * 0.147)), self.op("Mul", log, self.scalar(scores, 0.5)))
        inside = self.op("Sqrt", self.op("Sub", self.op("Mul", half, half), self.op("Div", log, a)))
        root = self.op("Sqrt", self.op("Sub", inside, half))
        signed = self.op("Where", self.op("Less", value, self.scalar(scores, 0.0)), self.op("Neg", root), root)
        return self.op("Mul", signed, self.scalar(scores, 1.41421356))

    def finely(self, scores: Value, function: Callable[[Value], Value]) -> Value:
        """A function in float64, so that its last bit is right: probabilities are few, and people compare them to 7 digits."""
        kind = dtype_of(scores)
        assert kind is not None
        return self.cast(function(self.cast(scores, dtypes.FLOAT64)), kind)

    def logistic(self, scores: Value) -> Value:
        """See `ml_scores.logistic`: below zero, 1 minus the rounded value above."""
        above = self.finely(self.op("Abs", scores), lambda wide: self.op("Sigmoid", wide))
        below = self.op("Sub", self.scalar(scores, 1.0), above)
        return self.op("Where", self.op("Less", scores, self.scalar(scores, 0.0)), below, above)

    def softmax_zero(self, scores: Value) -> Value:
        """See `ml_scores.softmax_zero`."""
        axis, zero = self.int64s(1), self.scalar(scores, 0.0)
        highest = self.op("ReduceMax", scores, axis)
        nonzero = self.op("Greater", self.op("Abs", scores), self.scalar(scores, 1e-7))
        powers = self.op("Where", nonzero, self.op("Exp", self.op("Sub", scores, highest)), zero)
        others = self.op("Mul", scores, self.op("Exp", self.op("Neg", highest)))
        return self.op("Div", self.op("Where", nonzero, powers, others), self.op("ReduceSum", powers, axis))

    def transformed(self, scores: Value, name: str, width: int) -> Value:
        """`post_transform` of a matrix with so many columns. A single one is left as it is except by PROBIT."""
        if name == "PROBIT":
            return self.probit(scores)
        if name == "NONE" or width < 2:
            return scores
        if name == "SOFTMAX" and width > _FEW:
            return self.op("Softmax", scores, axis=1)
        if name == "SOFTMAX":
            return self.finely(scores, lambda wide: self.op("Softmax", wide, axis=1))
        return self.logistic(scores) if name == "LOGISTIC" else self.softmax_zero(scores)

    def side_by_side(self, *columns: Value) -> Value:
        """Columns as a matrix."""
        return self.op("Concat", *columns, axis=1)

    def two_columns(self, score: Value, name: str, *, one_sign: bool) -> Value:
        """The scores of two classes from the one score of the second, a column; PROBIT leaves the second column 0."""
        if name == "PROBIT":
            return self.side_by_side(self.probit(score), self.op("Mul", score, self.scalar(score, 0.0)))
        negative = self.op("Neg", score)
        if name == "LOGISTIC":
            return self.side_by_side(self.logistic(negative), self.logistic(score))
        return self.side_by_side(self.op("Sub", self.scalar(score, 1.0), score) if one_sign else negative, score)

    def labels(self, best: Value, labels: Sequence[Any]) -> Value:
        """The labels at positions, int64."""
        if list(labels) == list(range(len(labels))):
            return best
        if all(isinstance(label, str) for label in labels):
            return self.op("ClassLabels", best, domain=_OWN, labels=tuple(labels))
        return self.op("Gather", self.int64s(*labels), best, axis=0)

    def is_above(self, score: Value, limit: float) -> Value:
        """1 where a score, a column, is above a limit, else 0: a vector of int64."""
        above = self.op("Greater", self.column_as_vector(score), self.scalar(score, limit))
        return self.cast(above, dtypes.INT64)

    def best(self, scores: Value) -> Value:
        """The position of the highest score of each row."""
        return self.op("ArgMax", scores, axis=1, keepdims=0)


class ClassicalRule:
    """A pass that replaces nodes of ai.onnx.ml, one at a time."""

    name: ClassVar[str]
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]]

    def rewrite(self, g: ScoreRewriter, node: Node, attrs: dict[str, Any]) -> Sequence[Value | None] | Reject:
        """What takes the place of the outputs, or why nothing does. New nodes go before the node."""
        raise NotImplementedError

    def run(self, model: Model) -> PassResult:
        """Apply the rule wherever it matches, in subgraphs too."""
        graphs = all_graphs(model)
        if not any(node.op_type in self.roots for graph in graphs for node in graph.nodes):
            return PassResult(False)
        g = ScoreRewriter(model, graphs)
        changes = 0
        reasons: dict[str, None] = {}
        for graph in g.graphs():
            for node in graph.nodes:
                if node.op_type not in self.roots or node.domain != ML:
                    continue
                g.at(node, expands=True)
                try:
                    made = self.rewrite(g, node, attribute_values(node))
                except ValueError as error:  # the operator's definition says the same, when it is asked to compute something
                    made = Reject(str(error))
                if isinstance(made, Reject):
                    reasons[f"{node.label}: {made.reason}"] = None
                    continue
                for old, new in zip(node.outputs, made):
                    if new is not None and (old.uses or g.is_output(old)):
                        g.replace(old, new)
                g.discard(node)
                changes += 1
        return PassResult(changes > 0, tuple(reasons), changes)
