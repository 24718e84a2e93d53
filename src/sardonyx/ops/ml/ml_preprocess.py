"""Features in and labels out: the operators of ai.onnx.ml that prepare data for models and name their results.

A map is a dict. Its float values are float32 unless they are np.float64 objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.dims import Dim
from sardonyx.ir.types import MapType, PlainMaps, SequenceType, TensorType
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import InferContext, InferResult, same_as
from sardonyx.ops.ml.ml_scores import DOMAIN, labels_of, row_count, rows_of
from sardonyx.ops.ml.text_lookup import TextLookup

Array = NDArray[Any]


def _text_array(items: Sequence[str]) -> Array:
    result = np.empty(len(items), object)
    result[:] = list(items)
    return result


class _Positions:
    """Finds the position of each element of an array in a list of keys. The first of equal keys counts."""

    def __init__(self, keys: Array, nan_is_key: bool = False) -> None:
        self._nan = -1  # position of the key NaN, which equals no key otherwise
        self._texts: dict[Any, int] | None = None
        if keys.dtype == object:
            self._texts = {}
            for position, key in enumerate(keys.tolist()):
                self._texts.setdefault(key, position)
            return
        if keys.dtype.kind == "f":
            nans = np.flatnonzero(np.isnan(keys))
            if nan_is_key and len(nans):
                self._nan = int(nans[0])
        self._sorted, self._order = np.unique(keys, return_index=True)

    def find(self, values: Array) -> NDArray[np.intp]:
        """The position of each value; -1 where it is not a key."""
        if self._texts is not None:
            found = map(self._texts.get, values.reshape(-1).tolist(), repeat(-1))
            return np.fromiter(found, np.intp, values.size).reshape(values.shape)
        if not len(self._sorted):
            return np.full(values.shape, -1, np.intp)
        index = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        result = np.where(self._sorted[index] == values, self._order[index], -1)
        if self._nan >= 0:
            result = np.where(np.isnan(values), self._nan, result)
        return np.asarray(result, np.intp)


def _pick(positions: NDArray[np.intp], values: Array, default: Any) -> Array:
    """The value at each position, the default where it is -1."""
    table = np.empty(len(values) + 1, values.dtype)
    table[:-1] = values
    table[-1] = default
    return np.asarray(table[positions])


def _label_encoder_1(
    x: Array, *, classes_strings: Sequence[str] | None, default_int64: int, default_string: str, ctx: EvalContext
) -> Array:
    classes = _text_array(classes_strings or ())
    if x.dtype != object:
        return _pick(np.where((x >= 0) & (x < len(classes)), x, -1).astype(np.intp), classes, default_string)
    if "positions" not in ctx.state:
        ctx.state["positions"] = _Positions(classes)
    return _pick(ctx.state["positions"].find(x), np.arange(len(classes), dtype=np.int64), default_int64)


def attribute_array(
    floats: Sequence[float] | None, integers: Sequence[int] | None, strings: Sequence[str] | None, tensor: Array | None, what: str
) -> Array:
    """The keys or values of a LabelEncoder, whichever attribute holds them."""
    if tensor is not None:
        return tensor.reshape(-1)
    if strings is not None:
        return _text_array(strings)
    if integers is not None:
        return np.array(integers, np.int64)
    if floats is not None:
        return np.array(floats, np.float32)
    raise ValueError(f"there are no {what}: set one of {what}_strings, {what}_int64s, {what}_floats or {what}_tensor")


def _label_encoder(
    x: Array,
    *,
    default_float: float,
    default_int64: int,
    default_string: str,
    default_tensor: Array | None,
    keys_floats: Sequence[float] | None,
    keys_int64s: Sequence[int] | None,
    keys_strings: Sequence[str] | None,
    keys_tensor: Array | None,
    values_floats: Sequence[float] | None,
    values_int64s: Sequence[int] | None,
    values_strings: Sequence[str] | None,
    values_tensor: Array | None,
    ctx: EvalContext,
) -> Array:
    if "table" not in ctx.state:
        keys = attribute_array(keys_floats, keys_int64s, keys_strings, keys_tensor, "keys")
        values = attribute_array(values_floats, values_int64s, values_strings, values_tensor, "values")
        if len(keys) != len(values):
            raise ValueError(f"there are {len(keys)} keys and {len(values)} values: they must agree")
        if keys.dtype != x.dtype:
            found, expected = dtypes.from_numpy(x.dtype), dtypes.from_numpy(keys.dtype)
            raise ValueError(f"the input is {found} but the keys are {expected}: they must agree")
        ctx.state["table"] = _Positions(keys, nan_is_key=ctx.version >= 4), values
    positions, values = ctx.state["table"]
    if default_tensor is not None:
        default: Any = default_tensor.reshape(-1)[0]
    elif values.dtype == object:
        default = default_string
    else:
        default = default_float if values.dtype.kind == "f" else default_int64
    return _pick(positions.find(x), values, default)


def _infer_label_encoder(ctx: InferContext) -> InferResult:
    if ctx.version < 2:
        dtype = dtypes.INT64 if ctx.dtype(0) is dtypes.STRING else dtypes.STRING
    elif (tensor := ctx.attr("values_tensor")) is not None:
        dtype = dtypes.from_numpy(tensor.dtype)
    elif ctx.attr("values_strings") is not None:
        dtype = dtypes.STRING
    else:
        dtype = dtypes.INT64 if ctx.attr("values_int64s") is not None else dtypes.FLOAT32
    return TensorType(dtype, ctx.shape(0))


op("LabelEncoder", domain=DOMAIN, eval=_label_encoder_1, infer=_infer_label_encoder, traits=Trait.ELEMENTWISE)
op("LabelEncoder", domain=DOMAIN, since=2, eval=_label_encoder, infer=_infer_label_encoder, traits=Trait.ELEMENTWISE)


def _category_mapper(
    x: Array,
    *,
    cats_int64s: Sequence[int] | None,
    cats_strings: Sequence[str] | None,
    default_int64: int,
    default_string: str,
) -> Array:
    numbers, texts = np.array(cats_int64s or (), np.int64), _text_array(cats_strings or ())
    if len(numbers) != len(texts):
        raise ValueError(f"cats_int64s has {len(numbers)} entries and cats_strings {len(texts)}: they must agree")
    if x.dtype == object:
        return _pick(_Positions(texts).find(x), numbers, default_int64)
    return _pick(_Positions(numbers).find(x), texts, default_string)


def _infer_category_mapper(ctx: InferContext) -> InferResult:
    return TensorType(dtypes.INT64 if ctx.dtype(0) is dtypes.STRING else dtypes.STRING, ctx.shape(0))


op("CategoryMapper", domain=DOMAIN, eval=_category_mapper, infer=_infer_category_mapper, traits=Trait.ELEMENTWISE)


def _one_hot_encoder(x: Array, *, cats_int64s: Sequence[int] | None, cats_strings: Sequence[str] | None, zeros: int) -> Array:
    categories = _text_array(cats_strings or ()) if x.dtype == object else np.array(cats_int64s or (), np.int64)
    if not len(categories):
        wanted = "cats_strings" if x.dtype == object else "cats_int64s"
        raise ValueError(f"the input is {dtypes.from_numpy(x.dtype)} but there is no {wanted}")
    with np.errstate(invalid="ignore"):
        values = x if x.dtype == object else x.astype(np.int64)
    found = _Positions(categories).find(values)
    if not zeros and (found < 0).any():
        raise ValueError(f"{values[found < 0].reshape(-1)[0]!r} is not a category, and zeros is 0")
    return np.asarray(found[..., None] == np.arange(len(categories))).astype(np.float32)


def _infer_one_hot_encoder(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    count = len(ctx.attr("cats_strings") or ctx.attr("cats_int64s") or ())
    return None if shape is None else (*shape, count)


op("OneHotEncoder", domain=DOMAIN, eval=_one_hot_encoder, infer=_infer_one_hot_encoder)


def _array_feature_extractor(x: Array, indices: Array) -> Array:
    if x.ndim == 0 or indices.size == 0:
        raise ValueError(f"the input has shape {x.shape} and the indices {indices.shape}; both must have elements to select")
    wanted = indices.reshape(-1)
    if wanted.min() < 0 or wanted.max() >= x.shape[-1]:
        raise IndexError(f"indices {wanted.min()} to {wanted.max()} are out of range for {x.shape[-1]} features")
    taken = np.take(x, wanted, axis=-1)
    return taken.reshape(1, -1) if x.ndim == 1 else taken


def _infer_array_feature_extractor(ctx: InferContext) -> InferResult:
    shape, indices = ctx.shape(0), ctx.shape(1)
    if shape is None or indices is None:
        return None
    count: Dim = 1
    for dim in indices:
        count = count * dim
    ctx.expect_filled(count)
    return (1, count) if len(shape) == 1 else (*shape[:-1], count)


op("ArrayFeatureExtractor", domain=DOMAIN, eval=_array_feature_extractor, infer=_infer_array_feature_extractor)


def _binarizer(x: Array, *, threshold: float) -> Array:
    limit = x.dtype.type(threshold) if x.dtype.kind == "f" else np.float64(threshold)
    return np.asarray(x > limit).astype(x.dtype)


op("Binarizer", domain=DOMAIN, eval=_binarizer, infer=same_as(0), traits=Trait.ELEMENTWISE)


def _per_feature(values: Sequence[Any], x: Array, dtype: Any, what: str) -> Array:
    """An attribute with one number for all features, or one for each, which are the last axis."""
    if len(values) != 1 and (x.ndim == 0 or len(values) != x.shape[-1]):
        raise ValueError(f"{what} has {len(values)} entries; expected 1, or one for each feature of the input {x.shape}")
    return np.array(values, dtype)


def _imputed(values: Sequence[Any] | None, x: Array, what: str) -> Array:
    """One value for each feature; where there are more or fewer, ONNX Runtime takes the first for all, and so does this."""
    if not values:
        raise ValueError(f"{what} is empty; expected one value, or one for each feature of the input {x.shape}")
    return np.array(values if x.ndim and len(values) == x.shape[-1] else values[:1], x.dtype)


def _imputer(
    x: Array,
    *,
    imputed_value_floats: Sequence[float] | None,
    imputed_value_int64s: Sequence[int] | None,
    replaced_value_float: float,
    replaced_value_int64: int,
) -> Array:
    if x.dtype.kind == "f":
        imputed = _imputed(imputed_value_floats, x, "imputed_value_floats")
        missing = np.isnan(x) if np.isnan(replaced_value_float) else x == x.dtype.type(replaced_value_float)
    else:
        imputed = _imputed(imputed_value_int64s, x, "imputed_value_int64s")
        missing = x == replaced_value_int64
    return np.where(missing, imputed, x)


def _scaler(x: Array, *, offset: Sequence[float] | None, scale: Sequence[float] | None) -> Array:
    wide = np.float64 if x.dtype == np.float64 else np.float32
    centred = x.astype(wide) - _per_feature(offset or (0.0,), x, wide, "offset")
    with np.errstate(all="ignore"):
        return np.asarray(centred * _per_feature(scale or (1.0,), x, wide, "scale")).astype(np.float32)


def _normalizer(x: Array, *, norm: str) -> Array:
    """Each row divided by its largest value, the sum of its magnitudes or its length; a row where that is 0 stays.

    In single precision and in ONNX Runtime's order, to the last bit: trees behind it compare its results with thresholds.
    """
    rows = rows_of(x)
    values: Array = rows.astype(np.float32)
    with np.errstate(all="ignore"):
        if norm == "MAX":
            return _divided(values, values.max(axis=1, keepdims=True, initial=-np.inf)).reshape(x.shape)
        if norm == "L1":
            return _divided(values, _row_sums(np.abs(values))).reshape(x.shape)
        if norm == "L2":
            squares: Array = (rows * rows).astype(np.float32)
            sums = _row_sums(squares)
            shares = np.sqrt(_divided(squares, sums))
            return np.where(sums == 0, values, np.copysign(shares, values)).astype(np.float32).reshape(x.shape)
    raise ValueError(f"norm is {norm!r}; expected MAX, L1 or L2")


def _row_sums(rows: Array) -> Array:
    """Sums from left to right: NumPy's own sum adds in pairs."""
    return np.add.accumulate(rows, axis=1)[:, -1:] if rows.shape[1] else np.zeros((len(rows), 1), rows.dtype)


