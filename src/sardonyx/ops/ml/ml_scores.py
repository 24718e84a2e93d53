"""Scores of classical models: the shape of their input, and what `post_transform` does to what they compute.

ONNX leaves the case of two classes with one score open; the rules here are ONNX Runtime's. One score s becomes two columns:
    LOGISTIC                        [logistic(-s), logistic(s)]
    otherwise, weights of one sign  [1 - s, s]
    otherwise                       [-s, s]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.ir.dims import Dim
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.infer import InferContext

Array = NDArray[Any]

DOMAIN: Final = "ai.onnx.ml"
TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def check_transform(name: str) -> str:
    """The name of a post_transform; ValueError if there is no such."""
    if name not in TRANSFORMS:
        raise ValueError(f"post_transform is {name!r}; expected {', '.join(TRANSFORMS)}")
    return name


def rows_of(x: Array) -> Array:
    """The input as a matrix of one row per observation; a vector is one observation."""
    if x.ndim not in (1, 2):
        raise ValueError(f"the input has shape {x.shape}; expected [C] or [N, C]")
    return x.reshape(1, -1) if x.ndim == 1 else x


def row_count(ctx: InferContext) -> Dim:
    """How many observations the first input of a node has."""
    shape = ctx.shape(0)
    if shape is None:
        return ctx.fresh("rows")
    if len(shape) not in (1, 2):
        raise ValueError(f"the input has rank {len(shape)}; expected [C] or [N, C]")
    return shape[0] if len(shape) == 2 else 1


def labels_of(integers: Sequence[int] | None, strings: Sequence[str] | None) -> Array:
    """The class labels of a node as an array; strings win if both are given."""
    if strings:
        labels = np.empty(len(strings), object)
        labels[:] = list(strings)
        return labels
    return np.array(integers or (), np.int64)


def label_type(ctx: InferContext, strings: str, count: Dim) -> TensorType:
    """The type of an output of labels: strings if the node has the attribute of this name."""
    shape: Shape = (count,)
    return TensorType(dtypes.STRING if ctx.attr(strings) else dtypes.INT64, shape)


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    with np.errstate(under="ignore"):
        positive = 1 / (1 + np.exp(-np.abs(x)))
    return np.where(x < 0, 1 - positive, positive)


def probit(x: Array) -> Array:
    """The inverse of the normal distribution function, by Winitzki's approximation with a = 0.147, as ONNX Runtime has it."""
    value = 2 * x - 1
    with np.errstate(all="ignore"):
        log = np.log((1 - value) * (1 + value))
        half = x.dtype.type(2 / (3.14159 * 0.147)) + log / 2
        root = np.sqrt(np.sqrt(half * half - log / x.dtype.type(0.147)) - half)
    return np.asarray(np.where(value < 0, -root, root) * x.dtype.type(1.41421356))


def softmax(scores: Array) -> Array:
    """The softmax of each row."""
    with np.errstate(all="ignore"):
        powers = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def softmax_zero(scores: Array) -> Array:
    """The softmax of each row over the scores that are not zero; a zero stays."""
    with np.errstate(all="ignore"):
        highest = scores.max(axis=1, keepdims=True, initial=-np.inf)
        nonzero = np.abs(scores) > scores.dtype.type(1e-7)
        powers = np.where(nonzero, np.exp(scores - highest), 0)
        return np.asarray(np.where(nonzero, powers, scores * np.exp(-highest)) / powers.sum(axis=1, keepdims=True))


def transform(scores: Array, name: str) -> Array:
    """`post_transform` for a score per class or target, in rows. A single column is left as it is except by PROBIT."""
    if name == "PROBIT":
        return probit(scores)
    if name == "NONE" or scores.shape[1] < 2:
        return scores
    return {"LOGISTIC": logistic, "SOFTMAX": softmax, "SOFTMAX_ZERO": softmax_zero}[name](scores)


def two_columns(score: Array, name: str, one_sign: bool) -> Array:
    """The scores of two classes from the one score of the second, a vector; PROBIT leaves the second column 0."""
    if name == "PROBIT":
        return np.stack([probit(score), np.zeros_like(score)], axis=1)
    if name == "LOGISTIC":
        return np.stack([logistic(-score), logistic(score)], axis=1)
    return np.stack([1 - score if one_sign else -score, score], axis=1)
