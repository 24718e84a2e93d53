"""Compiled models on disk: plan, machine code and weights in one file, mapped into memory.

Opening a saved model needs neither the model file nor any stage of the compiler, so a second process starts in the time it
takes to map the file. A file is found by a key that names everything the program depends on (`identity`); it lies in the
private cache folder, beside the object code, and is as trusted as that: both are run.

    magic, length and checksum of the record ── record (marshalled) ── checksummed constants, each aligned

Only programs that never come back to Python are saved. Of a model that is native for some cases only (see `cases`), those are
saved. What a saved program cannot do (other values than the outputs, sizes that contradict the model) opens the model in full.
"""

from __future__ import annotations

import marshal
import os
import pickle
import struct
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from sardonyx import errors
from sardonyx.cache_folder import CacheFolder
from sardonyx.codegen.loader import ENTRY, load
from sardonyx.forks import ForkSafeLock, importing
from sardonyx.mapped_file import FileIdentity, identity_at, identity_of, map_file
from sardonyx.options import environment
from sardonyx.program.image import Image, from_plain, numpy_type
from sardonyx.runtime.cases import Case, CaseTable
from sardonyx.runtime.fast_path import FastPath
from sardonyx.runtime.native_core import Array, NativeCore, SizeConflict
from sardonyx.runtime.pool import shared_pool
from sardonyx.target.machine import machine_fingerprint, runtime

if TYPE_CHECKING:
    from sardonyx.plan.plan import ExecutionPlan, Port
    from sardonyx.runtime.executor import RunControl

_MAGIC: Final = b"SDXPRG3\0"
_HEADER: Final = struct.Struct("<8sQQ")
_SUFFIX: Final = ".program"
_ALIGNMENT: Final = 64
_LARGEST: Final = 512 << 20  # bytes of constants up to which a program is saved
_LARGEST_RECORD: Final = 256 << 20  # bytes of everything else
_FOLDER_LIMIT: Final = 2 << 30  # bytes of saved programs that are kept; the ones unused for longest go first


class Program(NamedTuple):
    """A program but for its constants."""

    image: Image
    objects: list[bytes]  # machine code, each kernel once
    object_of_step: list[int]
    driver: bytes


class Beside(NamedTuple):
    """The files beside a model that its weights came from."""

    folder: str  # where they were looked for
    found: Mapping[str, FileIdentity | None]  # by path; None: there was none

    def is_unchanged(self, folder: str) -> bool:
        """Whether a model that looks in a folder would find the same files now."""
        return not self.found or (folder == self.folder and all(identity_at(path) == was for path, was in self.found.items()))


class Record(NamedTuple):
    """What is saved under a key: a model's program, or what to know of a model whose cases have programs of their own."""

    program: Program | None
    node_count: int
    deciding: tuple[str, ...]  # inputs whose numbers tell cases apart
    described: bytes  # pickled: the ports of the model, and what the session wants to know again
    beside: Beside = Beside("", {})


@cache
def source_version() -> str:
    """Changes with every file of the package: a saved program never meets another version's runtime."""
    facts = [f"{sys.version} {np.__version__}"]
    folders = [os.path.dirname(os.path.dirname(__file__))]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    facts.append(f"{entry.name} {status.st_size} {status.st_mtime_ns}")
                elif "." not in entry.name and not entry.name.startswith("__") and entry.is_dir():
                    folders.append(entry.path)
    content = "|".join(facts).encode()
    return f"{zlib.crc32(content):08x}{zlib.adler32(content):08x}"


def identity(source: str | bytes, settings: str) -> str | None:
    """Names a model and everything its program depends on; None if the model is not there.

    A file is known by what the file system says of it, not by its content: reading it would take longer than opening it saved.
    """
    if isinstance(source, str):
        try:
            status = os.stat(source)
        except OSError:
            return None
        model = repr((os.path.realpath(source), *identity_of(status)))
    else:
        from hashlib import sha256  # lazy: it takes milliseconds to load, and most models are files

        model = sha256(source).hexdigest()
    now = environment()
    return f"{model}|{settings}|{source_version()}|{machine_fingerprint()}|{now.target}|{now.runtime}"


def programs(folder: str) -> CacheFolder:
    """The saved programs in the cache folder."""
    return CacheFolder(folder, _SUFFIX, _FOLDER_LIMIT, environment().cache_trusted)