def _divided(rows: Array, sizes: Array) -> Array:
    return np.asarray(rows / np.where(sizes == 0, np.float32(1), sizes), np.float32)


op("Imputer", domain=DOMAIN, eval=_imputer, infer=same_as(0))
op("Scaler", domain=DOMAIN, eval=_scaler, infer=same_as(0))
op("Normalizer", domain=DOMAIN, eval=_normalizer, infer=same_as(0))


def _feature_vectorizer(*inputs: Array, inputdimensions: Sequence[int] | None) -> Array:
    if inputdimensions is not None and len(inputdimensions) != len(inputs):
        raise ValueError(f"inputdimensions has {len(inputdimensions)} entries but there are {len(inputs)} inputs")
    parts = []
    for index, x in enumerate(inputs):
        if x.ndim == 0:
            raise ValueError(f"input {index} is a scalar; expected at least one axis")
        rows = (x.reshape(1, -1) if x.ndim == 1 else x.reshape(len(x), int(np.prod(x.shape[1:])))).astype(np.float32)
        width = rows.shape[1] if inputdimensions is None else inputdimensions[index]
        fitted = np.zeros((len(rows), width), np.float32)
        kept = min(width, rows.shape[1])
        fitted[:, :kept] = rows[:, :kept]
        parts.append(fitted)
    if len({len(part) for part in parts}) > 1:
        raise ValueError(f"the inputs have {', '.join(str(len(part)) for part in parts)} rows: they must agree")
    return np.concatenate(parts, axis=1)


