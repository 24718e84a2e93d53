"""Compiled models on disk: plan, machine code and weights in one file, mapped into memory.

Opening a saved model needs neither the model file nor any stage of the compiler, so a second process starts in the time it
takes to map the file. A file is found by a key that names everything the program depends on (`CacheEntry`); it lies in the
private cache folder, beside the object code, and is as trusted as that: both are run. `formats.program` has the format,
`origins` what tells that a model is still the same.

Only programs that never come back to Python are saved. Of a model that is native for some specialisations only (see
`specialisations`), those are saved. What a saved program cannot do (other values than the outputs, sizes that contradict the
model) opens the model in full.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sardonyx import errors
from sardonyx.cache_folder import CacheFolder
from sardonyx.codegen.loader import ENTRY, load, load_all
from sardonyx.forks import ForkSafeLock, cached_property, importing
from sardonyx.formats.program.container import FormatError
from sardonyx.formats.program.read import ProgramCode, ProgramFile
from sardonyx.mapped_file import FileIdentity, identity_at, map_file, shared_arrays
from sardonyx.options import environment
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.native_core import Array, NativeCore, SizeConflict
from sardonyx.runtime.origins import Origin, content_digest
from sardonyx.runtime.pool import shared_pool
from sardonyx.sources import source_version
from sardonyx.target.machine import machine_fingerprint, runtime

if TYPE_CHECKING:
    from sardonyx.formats.program.write import Record
    from sardonyx.plan.plan import ExecutionPlan, Port
    from sardonyx.runtime.executor import RunControl
    from sardonyx.runtime.ports import ModelDescription
    from sardonyx.runtime.specialisations import SpecialisationKey

_SUFFIX: Final = ".program"
_LARGEST: Final = 512 << 20  # bytes of constants up to which a program is saved
_LONG_TO_READ: Final = 16 << 20  # bytes of a model that is not read for nothing
_FOLDER_LIMIT: Final = 2 << 30  # bytes of saved programs that are kept; the ones unused for longest go first


class CacheEntry:
    """The entry of the cache for a model and some settings: its key, and the files it depends on."""

    def __init__(self, folder: str, source: str | bytes | memoryview, data_folder: str, settings: str) -> None:
        self.folder = folder
        self._data_folder = data_folder  # where the model's external data is looked for
        self._settings = settings
        self._thread: Any = None
        if isinstance(source, str):
            self._path: str | None = os.path.realpath(source)
            self._identity = identity_at(self._path)
            self._size = 0 if self._identity is None else self._identity[2]
            self.origin = Origin(folder, f"{self._path}|{data_folder}")
        else:
            self._path, self._size, self._digest = None, len(source), content_digest(source)
            self.origin = Origin(folder, f"{self._digest}|{data_folder}")

    @cached_property
    def key(self) -> str | None:
        """Names everything a program depends on, but for files beside the model; None if the model cannot be read."""
        if self._thread is not None:
            self._thread.join()
        digest = self._digest if self._path is None else self.origin.digest(self._path)
        now = environment()
        machine = f"{machine_fingerprint()}|{now.target}|{now.runtime}"
        return f"{digest}|{self._settings}|{source_version(self.folder, now.cache_trusted)}|{machine}" if digest else None

    @cached_property
    def is_new(self) -> bool:
        """Whether no program can be there: nothing is known of a large model file, and no program is of a model of its size."""
        if self._path is None or self._size < _LONG_TO_READ or self.origin.remembers(self._path):
            return False
        size = f"{self._size:x}-"
        return not any(entry.key.startswith(size) for entry in programs(self.folder).entries())

    def find_key(self) -> None:
        """Begin to read a large model for its key, in a thread of its own: the compiler does not use all cores all the time."""
        if self.is_new:
            import threading  # lazy: the compiler has imported it, and nobody else comes here

            assert self._path is not None
            self._thread = threading.Thread(target=self.origin.digest, args=(self._path,), name="sardonyx-digest", daemon=True)
            self._thread.start()

    def name(self, specialisation: SpecialisationKey | None = None) -> tuple[str, str]:
        """The name of the file of the program, or of that for one specialisation, and the key that it holds."""
        key = self.key if specialisation is None else f"{self.key}|{specialisation}"
        assert key is not None
        content = key.encode("utf-8", "surrogatepass")
        return f"{self._size:x}-{zlib.crc32(content):08x}{zlib.adler32(content):08x}", key

    def has(self, files: Sequence[tuple[str, str]]) -> bool:
        """Whether the files beside the model are those that a program was made of."""
        return all(self.origin.digest(os.path.join(self._data_folder, path)) == digest for path, digest in files)

    def files(self, looked_at: Mapping[str, FileIdentity | None]) -> tuple[tuple[str, str], ...] | None:
        """The files beside the model that its weights came from, to be saved; None if any file has changed since it was read."""
        if self.key is None or (self._path is not None and not self.origin.is_unchanged(self._path, self._identity)):
            return None
        found = []
        for path, identity in looked_at.items():
            digest = self.origin.digest(path)
            if digest is None or not self.origin.is_unchanged(path, identity):
                return None
            found.append((os.path.relpath(path, self._data_folder) if self._data_folder else path, digest))
        return tuple(found)


def programs(folder: str) -> CacheFolder:
    """The saved programs in the cache folder."""
    return CacheFolder(folder, _SUFFIX, _FOLDER_LIMIT, environment().cache_trusted)


def save(
    entry: CacheEntry,
    record: Record,
    arrays: Mapping[int, Array],
    keys: Mapping[int, str] | None = None,
    specialisation: SpecialisationKey | None = None,
) -> None:
    """Write a program, or that for one specialisation, if it is small enough; a folder that cannot be written is not an error.

    `keys` are those that the weight store knows constants by: whoever opens the program hands it their arrays.
    """
    from sardonyx.formats.program.write import write  # lazy: a start from a saved program writes nothing

    name, key = entry.name(specialisation)
    try:
        pieces = write(key, record, arrays, keys)
    except OverflowError:  # sizes no machine has: the program is made anew every time
        return
    files = programs(entry.folder)
    files.keep(name, *pieces)
    files.make_room()


def is_small_enough(arrays: Mapping[int, Array]) -> bool:
    """Whether a program with these constants is saved."""
    return sum(array.nbytes for array in arrays.values()) <= _LARGEST


def read(entry: CacheEntry, specialisation: SpecialisationKey | None = None) -> ProgramFile | None:
    """A saved program, or that for one specialisation; None if there is none, it is damaged, or was made of other files than
    there are now.

    Its constants share the mapped file's memory.
    """
    saved, (name, key) = programs(entry.folder), entry.name(specialisation)
    found = saved.open(name)
    if found is None:
        return None
    descriptor, size = found
    try:
        file = ProgramFile(map_file(descriptor, size))
    except OSError:
        return None
    except FormatError as error:
        _log_refusal(saved.path(name), error)
        return None
    finally:
        os.close(descriptor)
    if file.key != key or file.references or not entry.has(file.files):
        return None
    saved.mark_used(name)
    for number, known in file.keys.items():
        shared_arrays.setdefault(known, file.arrays[number])
    return file


def _log_refusal(path: str, error: FormatError) -> None:
    """Say why a file is not used: it is made anew, but somebody may want to know who damaged it."""
    import logging  # lazy: few files are refused

    logging.getLogger("sardonyx").info("the saved program %r is not used: %s", path, error)


class _SavedModel:
    """What is known of a saved model without compiling it."""

    def __init__(self, file: ProgramFile, open_full: Callable[[], Any]) -> None:
        self.node_count = file.node_count
        self._file = file
        self._open_full = open_full
        self._full: Any = None
        self._described: Any = None
        self._lock = ForkSafeLock()

    @property
    def described(self) -> tuple[tuple[tuple[Port, ...], ...], ModelDescription]:
        """The ports of the model (inputs, outputs, overridable initializers), and how sessions describe it."""
        if self._described is None:
            with importing:
                from sardonyx.runtime.ports import from_plain  # lazy: plain runs of a saved program never need it

                try:
                    plain = self._file.description()
                except FormatError as error:
                    raise errors.EngineError(f"a saved program has a bad description: {error}") from error
            assert plain is not None
            self._described = from_plain(plain)
        found: tuple[tuple[tuple[Port, ...], ...], ModelDescription] = self._described
        return found

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What must be fed."""
        return self.described[0][0]

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What the model gives."""
        return self.described[0][1]

    @property
    def overridable_initializers(self) -> tuple[Port, ...]:
        """Weights that a feed of the same name replaces."""
        return self.described[0][2]

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

    def _program_for(self, feeds: Mapping[str, Any]) -> Executable | None:
        """The program for these feeds, if it was saved."""
        raise NotImplementedError

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]:
        """Compute the named values from the feeds."""
        if list(fetches) == [port.name for port in self.outputs] and (control is None or control.on_node is None):
            fast = self._program_for(feeds)
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

    def __init__(self, file: ProgramFile, loaded: LoadedProgram, open_full: Callable[[], Any]) -> None:
        super().__init__(file, open_full)
        self._loaded = loaded
        self.run_fast = loaded.fast.run

    def _program_for(self, feeds: Mapping[str, Any]) -> Executable | None:
        return self._loaded.fast

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        self._loaded.fast.shrink()
        if self._full is not None:
            self._full.shrink()


class SavedSpecialisations(_SavedModel):
    """A model that is native for some specialisations; their programs are read when they first come."""

    def __init__(
        self,
        file: ProgramFile,
        load_specialisation: Callable[[SpecialisationKey], LoadedProgram | None],
        open_full: Callable[[], Any],
    ) -> None:
        super().__init__(file, open_full)
        self._load_specialisation = load_specialisation
        with importing:
            from sardonyx.runtime.specialisations import SpecialisationTable  # lazy: most models have one program

        self._specialisations = SpecialisationTable(file.deciding)
        self._loaded: list[LoadedProgram] = []
        self._missing: set[SpecialisationKey] = set()

    def run_fast(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """All outputs, if this run can take the fast path; None if it needs `run`."""
        results = self._specialisations.run(feeds)
        if results is None and self._full is not None:  # it knows specialisations that cannot be saved
            results = self._full.run_fast(feeds)
        if results is None:
            fast = self._program_for(feeds)
            results = None if fast is None else fast.run(feeds)
        return results

    def _program_for(self, feeds: Mapping[str, Any]) -> Executable | None:
        specialisation = self._specialisations.key_of(feeds)
        if specialisation is None or specialisation in self._missing:
            return None
        found = self._specialisations.find(specialisation)
        if found is None:
            loaded = self._load_specialisation(specialisation)
            if loaded is None:
                self._missing.add(specialisation)
                return None
            self._loaded.append(loaded)
            self._specialisations.put(specialisation, loaded.fast)
            return loaded.fast
        return found

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        self._specialisations.shrink()
        if self._full is not None:
            self._full.shrink()


class LoadedProgram:
    """A program ready to run, with the code it consists of."""

    def __init__(self, program: ProgramCode, arrays: dict[int, Array], workers: int, spinning: bool) -> None:
        kind = runtime()
        self._code = load_all(program.objects, kind)
        entries = [self._code[number].functions[ENTRY] for number in program.object_of_step]
        pool = shared_pool(lambda: load(program.driver, kind), workers, spinning, kind)
        self.fast = Executable(NativeCore(program.image, entries, pool, lambda: arrays))


def open_saved(
    entry: CacheEntry, workers: int, spinning: bool, open_full: Callable[[], Any]
) -> SavedModel | SavedSpecialisations | None:
    """The model saved under an entry; None if there is none. `open_full` compiles it, for what the saved programs cannot do."""
    file = None if entry.is_new or entry.key is None else read(entry)
    if file is None:
        return None
    entry.origin.keep()
    if file.program is not None:
        program = _loaded(file, workers, spinning)
        return None if program is None else SavedModel(file, program, open_full)

    def load_specialisation(specialisation: SpecialisationKey) -> LoadedProgram | None:
        found = read(entry, specialisation)
        return None if found is None else _loaded(found, workers, spinning)

    return SavedSpecialisations(file, load_specialisation, open_full)


def _loaded(file: ProgramFile, workers: int, spinning: bool) -> LoadedProgram | None:
    if file.program is None:
        return None
    try:
        return LoadedProgram(file.program, file.arrays, workers, spinning)
    except (errors.EngineError, struct.error, LookupError, ValueError, OverflowError, OSError):  # code this machine does not take
        return None
