"""Constants of programs, known by what they are made of: data of the model, and what transforms make of it.

    @transform("pack_strips", version=1)
    def pack_strips(matrix: Array, strip: int) -> Array: ...

    Derived(pack_strips, (Part(weights, 0, (64, 64), (64, 1)),), (16,), dtypes.FLOAT32, (4, 64, 16), "avx512")

A derived constant is what a transform makes of parts of other constants and of parameters, for a target. Its key follows from
these and from nothing else: names of values repeat in sibling branches, bodies and sessions. So a transform must be a function of
its arguments alone; it is known by its name and version, one table (`TRANSFORMS`) has all of them. Change the version when the
result changes: packed arrays outlive the process that made them.

A key is as good as the identities of its sources (see `ir.tensor.Tensor`): a range of a mapped file, which is found without
reading it; or a digest of the bytes, which is the same in any file and process. `runtime.weight_store` keeps arrays by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, fields, is_dataclass
from hashlib import blake2b
from math import prod
from types import FunctionType
from typing import Any, Final, NamedTuple, TypeAlias, Union

import numpy as np

from sardonyx.dtypes import DType
from sardonyx.ir.tensor import OBJECT, Array, Tensor
from sardonyx.records import dataclass


class Cut(NamedTuple):
    """Axes along which a transform can be done in blocks: `grain` items of the first source's make `made` of the result's."""

    source: int
    result: int
    grain: int = 1
    made: int = 1
    every_source: bool = False  # all sources have that axis, and are divided along it


Cuts: TypeAlias = Callable[..., Sequence[Cut]]  # sources and parameters, as for the transform -> the axes


def _no_cuts(*arguments: Any) -> tuple[Cut, ...]:
    return ()


@dataclass(frozen=True)
class Transform:
    """A pure function that makes an array of arrays (None: one left out, as a bias) and parameters.

    What it returns may be a view of its sources: whoever keeps it copies it into memory without gaps, if it has some.
    """

    name: str
    version: int
    function: Callable[..., Array]
    cuts: Cuts = _no_cuts
    # Whether kernels only compute with what it makes. What they find their way by, as indices and counts, is never taken from the
    # file of a model, which nobody has checked: it is made here.
    is_numbers: bool = False

    def __post_init__(self) -> None:
        function = self.function
        if not isinstance(function, FunctionType) or function.__closure__ or function.__defaults__ or function.__kwdefaults__:
            raise TypeError(f"{function!r} depends on more than its arguments: give all of it as sources and parameters")

    def __call__(self, *arguments: Any) -> Array:
        return self.function(*arguments)

    def blocks(
        self, sources: Sequence[Array | None], parameters: Sequence[Any], limit: int
    ) -> Iterator[tuple[Any, list[Array | None]]]:
        """Pairs of an index of the result and the sources that make it, of which the first has about `limit` bytes.

        It is walked in the order of its memory, so that nothing already passed is needed again. One pair for all of it if it is
        small, or if the transform cannot be divided.
        """
        first = sources[0] if sources else None
        cuts = [] if first is None or first.nbytes <= limit else self.cuts(*sources, *parameters)
        axes = [cut for cut in cuts if first is not None and first.shape[cut.source] > cut.grain]
        if first is None or not axes:
            yield ..., [*sources]
            return
        outer = max(axes, key=lambda cut: abs(first.strides[cut.source]))
        length = first.shape[outer.source]
        each = max(limit // max(first.nbytes // length, 1) // outer.grain, 1) * outer.grain
        for start in range(0, length, each):
            taken = (*[slice(None)] * outer.source, slice(start, start + each))
            end = -(-min(start + each, length) // outer.grain)
            made = slice(start // outer.grain * outer.made, end * outer.made)
            others = [None if each is None else each[taken] for each in sources[1:]] if outer.every_source else sources[1:]
            yield (*[slice(None)] * outer.result, made), [first[taken], *others]


TRANSFORMS: Final[dict[str, Transform]] = {}


def transform(
    name: str, version: int, cuts: Cuts = _no_cuts, *, is_numbers: bool = False
) -> Callable[[Callable[..., Array]], Transform]:
    """Enter a function in the table of transforms; `is_numbers`: whatever it makes, kernels only compute with it."""

    def enter(function: Callable[..., Array]) -> Transform:
        if name in TRANSFORMS:
            raise ValueError(f"there is a transform {name!r} already: {TRANSFORMS[name].function!r}")
        made = TRANSFORMS[name] = Transform(name, version, function, cuts, is_numbers)
        return made

    return enter


SHORTCUTS: Final[dict[tuple[str, str], Transform]] = {}


def shortcut(after: Transform, computation: str, cuts: Cuts = _no_cuts) -> Callable[[Callable[..., Array]], Transform]:
    """Enter a function that makes at once what a transform makes of the result of a pass's computation: the same bytes.

    It takes the sources and parameters of the computation (`ir.tensor.Derivation`), then the transform's other sources and its
    parameters. The constant between them, which may be as large as the model, is never made. Keys do not know of it.
    """

    def enter(function: Callable[..., Array]) -> Transform:
        made = SHORTCUTS[after.name, computation] = Transform(f"{after.name} of {computation}", after.version, function, cuts)
        return made

    return enter


def by_shortcut(constant: Derived) -> Derived | None:
    """The same array, made of what its first source was made of; None if there is no way to do both at once."""
    first = constant.sources[0] if constant.sources else None
    if first is None or not isinstance(first.constant, Tensor) or first.constant.derivation is None:
        return None
    computation, sources, parameters = first.constant.derivation
    at_once = SHORTCUTS.get((constant.transform.name, computation))
    is_whole = not first.offset and prod(first.shape) == first.constant.size and first.strides == _dense(first.shape)
    if at_once is None or not is_whole:
        return None
    parts = [Part(each, 0, each.shape, _dense(each.shape)) for each in sources]
    return Derived(
        at_once, (*parts, *constant.sources[1:]), (*parameters, *constant.parameters),
        constant.dtype, constant.shape, constant.target,
    )  # fmt: skip


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(frozen=True)
class Part:
    """A view of a constant: offset and strides count elements."""

    constant: Constant
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, array: Array) -> Array:
        """The part of the constant's array; it shares its memory."""
        width = array.itemsize
        memory = array.reshape(-1).view(np.uint8)  # not every type tells others what lies there
        offset = self.offset * width if 0 not in self.shape else 0  # an empty part may begin behind the end
        part: Array = np.ndarray(self.shape, array.dtype, memory, offset, [stride * width for stride in self.strides])
        part.flags.writeable = False
        return part