def _file_key(key: str) -> str:
    """A short key for the file's name; two may be equal by chance, so the file holds the whole key, too."""
    content = key.encode("utf-8", "surrogatepass")
    return f"{zlib.crc32(content):08x}{zlib.adler32(content):08x}"


def save(folder: str, key: str, record: Record, arrays: Mapping[int, Array]) -> None:
    """Write a program, if it is small enough; a folder that cannot be written is not an error."""
    if sum(array.nbytes for array in arrays.values()) > _LARGEST:
        return
    from sardonyx.dtypes import from_numpy  # lazy: a start from a saved program does without the table of types

    places: list[tuple[int, int, tuple[int, ...], str, int]] = []
    contents: list[memoryview] = []
    offset = 0
    for number, array in arrays.items():
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")
        places.append((number, offset, array.shape, from_numpy(array.dtype).name, zlib.adler32(content)))
        gap = -len(content) % _ALIGNMENT
        contents += [content, memoryview(bytes(gap))]
        offset += len(content) + gap
    program = record.program
    code = None if program is None else (program.image.plain(), program.objects, program.object_of_step, program.driver)
    beside = (record.beside.folder, dict(record.beside.found))
    plain = (key, code, record.node_count, record.deciding, record.described, beside, places)
    body = marshal.dumps(plain)
    if len(body) > _LARGEST_RECORD:
        return
    gap = -(_HEADER.size + len(body)) % _ALIGNMENT
    files = programs(folder)
    files.keep(_file_key(key), _HEADER.pack(_MAGIC, len(body), zlib.crc32(body)), body, bytes(gap), *contents)
    files.make_room()


def read(folder: str, key: str, data_folder: str) -> tuple[Record, dict[int, Array]] | None:
    """A saved program and its constants, which share the mapped file's memory; None if there is none or it is damaged.

    `data_folder` is where the model's external data is looked for: a program made of other files is of no use.
    """
    saved, name = programs(folder), _file_key(key)
    found = saved.open(name)
    if found is None:
        return None
    descriptor, file_size = found
    try:
        content = map_file(descriptor, file_size)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if file_size < _HEADER.size:
        return None
    magic, length, checksum = _HEADER.unpack_from(content)
    if magic != _MAGIC or length > min(file_size - _HEADER.size, _LARGEST_RECORD):
        return None
    body = content[_HEADER.size : _HEADER.size + length]
    if zlib.crc32(body) != checksum:
        return None
    saved.mark_used(name)
    try:
        saved_key, code, node_count, deciding, described, beside, places = marshal.loads(body)
    except (ValueError, TypeError, EOFError):  # another Python has written it
        return None
    files = Beside(*beside)
    if saved_key != key or not files.is_unchanged(data_folder):
        return None
    start = -(-(_HEADER.size + length) // _ALIGNMENT) * _ALIGNMENT
    arrays: dict[int, Array] = {}
    for number, offset, shape, kind, checksum in places:
        dtype = numpy_type(kind)
        count = 1
        for size in shape:
            count *= size
        end = start + offset + count * dtype.itemsize
        if end > file_size or zlib.adler32(content[start + offset : end]) != checksum:
            return None
        arrays[number] = np.frombuffer(content, dtype, count, start + offset).reshape(shape)
    program = None if code is None else Program(from_plain(code[0]), *code[1:])
    return Record(program, node_count, deciding, described, files), arrays


class _SavedModel:
    """What is known of a saved model without compiling it."""

    def __init__(self, record: Record, open_full: Callable[[], Any]) -> None:
        self.node_count = record.node_count
        self._record = record
        self._open_full = open_full
        self._full: Any = None
        self._ports: Any = None
        self._lock = ForkSafeLock()

    @property
    def described(self) -> tuple[Any, Any]:
        """The ports of the model (inputs, outputs, overridable initializers), and what the session saved beside them."""
        if self._ports is None:
            with importing:  # that is what it does, too
                self._ports = pickle.loads(self._record.described)
        ports: tuple[Any, Any] = self._ports
        return ports

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What must be fed."""
        ports: tuple[Port, ...] = self.described[0][0]
        return ports

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What the model gives."""
        ports: tuple[Port, ...] = self.described[0][1]
        return ports

    @property
    def overridable_initializers(self) -> tuple[Port, ...]:
        """Weights that a feed of the same name replaces."""
        ports: tuple[Port, ...] = self.described[0][2]
        return ports

    @property
    def full(self) -> Any:
        """The model opened with the whole compiler."""
        with self._lock:
            if self._full is None:
                self._full = self._open_full()
            return self._full

    @property
    def plan(self) -> ExecutionPlan:
        """The plan by which NumPy runs the model."""
        plan: ExecutionPlan = self.full.plan
        return plan

    def _fast_path(self, feeds: Mapping[str, Any]) -> FastPath | None:
        """The program for these feeds, if it was saved."""
        raise NotImplementedError

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]:
        """Compute the named values from the feeds."""
        if list(fetches) == [port.name for port in self.outputs] and (control is None or control.on_node is None):
            fast = self._fast_path(feeds)
            try:
                if control is not None:
                    control.stop_if_asked()
                if fast is not None:
                    return fast.run_checked(feeds, () if control is None else control.targets)
            except (SizeConflict, MemoryError, OverflowError):
                pass  # the full model knows what to do
        results: list[Any] = self.full.run(feeds, fetches, control)
        return results


