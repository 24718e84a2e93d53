"""Random tensors.

A node with a seed has a generator of its own, which lives as long as the session: two sessions give the same series of results,
two runs of one session different ones. Nodes without a seed share one generator; `set_seed` restarts it.
NumPy's generators lock themselves for the time of a call, so several threads may draw from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import InferContext, InferResult

Array = NDArray[Any]
_WIDEST: Final = float(np.finfo(np.float32).max)  # of the ranges that float32 can hold


def _new_generator(seed: int | None = None) -> np.random.Generator:
    """A generator of the kind that draws fastest."""
    return np.random.Generator(np.random.SFC64(seed))


_shared = _new_generator()


def set_seed(seed: int) -> None:
    """Restart the generator of all nodes that have no seed of their own."""
    global _shared
    _shared = _new_generator(seed)


def generator(ctx: EvalContext, seed: float | None) -> np.random.Generator:
    """The generator of a node with this `seed` attribute."""
    if seed is None:
        return _shared
    if "generator" not in ctx.state:
        bits = int(np.float64(seed).view(np.uint64))
        ctx.state.setdefault("generator", _new_generator(bits))
    found: np.random.Generator = ctx.state["generator"]
    return found


def _float_type(code: int | None, like: DType) -> DType:
    """The type the attribute `dtype` names; without it that of the input, which must be a float then."""
    dtype = like if code is None else dtypes.from_onnx(code)
    if dtype not in (dtypes.FLOAT16, dtypes.FLOAT32, dtypes.FLOAT64, dtypes.BFLOAT16):
        origin = "the input is" if code is None else "dtype asks for"
        raise ValueError(f"{origin} {dtype}; random numbers are f16, bf16, f32 or f64: set the attribute dtype to one of these")
    return dtype


def _normal(source: np.random.Generator, shape: Sequence[int], dtype: DType, mean: float, scale: float) -> Array:
    drawn: Any = np.float64 if dtype is dtypes.FLOAT64 else np.float32
    return _stretched(np.asarray(source.standard_normal(tuple(shape), dtype=drawn)), scale, mean, dtype)


def _uniform(source: np.random.Generator, shape: Sequence[int], dtype: DType, low: float, high: float) -> Array:
    drawn: Any = np.float64 if dtype is dtypes.FLOAT64 or high - low > _WIDEST else np.float32
    return _stretched(np.asarray(source.random(tuple(shape), dtype=drawn)), high - low, low, dtype)


def _stretched(values: Array, scale: float, offset: float, dtype: DType) -> Array:
    """Numbers that were just drawn, multiplied and moved where they lie."""
    with np.errstate(over="ignore"):
        if scale != 1:
            values *= values.dtype.type(scale)
        if offset:
            values += values.dtype.type(offset)
        return values.astype(dtype.numpy, copy=False)


def _random_normal(
    *, dtype: int, mean: float, scale: float, seed: float | None, shape: tuple[int, ...], ctx: EvalContext
) -> Array:
    return _normal(generator(ctx, seed), shape, _float_type(dtype, dtypes.FLOAT32), mean, scale)


def _random_normal_like(x: Array, *, dtype: int | None, mean: float, scale: float, seed: float | None, ctx: EvalContext) -> Array:
    return _normal(generator(ctx, seed), x.shape, _float_type(dtype, dtypes.from_numpy(x.dtype)), mean, scale)


def _random_uniform(
    *, dtype: int, low: float, high: float, seed: float | None, shape: tuple[int, ...], ctx: EvalContext
) -> Array:
    return _uniform(generator(ctx, seed), shape, _float_type(dtype, dtypes.FLOAT32), low, high)


def _random_uniform_like(x: Array, *, dtype: int | None, low: float, high: float, seed: float | None, ctx: EvalContext) -> Array:
    return _uniform(generator(ctx, seed), x.shape, _float_type(dtype, dtypes.from_numpy(x.dtype)), low, high)


def _infer_random(ctx: InferContext) -> InferResult:
    return TensorType(_float_type(ctx.attr("dtype"), dtypes.FLOAT32), tuple(ctx.attr("shape")))


def _infer_random_like(ctx: InferContext) -> InferResult:
    code, like = ctx.attr("dtype"), ctx.dtype(0)
    if code is None and like is None:
        return ctx.shape(0)
    return TensorType(_float_type(code, like or dtypes.FLOAT32), ctx.shape(0))


for _name, _plain, _like in (
    ("RandomNormal", _random_normal, _random_normal_like),
    ("RandomUniform", _random_uniform, _random_uniform_like),
):
    op(_name, eval=_plain, infer=_infer_random, traits=Trait.RANDOM)
    op(f"{_name}Like", eval=_like, infer=_infer_random_like, traits=Trait.RANDOM)


def _bernoulli(probability: Array, *, dtype: int | None, seed: float | None, ctx: EvalContext) -> Array:
    target = probability.dtype if dtype is None else dtypes.from_onnx(dtype).numpy
    drawn = np.asarray(generator(ctx, seed).random(probability.shape))
    return np.asarray(drawn < probability.astype(np.float64)).astype(target)


def _infer_bernoulli(ctx: InferContext) -> InferResult:
    code = ctx.attr("dtype")
    dtype = ctx.dtype(0) if code is None else dtypes.from_onnx(code)
    return ctx.shape(0) if dtype is None else TensorType(dtype, ctx.shape(0))


op("Bernoulli", since=15, eval=_bernoulli, infer=_infer_bernoulli, traits=Trait.RANDOM)


def _multinomial(logits: Array, *, dtype: int, sample_size: int, seed: float | None, ctx: EvalContext) -> Array:
    """Class numbers drawn with probabilities proportional to exp(logits), independently for each row."""
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise ValueError(f"the input has shape {logits.shape}; expected [batch, classes] with at least one class")
    if sample_size < 1:
        raise ValueError(f"sample_size is {sample_size}; expected a positive number")
    batch, classes = logits.shape
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        cumulative = np.cumsum(np.exp(wide - wide.max(axis=1, keepdims=True)), axis=1)
    drawn = generator(ctx, seed).random((batch, sample_size)) * cumulative[:, -1:]
    chosen = np.empty((batch, sample_size), dtypes.from_onnx(dtype).numpy)
    for row in range(batch):
        chosen[row] = np.minimum(np.searchsorted(cumulative[row], drawn[row], side="right"), classes - 1)
    return chosen


def _infer_multinomial(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0, rank=2)
    batch = ctx.fresh("batch") if shape is None else shape[0]
    result: Shape = (batch, ctx.attr("sample_size"))
    return TensorType(dtypes.from_onnx(ctx.attr("dtype")), result)


op("Multinomial", since=7, eval=_multinomial, infer=_infer_multinomial, traits=Trait.RANDOM)


def mix(value: Array) -> Array:
    """64 bits that look like random ones, for any 64 bits: each bit of the input changes about half of the output (splitmix)."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)))


def _random_mask(shape: Array, seed: Array, ratio: Array, *, stream: int) -> Array:
    """True where an element stays: a share `ratio` of them does not. It follows from the seed, the stream and the position."""
    sizes = tuple(int(size) for size in shape)
    with np.errstate(over="ignore"):
        start = mix(np.asarray(seed.reshape(()).astype(np.int64).view(np.uint64) ^ np.uint64(stream)))
        numbers = mix(start + np.arange(int(np.prod(sizes, dtype=np.int64)), dtype=np.uint64))
    uniform = (numbers >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return np.asarray(uniform >= ratio.reshape(()).astype(np.float32)).reshape(sizes)


def _infer_random_mask(ctx: InferContext) -> InferResult:
    known = ctx.dims(0)
    if known is not None:
        return tuple(known)
    count = ctx.shape(0, rank=1)
    return ctx.unknown(count[0] if count is not None and isinstance(count[0], int) else None)


RANDOM_MASK = op("RandomMask", eval=_random_mask, infer=_infer_random_mask, domain="sardonyx")
