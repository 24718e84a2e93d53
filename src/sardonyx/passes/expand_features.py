"""What prepares features and names results becomes operators of ONNX, which fuse with their neighbours.

    ai.onnx.ml::Scaler(x) {offset, scale}              =>   Mul(Sub(x, offset), scale)
    ai.onnx.ml::Imputer(x) {imputed_value_floats}      =>   Where(IsNaN(x), imputed, x)
    ai.onnx.ml::Binarizer(x) {threshold}               =>   Cast(Greater(x, threshold))
    ai.onnx.ml::Normalizer(x) {norm = "L1"}            =>   Div(x, sum of Abs(x)), added up from left to right
    ai.onnx.ml::ArrayFeatureExtractor(x, [2, 3])       =>   Slice(x), or Gather(x, indices)
    ai.onnx.ml::FeatureVectorizer(x, y)                =>   Concat(x, y)
    ai.onnx.ml::OneHotEncoder(x) {cats_int64s}         =>   Cast(Equal(Unsqueeze(x), cats))
    ai.onnx.ml::OneHotEncoder(x) {zeros = 0}           =>   sardonyx::KnownOneHot(x, cats), which refuses what is none of them
    ai.onnx.ml::LabelEncoder(x), few numbers as keys   =>   Where(Equal(x, key), value, Where(...))
    ai.onnx.ml::LabelEncoder(x), many integers         =>   Gather(values, x - smallest key), if keys lie close together
    ai.onnx.ml::LabelEncoder(x), many numbers          =>   sardonyx::KeyLookup(x, slots, values)

Runs after the portable passes. Refuses: strings, which Python looks up; attributes with a number for each feature where their
number is not known; categories that stand twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.ops.ml.ml_preprocess import attribute_array
from sardonyx.passes.classical_rule import ClassicalRule, ScoreRewriter
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import dtype_of
from sardonyx.records import dataclass

Made: TypeAlias = "Sequence[Value | None] | Reject"

_MOST_KEYS: Final = 40  # that an element is compared with one after the other
_LONGEST_TABLE: Final = 1 << 20  # with an entry for every integer between the keys
_SEARCHED: Final = (np.int64, np.int32, np.int16, np.float32, np.float64)  # types of keys that have hashes
_MOST_COLUMNS: Final = 24  # that are added up one by one


@dataclass(frozen=True)
class ExpandFeatures(ClassicalRule):
    """Ensures: of these operators only what works on strings, or refuses data."""

    name: ClassVar[str] = "ExpandFeatures"
    roots: ClassVar[frozenset[str]] = frozenset((
        "Scaler", "Imputer", "Binarizer", "Normalizer", "ArrayFeatureExtractor", "FeatureVectorizer", "OneHotEncoder",
        "LabelEncoder",
    ))  # fmt: skip

    def rewrite(self, g: ScoreRewriter, node: Node, attrs: dict[str, Any]) -> Made:
        x = node.inputs[0]
        are_labels = node.op_type == "ArrayFeatureExtractor" and g.constant_of(x) is not None  # a Gather takes strings, too
        for value in node.inputs:
            if value is None or value.shape is None or (dtype_of(value) in (None, dtypes.STRING) and not are_labels):
                return Reject("an input of strings, or of unknown rank")
        assert x is not None
        return _EXPANSIONS[node.op_type](g, node, x, attrs)


def _last(x: Value) -> int | None:
    """The size of the last axis, if it is known."""
    size = x.shape[-1] if x.shape else None
    return size if isinstance(size, int) else None


def _fitting(values: Sequence[Any], x: Value) -> bool:
    """Whether there is one number for all features, or one for each."""
    return len(values) == 1 or (len(values) == _last(x) and len(values) > 0)


def _scaler(g: ScoreRewriter, node: Node, x: Value, attrs: dict[str, Any]) -> Made:
    offset, scale = attrs.get("offset") or (0.0,), attrs.get("scale") or (1.0,)
    if not _fitting(offset, x) or not _fitting(scale, x):
        return Reject("offset or scale does not fit the features, or their number is not known")
    wide = dtypes.FLOAT64 if dtype_of(x) is dtypes.FLOAT64 else dtypes.FLOAT32
    result = g.cast(x, wide)
    result = g.op("Sub", result, g.constant(np.array(offset, wide.numpy), "offset"))
    result = g.op("Mul", result, g.constant(np.array(scale, wide.numpy), "scale"))
    return [g.cast(result, dtypes.FLOAT32)]


def _imputer(g: ScoreRewriter, node: Node, x: Value, attrs: dict[str, Any]) -> Made:
    dtype = dtype_of(x)
    assert dtype is not None
    values = attrs.get("imputed_value_floats" if dtype.is_float else "imputed_value_int64s") or ()
    if not values or (len(values) > 1 and x.shape and _last(x) is None):
        return Reject("no imputed values, or features of unknown number")
    imputed = g.constant(np.array(values if x.shape and len(values) == _last(x) else values[:1], dtype.numpy), "imputed")
    replaced = attrs["replaced_value_float"] if dtype.is_float else attrs["replaced_value_int64"]
    missing = g.op("IsNaN", x) if replaced != replaced else g.op("Equal", x, g.scalar(x, replaced))  # noqa: PLR0124
    chosen = g.op("Where", missing, imputed, x)
    return [chosen if x.shape else g.op("Reshape", chosen, g.constant(np.empty(0, np.int64), "shape"))]


def _binarizer(g: ScoreRewriter, node: Node, x: Value, attrs: dict[str, Any]) -> Made:
    dtype = dtype_of(x)
    assert dtype is not None
    compared = x if dtype.is_float else g.cast(x, dtypes.FLOAT64)
    return [g.cast(g.op("Greater", compared, g.scalar(compared, attrs["threshold"])), dtype)]


def _normalizer(g: ScoreRewriter, node: Node, x: Value, attrs: dict[str, Any]) -> Made:
    """In single precision and in the order of the definition: trees behind it compare its results with thresholds."""
    norm, rows = attrs["norm"], g.matrix(x)
    count = None if rows is None else _last(rows)
    if rows is None or not count or norm not in ("MAX", "L1", "L2"):
        return Reject(f"norm is {norm!r}, or the number of features is not known")
    values = g.cast(rows, dtypes.FLOAT32)

    def total(parts: Value) -> Value:
        """Sums from left to right, but for probabilities: no two engines have the same last bits of those."""
        if x.producer is not None and x.producer.op_type == "Softmax":
            return g.op("ReduceSum", parts, g.int64s(1))
        if count > _MOST_COLUMNS:
            return g.columns(g.op("CumSum", parts, g.int64s(1)), count - 1, count)
        result = g.columns(parts, 0, 1)
        for column in range(1, count):
            result = g.op("Add", result, g.columns(parts, column, column + 1))
        return result

    if norm == "L2":
        squares = g.cast(g.op("Mul", rows, rows), dtypes.FLOAT32)
        sums = total(squares)
    else:
        sums = g.op("ReduceMax", values, g.int64s(1)) if norm == "MAX" else total(g.op("Abs", values))
    is_zero = g.op("Equal", sums, g.scalar(sums, 0.0))
    size = g.op("Where", is_zero, g.scalar(sums, 1.0), sums)
    if norm == "L2":
        shares = g.op("Sqrt", g.op("Div", squares, size))
        signed = g.op("Where", g.op("Less", values, g.scalar(values, 0.0)), g.op("Neg", shares), shares)
        result = g.op("Where", is_zero, values, signed)
    else:
        result = g.op("Div", values, size)
    return [result if rows is x else g.op("Reshape", result, g.int64s(-1))]


def _array_feature_extractor(g: ScoreRewriter, node: Node, x: Value, attrs: dict[str, Any]) -> Made:
    given, count = node.inputs[1], _last(x)
    assert given is not None
    indices = g.array(given)
    if count is None or (indices is not None and not indices.size):
        return Reject("no indices, or features of unknown number")
    if indices is None:
        return [_at_indices(g, x, given, count)]
    wanted = indices.reshape(-1).astype(np.int64)
    if wanted.min() < 0 or wanted.max() >= count:
        return Reject(f"indices {wanted.min()} to {wanted.max()} of {count} features")
    rank = len(x.shape or ())
    if (np.diff(wanted) == 1).all():
        first = int(wanted[0])
        taken = g.op("Slice", x, g.int64s(first), g.int64s(first + len(wanted)), g.int64s(rank - 1))
    else:
        taken = g.op("Gather", x, g.int64s(*wanted.tolist()), axis=rank - 1)
    return [taken if rank > 1 else g.op("Reshape", taken, g.int64s(1, -1))]


def _at_indices(g: ScoreRewriter, x: Value, given: Value, count: int) -> Value:
    """Features at indices that are computed. Those that are negative are out of range here, unlike in a Gather."""
    indices = g.op("Reshape", given, g.int64s(-1))
    if given.producer is None or given.producer.op_type not in ("ArgMax", "ArgMin"):
        negative = g.op("Less", indices, g.scalar(indices, 0))
        indices = g.op("Where", negative, g.scalar(indices, count), indices)
    rank = len(x.shape or ())
    taken = g.op("Gather", x, indices, axis=rank - 1)
    return taken if rank > 1 else g.op("Reshape", taken, g.int64s(1, -1))


def _feature_vectorizer(g: ScoreRewriter, node: Node, x: Value, attrs: dict[str, Any]) -> Made:
    widths = attrs.get("inputdimensions")
    parts = []
    for number, value in enumerate(node.inputs):
        assert value is not None
        matrix = g.matrix(value)
        width = None if matrix is None else _last(matrix)
        wanted = width if widths is None or number >= len(widths) else widths[number]
        if matrix is None or width is None or wanted is None or not 0 < wanted <= width:
            return Reject("inputs that are not matrices, or too narrow")
        part = g.cast(matrix, dtypes.FLOAT32)
        parts.append(part if wanted == width else g.columns(part, 0, wanted))
    if widths is not None and len(widths) != len(parts):
        return Reject("inputdimensions does not fit the inputs")
    return [g.side_by_side(*parts)]


def _one_hot_encoder(g: ScoreRewriter, node: Node, x: Value, attrs: dict[str, Any]) -> Made:
    categories = attrs.get("cats_int64s") or ()
    if not categories or len(set(categories)) < len(categories):
        return Reject("no categories, or some twice")
    dtype = dtype_of(x)
    assert dtype is not None
    if not attrs["zeros"]:
        return [g.op("KnownOneHot", g.cast(x, dtypes.INT64), g.int64s(*categories), domain="sardonyx", texts=0)]
    wide = g.op("Unsqueeze", x, g.int64s(-1))
    found = g.op("Equal", g.cast(wide, dtypes.INT64), g.int64s(*categories))
    if dtype.is_float:  # no number is NaN's
        found = g.op("And", found, g.op("Not", g.op("IsNaN", wide)))
    return [g.cast(found, dtypes.FLOAT32)]


def _label_encoder(g: ScoreRewriter, node: Node, x: Value, attrs: dict[str, Any]) -> Made:
    if node.version < 2:
        return Reject("strings")
    kinds = ("floats", "int64s", "strings", "tensor")
    floats, integers, strings, tensor = (attrs.get(f"keys_{kind}") for kind in kinds)
    keys = attribute_array(floats, integers, strings, tensor, "keys")
    floats, integers, strings, tensor = (attrs.get(f"values_{kind}") for kind in kinds)
    values = attribute_array(floats, integers, strings, tensor, "values")
    dtype = dtype_of(x)
    assert dtype is not None
    if len(keys) != len(values) or keys.dtype == object or keys.dtype != dtype.numpy or not len(keys):
        return Reject("keys that do not fit the values or the input")
    choose = _choice(keys)
    if choose is None:
        return Reject(f"{len(keys)} keys")
    default = attrs.get("default_tensor")
    if default is None:
        kind = "string" if values.dtype == object else "float" if values.dtype.kind == "f" else "int64"
        default = np.array([attrs[f"default_{kind}"]], values.dtype)
    result: Array = np.concatenate([values, default.reshape(-1)[:1].astype(values.dtype)])
    if values.dtype == object:
        positions = choose(g, x, keys, np.arange(len(keys) + 1), node.version)
        return [g.labels(positions, result.tolist())]
    return [choose(g, x, keys, result, node.version)]


def _choice(keys: Array) -> Callable[[ScoreRewriter, Value, Array, Array, int], Value] | None:
    """How the value of a key is found, if not in Python."""
    if len(keys) <= _MOST_KEYS:
        return _chosen
    if keys.dtype.kind == "i" and int(keys.max()) - int(keys.min()) < min(4 * len(keys), _LONGEST_TABLE):
        return _looked_up
    return _searched if keys.dtype in _SEARCHED else None


def _is_nan(keys: Array) -> Array:
    return np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(keys.shape, bool)


def _looked_up(g: ScoreRewriter, x: Value, keys: Array, values: Array, version: int) -> Value:
    """The value out of a table with an entry for every integer from the smallest key to the largest, and one for all others."""
    lowest, highest = int(keys.min()), int(keys.max())
    size = highest - lowest + 1
    table = np.full(size + 1, values[-1], values.dtype)
    table[keys[::-1].astype(np.int64) - lowest] = values[-2::-1]  # of equal keys the first counts
    is_outside = g.op("Or", g.op("Less", x, g.scalar(x, lowest)), g.op("Greater", x, g.scalar(x, highest)))
    inside = g.cast(g.op("Where", is_outside, g.scalar(x, lowest), x), dtypes.INT64)
    positions = g.op("Sub", inside, g.scalar(inside, lowest))
    return g.op("Gather", g.constant(table, "table"), g.op("Where", is_outside, g.scalar(inside, size), positions))


def _searched(g: ScoreRewriter, x: Value, keys: Array, values: Array, version: int) -> Value:
    """The value out of a table of slots, which an element is searched in from its hash on."""
    if version < 4:
        numbers = ~_is_nan(keys)  # a NaN is no key
        keys, values = keys[numbers], np.concatenate([values[:-1][numbers], values[-1:]])
    return g.searched(x, keys, values)


def _chosen(g: ScoreRewriter, x: Value, keys: Array, values: Array, version: int) -> Value:
    """The value of the first key that an element is, or the last value."""
    result = g.constant(values[-1:].reshape(()), "default")
    for key, value in zip(keys[::-1], values[-2::-1]):
        if key != key:  # noqa: PLR0124
            if version < 4:
                continue
            is_key = g.op("IsNaN", x)
        else:
            is_key = g.op("Equal", x, g.constant(np.array(key), "key"))
        result = g.op("Where", is_key, g.constant(np.array(value), "value"), result)
    if result.constant is not None:  # no key that anything is equal to
        result = g.op("Where", g.op("Equal", x, x), result, result)
    return result


_EXPANSIONS: Final[dict[str, Callable[[ScoreRewriter, Node, Value, dict[str, Any]], Made]]] = {
    "Scaler": _scaler,
    "Imputer": _imputer,
    "Binarizer": _binarizer,
    "Normalizer": _normalizer,
    "ArrayFeatureExtractor": _array_feature_extractor,
    "FeatureVectorizer": _feature_vectorizer,
    "OneHotEncoder": _one_hot_encoder,
    "LabelEncoder": _label_encoder,
}