class SavedModel(_SavedModel):
    """A model whose program was read from disk; the same face as a freshly compiled one."""

    def __init__(self, record: Record, loaded: LoadedProgram, open_full: Callable[[], Any]) -> None:
        super().__init__(record, open_full)
        self._loaded = loaded
        self.run_fast = loaded.fast.run

    def _fast_path(self, feeds: Mapping[str, Any]) -> FastPath | None:
        return self._loaded.fast

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        self._loaded.fast.shrink()
        if self._full is not None:
            self._full.shrink()


class SavedCases(_SavedModel):
    """A model that is native for some cases; their programs are read when they first come."""

    def __init__(self, record: Record, load_case: Callable[[Case], LoadedProgram | None], open_full: Callable[[], Any]) -> None:
        super().__init__(record, open_full)
        self._load_case = load_case
        self._cases = CaseTable(record.deciding)
        self._loaded: list[LoadedProgram] = []
        self._missing: set[Case] = set()

    def run_fast(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """All outputs, if this run can go the short way; None if it needs `run`."""
        results = self._cases.run(feeds)
        if results is None and self._full is not None:  # it knows cases that cannot be saved
            results = self._full.run_fast(feeds)
        if results is None:
            fast = self._fast_path(feeds)
            results = None if fast is None else fast.run(feeds)
        return results

    def _fast_path(self, feeds: Mapping[str, Any]) -> FastPath | None:
        case = self._cases.case_of(feeds)
        if case is None or case in self._missing:
            return None
        found = self._cases.find(case)
        if found is None:
            loaded = self._load_case(case)
            if loaded is None:
                self._missing.add(case)
                return None
            self._loaded.append(loaded)
            self._cases.put(case, loaded.fast)
            return loaded.fast
        return found

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        self._cases.shrink()
        if self._full is not None:
            self._full.shrink()


class LoadedProgram:
    """A program ready to run, with the code it consists of."""

    def __init__(self, program: Program, arrays: dict[int, Array], workers: int, spinning: bool) -> None:
        kind = runtime()
        self._code = [load(content, kind) for content in program.objects]
        entries = [self._code[number].functions[ENTRY] for number in program.object_of_step]
        pool = shared_pool(lambda: load(program.driver, kind), workers, spinning, kind)
        self.fast = FastPath(NativeCore(program.image, entries, pool, lambda: arrays))


def open_saved(
    folder: str, key: str, data_folder: str, workers: int, spinning: bool, open_full: Callable[[], Any]
) -> SavedModel | SavedCases | None:
    """The model saved under a key; None if there is none. `open_full` compiles it, for what the saved programs cannot do."""
    found = read(folder, key, data_folder)
    if found is None:
        return None
    record, arrays = found
    if record.program is not None:
        program = _loaded(record.program, arrays, workers, spinning)
        return None if program is None else SavedModel(record, program, open_full)

    def load_case(case: Case) -> LoadedProgram | None:
        found = read(folder, case_key(key, case), data_folder)
        if found is None or found[0].program is None:
            return None
        return _loaded(found[0].program, found[1], workers, spinning)

    return SavedCases(record, load_case, open_full)


def _loaded(program: Program, arrays: dict[int, Array], workers: int, spinning: bool) -> LoadedProgram | None:
    try:
        return LoadedProgram(program, arrays, workers, spinning)
    except errors.EngineError:  # code this machine does not take
        return None


def case_key(key: str, case: Case) -> str:
    """The key of the program for one case of a model."""
    return f"{key}|{case}"