def _infer_feature_vectorizer(ctx: InferContext) -> InferResult:
    first = ctx.shape(0, least=1)
    rows: Dim = ctx.fresh("rows") if first is None else 1 if len(first) == 1 else first[0]
    widths = ctx.attr("inputdimensions")
    if widths is not None and len(widths) != len(ctx.inputs):
        raise ValueError(f"inputdimensions has {len(widths)} elements, expected {len(ctx.inputs)}: one for each input")
    total: Dim = 0
    for index in range(len(ctx.inputs)):
        shape = ctx.shape(index)
        width: Dim = ctx.fresh()
        if widths is not None:
            width = widths[index]
        elif shape is not None:
            width = 1
            for dim in shape if len(shape) == 1 else shape[1:]:
                width = width * dim
        total = total + width
    return (rows, total)


op("FeatureVectorizer", domain=DOMAIN, eval=_feature_vectorizer, infer=_infer_feature_vectorizer)

_CASTS = {"TO_FLOAT": dtypes.FLOAT32, "TO_INT64": dtypes.INT64, "TO_STRING": dtypes.STRING}


def _cast_value(value: Any, dtype: DType) -> Any:
    if dtype is dtypes.STRING:
        return value if isinstance(value, str) else f"{float(value):f}"
    return float(value) if dtype is dtypes.FLOAT32 else int(value)


