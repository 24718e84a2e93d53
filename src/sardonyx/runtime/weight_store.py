"""Packed weights, each made once and shared by all who need it.

One store serves every program of the process: those of a session (its bodies, specialisations and sets of fetched values) and
other sessions of the same file. An array is found by the key of its constant (`program.constants`): a hit skips the packing, not
only the memory. Arrays are read-only; a store does not keep them: an array ends with the last program that uses it.

    shared_store()                  sources are told apart by file and range, if unchanged: costs nothing
    WeightStore(by_content=True)    also shares equal weights of different files: their bytes are digested once
    WeightStore(keeps=True)         keeps what was made, for sessions to come

Before anything is packed, the file that has the data is asked for a packed form of it (`runtime.packed_weights`). Packing is
streamed: a large source is packed in blocks, and its pages leave memory behind it. Saved programs hand in the arrays of their
file (`mapped_file.shared_arrays`), so that compiling the same model for another set of fetched values packs nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sardonyx.forks import ForkSafeLock, cached_property
from sardonyx.mapped_file import release_range, shared_arrays
from sardonyx.runtime.large_pages import WeightMemory

if TYPE_CHECKING:
    from sardonyx.program.constants import Constant, Derived
    from sardonyx.runtime.known_checksums import KnownChecksums

Array = np.ndarray[Any, Any]

_BLOCK: Final = 1 << 20  # bytes of a source that are packed at once: what transforms make in between stays small, too
_RELEASED: Final = 1 << 22  # bytes of sources whose pages leave memory at once
_OBJECT: Final = "object:"  # begins a key that says nothing to another session


class WeightStore:
    """Arrays of constants, by key."""

    def __init__(
        self,
        *,
        by_content: bool = False,
        keeps: bool = False,
        arrays: weakref.WeakValueDictionary[str, Array] | None = None,
    ) -> None:
        self.by_content = by_content
        self._kept: dict[str, Array] | None = {} if keeps else None
        self._arrays = weakref.WeakValueDictionary() if arrays is None else arrays
        self._locks: weakref.WeakValueDictionary[str, ForkSafeLock] = weakref.WeakValueDictionary()  # of keys being made
        self._lock = ForkSafeLock()
        self.made = 0  # how many arrays were packed here
        self.mapped = 0  # how many lay packed in the file of a model

    def load(self, constants: Iterable[tuple[int, Constant]]) -> dict[int, Array]:
        """The arrays of numbered constants, without gaps and read-only."""
        packing = _Packing()
        loaded = {number: self._array(constant, packing) for number, constant in constants}
        packing.end()
        return loaded

    def array(self, constant: Constant) -> Array:
        """The array of one constant."""
        return self.load([(0, constant)])[0]

    def _array(self, constant: Constant, packing: _Packing) -> Array:
        from sardonyx.program.constants import (  # lazy: a start from a saved program packs nothing
            Derived,
            by_content,
            by_identity,
        )
        from sardonyx.runtime.packed_weights import saved_packing  # lazy: the same

        if not isinstance(constant, Derived):
            return np.ascontiguousarray(constant.numpy())
        if not constant.sources:  # there is nothing to pack
            return packing.make(constant, self)
        key = constant.key(by_identity)
        found = self._arrays.get(key)
        if found is not None:
            return found
        lasting = constant.key(by_content) if self.by_content else key
        with self._lock:
            lock = self._locks.get(lasting)
            if lock is None:
                lock = self._locks[lasting] = ForkSafeLock()
        with lock:  # another thread may be packing the same
            found = self._arrays.get(key)
            if found is None:
                found = self._arrays.get(lasting)  # packed from equal bytes that lie elsewhere
            if found is None:
                found = saved_packing(constant, packing.checksums)
                is_made = found is None
                if found is None:
                    found = packing.make(constant, self)
                self._count(is_made)
            self._keep(key, found)
            self._keep(lasting, found)
        return found

    def _count(self, is_made: bool) -> None:
        with self._lock:
            self.made += is_made
            self.mapped += not is_made

    def kept(self) -> list[Array]:
        """What is kept for sessions to come, each once."""
        with self._lock:
            return list({id(array): array for array in (self._kept or {}).values()}.values())

    def _keep(self, key: str, array: Array) -> None:
        with self._lock:
            self._arrays[key] = array
            if self._kept is not None and not key.startswith(_OBJECT):  # a key of another session would never be asked for
                self._kept[key] = array


class _Packing:
    """Makes arrays one after the other; pages of files that were read for it leave memory behind it."""

    def __init__(self) -> None:
        self._memory = WeightMemory()
        self._read: list[Array] = []  # whose pages are still in memory
        self._read_bytes = 0

    def make(self, constant: Derived, store: WeightStore) -> Array:
        """Pack a constant; those it is made of come from the store."""
        constant = _from_source(constant)
        sources = [None if part is None else part.of(store._array(part.constant, self)) for part in constant.sources]
        transform, parameters = constant.transform, constant.parameters
        packed: Array | None = None
        for index, blocks in transform.blocks(sources, parameters, _BLOCK):
            made = transform(*blocks, *parameters)
            if made.dtype != constant.dtype.numpy or (index is ... and made.shape != constant.shape):
                expected = f"{constant.dtype.name}{list(constant.shape)}"
                raise ValueError(f"transform {transform.name!r} made {made.dtype.name}{list(made.shape)}, expected {expected}")
            if index is ... and made.flags.c_contiguous:
                packed = made if _is_part(made, sources) else self._memory.moved(made)
                continue
            if packed is None:
                packed = self._memory.array(constant.shape, constant.dtype.numpy)
            packed[index] = made
            for block in blocks:
                if block is not None and index is not ...:
                    self._passed(block)
        assert packed is not None
        if _is_part(packed, sources):
            return _read_only(packed)
        for source in sources:
            if source is not None:
                self._passed(source)
        owner: Any = packed
        while isinstance(owner, np.ndarray):  # nobody else knows this memory
            owner.flags.writeable = False
            owner = owner.base
        return _read_only(packed)

    def _passed(self, source: Array) -> None:
        self._read.append(source)
        self._read_bytes += source.nbytes
        if self._read_bytes >= _RELEASED:
            self.release()

    @cached_property
    def checksums(self) -> KnownChecksums:
        """What is known of the files that weights lie packed in."""
        from sardonyx.runtime.known_checksums import KnownChecksums  # lazy: few models have packed weights

        return KnownChecksums()

    def end(self) -> None:
        """Let go of all pages, and remember the checksums that were computed."""
        self.release()
        if "checksums" in self.__dict__:
            self.checksums.keep()

    def release(self) -> None:
        """Let the pages that were read so far leave memory."""
        for each in self._read:
            release_range(each)
        self._read, self._read_bytes = [], 0


def _from_source(constant: Derived) -> Derived:
    """The same array, made of what its first source was made of, if both can be done at once."""
    from sardonyx.program.constants import by_shortcut  # lazy: a start from a saved program packs nothing

    return by_shortcut(constant) or constant


def _is_part(array: Array, sources: Iterable[Array | None]) -> bool:
    """Whether an array is a view of what it was made of."""
    return any(source is not None and np.may_share_memory(source, array) for source in sources)


def _read_only(array: Array) -> Array:
    """A view of its own, which cannot be written to."""
    found = array.view()
    found.flags.writeable = False
    return found


_shared: Final = WeightStore(arrays=shared_arrays)
_by_content: Final = WeightStore(by_content=True, arrays=shared_arrays)


def shared_store() -> WeightStore:
    """The store of all sessions of this process."""
    return _shared


def content_store() -> WeightStore:
    """The store of all sessions of this process that share equal weights, whatever file they come from."""
    return _by_content


class PrepackedWeightsContainer:
    """Packed weights that sessions share: `InferenceSession(..., prepacked_weights_container=container)`.

    Equal weights, from whatever file or value, are packed once; what a session has packed stays for those to come, as long as
    the container lives. Any number of threads may open sessions with it.
    """

    def __init__(self) -> None:
        self.store = WeightStore(by_content=True, keeps=True)

    def __repr__(self) -> str:
        return f"PrepackedWeightsContainer({len(self)} weights, {self.nbytes} bytes)"

    def __len__(self) -> int:
        return len(self.store.kept())

    @property
    def nbytes(self) -> int:
        """How many bytes the packed weights have."""
        return sum(array.nbytes for array in self.store.kept())

    @property
    def packed(self) -> int:
        """How many weights were packed: with a weight that is there already, this does not grow."""
        return self.store.made
