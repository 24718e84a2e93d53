"""Constant data of a model: where the bytes are, without copying them.

A `Tensor` keeps a buffer (a slice of the mapped file, packed as the file has it) and becomes a NumPy array when asked. For
the types NumPy can view directly the array shares the buffer's memory and is read-only; packed types (int4 ...) and typed
fields that had to be decoded are converted on each call, unless the caller keeps the array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.mapped_file import mapped_range, mapping_of, walk, weight_checksum
from sardonyx.records import dataclass

Array = NDArray[Any]

CONTENT: Final = "content:"  # as an origin: known by a digest of the bytes, which may change hands between sessions
OBJECT: Final = "object:"  # begins an identity that holds as long as the process: another session's is another
_serial_numbers = count()


@dataclass(frozen=True, slots=True)
class ExternalLocation:
    """Where external data lies: a file relative to the model's folder, and the range in it."""

    location: str
    offset: int
    length: int
    packings: tuple[str, ...] = ()  # what is written of packed forms that lie in the same file


class SavedPacking(NamedTuple):
    """A packed form of a constant, beside its data in the same file: what it is, where it lies, and a checksum."""

    key: str
    offset: int
    length: int
    checksum: str
    file: Callable[[], memoryview]  # all of the file


class Derivation(NamedTuple):
    """How a pass made a constant of others: whoever packs it may do both at once (`program.constants.shortcut`)."""

    computation: str
    sources: tuple[Tensor, ...]
    parameters: tuple[Any, ...]


class Tensor:
    """A constant: element type, shape and a way to its bytes.

    `load` returns the packed little-endian bytes as a buffer (for strings: a sequence of `str`). It is called each time the
    data is wanted and must be cheap: slicing a mapped file, not reading it. `origin` names how a pass made it of other
    constants (see `origin_of`), `derivation` says it.
    """

    __slots__ = (
        "_checksum", "_digest", "_identity", "_load", "derivation", "dtype", "external", "name", "packings", "shape",
    )  # fmt: skip

    def __init__(
        self,
        dtype: DType,
        shape: Sequence[int],
        load: Callable[[], Any],
        *,
        name: str = "",
        external: ExternalLocation | None = None,
        origin: str = "",
        derivation: Derivation | None = None,
    ) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self._load = load
        self.name = name
        self.external = external
        self.derivation = derivation
        self.packings: tuple[SavedPacking, ...] = ()  # those that its file has
        self._identity = origin
        self._digest = ""
        self._checksum: int | None = None

    @property
    def identity(self) -> str:
        """Equal for constants with the same bytes, found without reading them; equal bytes may have several identities.

        A range of an unchanged file, how it was made of such, or else the number of this object; for values that a caller has
        handed in (CONTENT) the bytes are read, once.
        """
        if self._identity == CONTENT:
            self._identity = f"{CONTENT}{self.digest}"
        if not self._identity:
            location = None if self.dtype is dtypes.STRING else mapped_range(np.frombuffer(self.raw(), np.uint8))
            if location is None or location[0].identity is None:
                self._identity = f"{OBJECT}{next(_serial_numbers)}"
            else:
                mapping, offset, length = location
                self._identity = f"file:{mapping.identity}+{offset}+{length}"
        return self._identity

    @property
    def digest(self) -> str:
        """A digest of the bytes, which tells what they are in any process; computed once, and their pages leave memory."""
        if not self._digest:
            from hashlib import blake2b  # lazy: few programs need it

            found = blake2b(digest_size=20)
            for part in walk(self.raw()):
                found.update(part)
            self._digest = found.hexdigest()
        return self._digest

    @property
    def checksum(self) -> int:
        """Of the bytes, found at the speed of memory: tells whether they were changed since, not what they are."""
        if self._checksum is None:
            self._checksum = weight_checksum(self.raw())
        return self._checksum

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.dtype.name}[{','.join(map(str, self.shape))}])"

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the packed bytes; for strings the size of their text."""
        if self.dtype is dtypes.STRING:
            return sum(len(text.encode("utf-8", "surrogateescape")) for text in self._load())
        return self.dtype.nbytes(self.size)

    def raw(self) -> memoryview:
        """The packed little-endian bytes, as a file has them; not for strings."""
        if self.dtype is dtypes.STRING:
            raise TypeError(f"string tensor {self.name!r} has no raw bytes")
        return memoryview(self._load()).cast("B")

    def numpy(self) -> Array:
        """The data as an array; a read-only view of the file's bytes where the type allows."""
        if self.dtype is dtypes.STRING:
            text = np.empty(self.size, dtype=object)
            text[:] = list(self._load())
            return text.reshape(self.shape)
        raw = self.raw()
        if self.dtype.is_packed:
            return unpack(np.frombuffer(raw, np.uint8), self.dtype, self.size).reshape(self.shape)
        return np.frombuffer(raw, self.dtype.numpy, count=self.size).reshape(self.shape)