def _cast_map(x: dict[int, Any], *, cast_to: str, map_form: str, max_map: int) -> Array:
    if cast_to not in _CASTS:
        raise ValueError(f"cast_to is {cast_to!r}; expected {', '.join(_CASTS)}")
    if map_form not in ("DENSE", "SPARSE"):
        raise ValueError(f"map_form is {map_form!r}; expected DENSE or SPARSE")
    dtype = _CASTS[cast_to]
    keys = sorted(x)
    if map_form == "DENSE":
        result = np.empty(len(keys), dtype.numpy)
        result[:] = [_cast_value(x[key], dtype) for key in keys]
        return result.reshape(1, -1)
    if keys and keys[0] < 0:
        raise ValueError(f"the map has the key {keys[0]}; a sparse map needs keys that are not negative")
    result = np.full(max_map, "0.f" if dtype is dtypes.STRING else 0, dtype.numpy)
    for key in keys:
        if key < max_map:
            result[key] = _cast_value(x[key], dtype)
    return result.reshape(1, -1)


def _infer_cast_map(ctx: InferContext) -> InferResult:
    width: Dim = ctx.fresh() if ctx.attr("map_form") == "DENSE" else ctx.attr("max_map")
    return TensorType(_CASTS.get(ctx.attr("cast_to"), dtypes.FLOAT32), (1, width))


op("CastMap", domain=DOMAIN, eval=_cast_map, infer=_infer_cast_map)