@dataclass(frozen=True)
class Derived:
    """What a transform makes: an array of this type and shape. Equal if everything it is made of is the same."""

    transform: Transform
    sources: tuple[Part | None, ...]  # None: one that is left out
    parameters: tuple[Any, ...] = field(compare=False)
    dtype: DType
    shape: tuple[int, ...]
    target: str  # the key of the target it is made for
    exact_parameters: str = field(init=False)  # `parameters`, so that equal means identical

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact_parameters", exact(self.parameters))

    def key(self, identity_of: Callable[[Tensor], str]) -> str:
        """The key of the array, given that of the model's data."""
        return key_of(self, identity_of)


Constant: TypeAlias = Union[Tensor, Derived]


def key_of(constant: Constant, identity_of: Callable[[Tensor], str]) -> str:
    """The key of a constant. It begins with OBJECT if it says nothing to another session."""
    if isinstance(constant, Tensor):
        return f"{identity_of(constant)} {constant.dtype.name}"
    made = constant.transform
    parts = [
        "" if part is None else f"{key_of(part.constant, identity_of)}[{part.offset}{part.shape}{part.strides}]"
        for part in constant.sources
    ]
    content = repr((made.name, made.version, parts, constant.exact_parameters, constant.shape, constant.dtype.name))
    digest = blake2b(f"{content}@{constant.target}".encode(), digest_size=20).hexdigest()
    return f"{OBJECT if any(part.startswith(OBJECT) for part in parts) else ''}{made.name}:{digest}"


def by_identity(tensor: Tensor) -> str:
    """What tells the model's data apart in this process, found without reading it."""
    return tensor.identity


def by_content(tensor: Tensor) -> str:
    """What tells the model's data apart in any process."""
    return tensor.digest


def exact(parameter: Any) -> str:
    """A parameter as a text, so that equal means identical: 1, 1.0 and True are different, and so are 0.0 and -0.0."""
    if parameter is None or isinstance(parameter, (str, bytes, bool, int, float)):
        return repr(parameter)
    if isinstance(parameter, DType):
        return parameter.name
    if isinstance(parameter, np.generic):
        return f"{parameter.dtype.name}({parameter.item()!r})"
    if isinstance(parameter, tuple):
        return f"({','.join(exact(each) for each in parameter)},)"
    if is_dataclass(parameter) and not isinstance(parameter, type):
        values = ",".join(exact(getattr(parameter, each.name)) for each in fields(parameter))
        return f"{type(parameter).__name__}({values})"
    raise TypeError(f"{parameter!r} cannot be a parameter of a derived constant: expected numbers, texts and tuples of these")


def _literal(content: bytes, shape: tuple[int, ...], dtype: DType) -> Array:
    return np.frombuffer(content, dtype.numpy).reshape(shape)


literal: Final = transform("literal", 1)(_literal)  # an array that is known while the program is made
