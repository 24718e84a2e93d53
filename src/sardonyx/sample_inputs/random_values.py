"""Random values for inputs, by their declared types alone.

    session.run(None, random_inputs(session.get_inputs(), shapes={"image": (1, 3, 224, 224)}, seed=0))

Values are chosen so that most models accept them: floats from 0 to 1, bytes over their whole range (pictures), other integers
0 or 1 (valid as token, mask, index and length alike), strings of common words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from sardonyx import dtypes, errors

_WORDS: Final = ("red", "green", "blue", "one", "two", "three")
_SEQUENCE_LENGTH: Final = 2


class InputDescription(Protocol):
    """An input as a session describes it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def type(self) -> str:
        """Its type in ONNX Runtime's words: `tensor(float)`."""
        ...

    @property
    def shape(self) -> Sequence[Any]:
        """Its dimensions: numbers, names, or None where nothing is known."""
        ...


def random_inputs(
    arguments: Sequence[InputDescription], shapes: Mapping[str, Sequence[int]] | None = None, seed: int = 0
) -> dict[str, Any]:
    """A value for each argument. `shapes` gives the shape of an input, or as `{"N": (4,)}` the size of a named dimension.

    A named dimension has one size in all inputs: the one given for it, or the one a given shape implies. All others are 1.
    """
    sized = input_shapes(arguments, shapes)
    generator = np.random.default_rng(seed)
    return {argument.name: make_up(argument, sized[argument.name], generator) for argument in arguments}


def input_shapes(
    arguments: Sequence[InputDescription], shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, tuple[int, ...]]:
    """The shape `random_inputs` gives each argument."""
    wanted = dict(shapes or {})
    sizes = named_sizes(arguments, wanted)
    return {argument.name: _shape(argument, wanted, sizes) for argument in arguments}


def named_sizes(arguments: Sequence[InputDescription], wanted: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes of named dimensions, as given or as the shape of an input implies them."""
    names = {argument.name for argument in arguments}
    symbols = {dim for argument in arguments for dim in argument.shape if isinstance(dim, str)}
    sizes: dict[str, int] = {}
    for name, shape in wanted.items():
        if name in names:
            continue
        if name not in symbols:
            known = ", ".join(sorted(names) + sorted(symbols))
            raise errors.InvalidArgument(f"a shape is given for {name!r}, which is no input and no dimension; known: {known}")
        if len(shape) != 1:
            raise errors.InvalidArgument(f"dimension {name!r} takes one number, not {'x'.join(map(str, shape))}")
        sizes[name] = shape[0]
    for argument in arguments:
        for dim, size in zip(argument.shape, wanted.get(argument.name, ())):
            if isinstance(dim, str):
                sizes.setdefault(dim, size)
    return sizes


def _shape(argument: InputDescription, wanted: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> tuple[int, ...]:
    if argument.name in wanted:
        return tuple(wanted[argument.name])
    return tuple(dim if isinstance(dim, int) and dim >= 0 else sizes.get(str(dim), 1) for dim in argument.shape)


def make_up(argument: InputDescription, shape: tuple[int, ...], generator: np.random.Generator) -> Any:
    """A random value for one argument; `shape` is that of its tensors."""
    return _value(argument.type, shape, generator, argument.name)


def _value(type_: str, shape: tuple[int, ...], generator: np.random.Generator, name: str) -> Any:
    kind, _, inner = type_.rstrip(")").partition("(")
    if kind == "tensor":
        return random_tensor(dtypes.from_ort(inner), shape, generator)
    inner = type_[len(kind) + 1 : -1]
    if kind == "optional":
        return _value(inner, shape, generator, name)
    if kind == "seq":
        return [_value(inner, shape, generator, name) for _ in range(_SEQUENCE_LENGTH)]
    if kind == "map":
        key, _, value = inner.partition(",")
        keys: tuple[Any, ...] = _WORDS[:_SEQUENCE_LENGTH] if key == "string" else tuple(range(_SEQUENCE_LENGTH))
        drawn = (_value(value.strip(), (), generator, name) for _ in keys)
        return {each: item.item() if isinstance(item, np.ndarray) else item for each, item in zip(keys, drawn)}
    raise errors.InvalidArgument(f"input {name!r} is a {type_}: no value can be made up for it", hint="give it explicitly")


def random_tensor(dtype: dtypes.DType, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """A tensor of values that most models accept."""
    if dtype is dtypes.STRING:
        return np.asarray(generator.choice(np.array(_WORDS, dtype=object), size=shape), dtype=object)
    if dtype is dtypes.BOOL:
        return np.asarray(generator.random(shape) < 0.5)
    if dtype in (dtypes.UINT8, dtypes.INT8):
        limits = np.iinfo(dtype.numpy)
        return np.asarray(generator.integers(limits.min, limits.max, shape, dtype.numpy, endpoint=True))
    if dtype.is_integer:
        return np.asarray(generator.integers(0, 2, shape)).astype(dtype.numpy)
    return np.asarray(generator.random(shape)).astype(dtype.numpy)
