"""Constants derived from constants: weights in the order kernels read them, tables, numbers.

    packed = ctx.packed(pack_strips, (weights,), 16, dtype=FLOAT32, shape=(4, 64, 16))

A derived constant is what a pure function (the transform) makes of views of other constants and of parameters. It is known by
exactly these: two with the same transform, the same sources (by identity: names of values repeat in sibling branches) and the
same parameters are one. So a transform must be a function of its arguments alone; one that takes anything from the scope around
it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import FunctionType
from typing import Any

import numpy as np

from sardonyx.dtypes import DType
from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.program.steps import View


@dataclass(frozen=True)
class Derived:
    """How a constant is made: transform(*sources, *parameters)."""

    transform: Callable[..., Array]
    sources: tuple[View | None, ...]  # None: one that is left out, as a bias
    parameters: tuple[Any, ...]

    def __post_init__(self) -> None:
        function = self.transform
        if not isinstance(function, FunctionType) or function.__closure__ or function.__defaults__ or function.__kwdefaults__:
            raise TypeError(f"{function!r} depends on more than its arguments: give all of it as sources and parameters")

    @property
    def key(self) -> Hashable:
        """Equal for derivations that make the same array."""
        return self.transform, self.sources, tuple(exact(each) for each in self.parameters)

    @property
    def label(self) -> str:
        """How explanations call it."""
        names = ", ".join(view.buffer.label for view in self.sources if view is not None)
        return f"{self.transform.__name__.strip('_')}({names})"

    def make(self) -> Array:
        """Compute it."""
        arrays = [None if view is None else constant_array(view) for view in self.sources]
        return self.transform(*arrays, *self.parameters)


def exact(parameter: Any) -> Hashable:
    """A parameter so that equal means identical: 1, 1.0 and True are different, and so are 0.0 and -0.0."""
    if parameter is None or isinstance(parameter, (str, bytes, DType)):
        return parameter
    if isinstance(parameter, (bool, int, float, np.generic)):
        return type(parameter), repr(parameter)
    if isinstance(parameter, tuple):
        return tuple(exact(each) for each in parameter)
    if is_dataclass(parameter):
        return type(parameter), tuple(exact(getattr(parameter, each.name)) for each in fields(parameter))
    raise TypeError(f"{parameter!r} cannot be a parameter of a derived constant: expected numbers, texts and tuples of these")


def is_fixed(view: View) -> bool:
    """Whether what a view shows is the same in every run and of known size, so that constants can be derived from it."""
    known = all(isinstance(size, int) for size in (*view.shape, *view.strides, view.offset))
    return known and view.buffer.kind == "constant" and view.buffer.load is not None


def constant_array(view: View) -> Array:
    """What a view of a constant shows; it shares the constant's memory."""
    assert view.buffer.load is not None, view
    flat = np.ascontiguousarray(view.buffer.load()).reshape(-1)
    shape, strides = numbers(view.shape), numbers(view.strides)
    start = flat[numbers([view.offset])[0] :]
    return np.lib.stride_tricks.as_strided(start, shape, [stride * flat.itemsize for stride in strides], writeable=False)


def numbers(dims: Sequence[Dim]) -> tuple[int, ...]:
    """Sizes that are known."""
    found = tuple(dim for dim in dims if isinstance(dim, int))
    assert len(found) == len(dims), dims
    return found


def literal(content: bytes, shape: tuple[int, ...], dtype: DType) -> Array:
    """Transform: an array that is known while the program is made."""
    return np.frombuffer(content, dtype.numpy).reshape(shape)


def as_float32(data: Array) -> Array:
    """Transform: the numbers in float32, without gaps."""
    return np.ascontiguousarray(data, np.float32)