def _dict_vectorizer(
    x: dict[Any, Any], *, int64_vocabulary: Sequence[int] | None, string_vocabulary: Sequence[str] | None
) -> Array:
    vocabulary: Sequence[Any] = string_vocabulary or int64_vocabulary or ()
    sample = next(iter(x.values()), 0.0)
    if isinstance(sample, str):
        dtype: Any = object
    elif isinstance(sample, (int, np.integer)):
        dtype = np.int64
    else:
        dtype = np.float64 if isinstance(sample, np.float64) else np.float32
    result = np.full(len(vocabulary), "" if dtype is object else 0, dtype)
    for position, key in enumerate(vocabulary):
        if key in x:
            result[position] = x[key]
    return result.reshape(1, -1)


def _infer_dict_vectorizer(ctx: InferContext) -> InferResult:
    width = len(ctx.attr("string_vocabulary") or ctx.attr("int64_vocabulary") or ())
    type_ = ctx.type(0)
    if isinstance(type_, MapType) and isinstance(type_.value, TensorType):
        return TensorType(type_.value.dtype, (1, width))
    return (1, width)


op("DictVectorizer", domain=DOMAIN, eval=_dict_vectorizer, infer=_infer_dict_vectorizer)


_Rows: TypeAlias = Iterable[Iterable[float]]
_MOST_KEYS: Final = 200  # of dictionaries that are written out in code
_FEW_ROWS: Final = 8


def _dictionaries(labels: Sequence[Any]) -> Callable[[_Rows], list[dict[Any, float]]]:
    """What makes a dictionary with these keys of each row.

    It is a function `[{k0: v0, k1: v1} for v0, v1, in rows]`, several times as fast as `dict(zip(labels, row))`: models for
    thousands of rows spend more time with dictionaries than with anything else.
    """
    if not 0 < len(labels) <= _MOST_KEYS:
        return lambda rows: [dict(zip(labels, row, strict=True)) for row in rows]
    numbers = range(len(labels))
    items, values = ", ".join(f"k{n}: v{n}" for n in numbers), "".join(f"v{n}, " for n in numbers)
    keys = ", ".join(f"k{n}=k{n}" for n in numbers)
    made: dict[str, Any] = {f"k{n}": label for n, label in enumerate(labels)}
    exec(f"def dictionaries(rows, {keys}):\n    return [{{{items}}} for {values}in rows]", made)
    found: Callable[[_Rows], list[dict[Any, float]]] = made["dictionaries"]
    return found


def _zip_map(
    x: Array, *, classlabels_int64s: Sequence[int] | None, classlabels_strings: Sequence[str] | None, ctx: EvalContext
) -> list[dict[Any, float]]:
    rows = rows_of(x)
    if "keys" not in ctx.state:
        labels = labels_of(classlabels_int64s, classlabels_strings).tolist()
        ctx.state["keys"] = len(labels), _dictionaries(labels)
    count, dictionaries = ctx.state["keys"]
    if count != rows.shape[1]:
        raise ValueError(f"the input has {rows.shape[1]} columns but there are {count} class labels")
    if len(rows) <= _FEW_ROWS or not count:
        return PlainMaps(dictionaries(rows.tolist()))
    return PlainMaps(dictionaries(zip(*(column.tolist() for column in rows.T))))


def _infer_zip_map(ctx: InferContext) -> InferResult:
    row_count(ctx)
    key = dtypes.STRING if ctx.attr("classlabels_strings") else dtypes.INT64
    return SequenceType(MapType(key, TensorType(dtypes.FLOAT32, None)))


op("ZipMap", domain=DOMAIN, eval=_zip_map, infer=_infer_zip_map, traits=Trait.QUIET)


def _class_labels(positions: Array, *, labels: Sequence[str], ctx: EvalContext) -> Array:
    """The labels at positions: what passes make of the end of a classifier."""
    if "table" not in ctx.state:
        ctx.state["table"] = _text_array(labels)
    return np.asarray(ctx.state["table"][positions])


op("ClassLabels", domain="sardonyx", eval=_class_labels, infer=same_as(0), traits=Trait.QUIET)


def _infer_text_positions(ctx: InferContext) -> InferResult:
    return TensorType(dtypes.INT64, ctx.shape(0))


def _text_positions(texts: Array, *, keys: Sequence[str], ctx: EvalContext) -> Array:
    """What passes make of the beginning of an encoder of texts."""
    if "find" not in ctx.state:
        ctx.state["find"] = TextLookup(keys)
    found: Array = ctx.state["find"](texts)
    return found


op("TextPositions", domain="sardonyx", eval=_text_positions, infer=_infer_text_positions)