def from_numpy(array: Any, name: str = "", origin: str = "") -> Tensor:
    """A constant that holds this array (not a copy, if it is contiguous and little-endian)."""
    array = np.asarray(array)
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is dtypes.STRING:
        text = [item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item) for item in array.reshape(-1)]
        return Tensor(dtype, array.shape, lambda: text, name=name)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    if dtype.is_packed:
        packed = pack(contiguous, dtype)
        return Tensor(dtype, array.shape, lambda: packed.data, name=name, origin=origin)
    flat = contiguous.reshape(-1)
    return Tensor(dtype, array.shape, lambda: flat.view(np.uint8).data, name=name, origin=origin)


def origin_of(computation: str, sources: Iterable[Tensor | None], parameters: Sequence[Any]) -> str:
    """The identity of what a pure computation makes of constants and of parameters, which `repr` tells apart (bytes for arrays).

    A pass that makes a large constant names its origin: so the same pass over the same weights, in another session or for a
    specialisation, makes the same constant, and what kernels make of it is shared.
    """
    from hashlib import blake2b  # lazy: few constants have one

    identities = ["" if each is None else f"{each.identity} {each.dtype.name}{list(each.shape)}" for each in sources]
    content = repr((computation, identities, parameters)).encode("utf-8", "surrogatepass")
    kind = OBJECT if any(each.startswith(OBJECT) for each in identities) else "made:"
    return kind + blake2b(content, digest_size=20).hexdigest()


def release_pages(tensors: Iterable[Tensor]) -> None:
    """Tell the system that the mapped files behind these constants are not needed in memory now; they are read again on use."""
    maps = set()
    for tensor in tensors:
        if tensor.dtype is not dtypes.STRING:
            mapping = mapping_of(tensor.raw())
            if mapping is not None:
                maps.add(mapping)
    for each in maps:
        each.release_pages()


def unpack(packed: NDArray[np.uint8], dtype: DType, count: int) -> Array:
    """Elements out of packed bytes, low bits first; one element a byte in the result."""
    bits = dtype.bits
    if bits in (2, 4):
        per_byte = 8 // bits
        shifts = np.arange(per_byte, dtype=np.uint8) * bits
        codes = ((packed[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[:count]
    else:  # 6 bits: a stream of bits, least significant first
        stream = np.unpackbits(packed, bitorder="little")[: count * bits].reshape(count, bits)
        codes = np.packbits(stream, axis=1, bitorder="little").reshape(-1)
    return codes_to_elements(np.ascontiguousarray(codes), dtype)


def codes_to_elements(codes: NDArray[np.uint8], dtype: DType) -> Array:
    """Bit patterns (one a byte, in the low bits) as elements of a sub-byte type."""
    if dtype in dtypes.SIGNED:  # ml_dtypes keeps signed elements sign-extended
        shift = 8 - dtype.bits
        codes = ((codes << shift).view(np.int8) >> shift).view(np.uint8)
    return codes.view(dtype.numpy)


def pack(array: Array, dtype: DType) -> NDArray[np.uint8]:
    """The packed bytes of an array of a sub-byte type, low bits first; the last byte is filled with zeros."""
    bits = dtype.bits
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & np.uint8((1 << bits) - 1)
    if bits not in (2, 4):
        stream = np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little")
        return np.packbits(stream.reshape(-1), bitorder="little")
    per_byte = 8 // bits
    padded = np.zeros(-(-codes.size // per_byte) * per_byte, np.uint8)
    padded[: codes.size] = codes
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    packed: NDArray[np.uint8] = np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1)
    return packed
