"""Compiled models on disk: plan, machine code and weights in one file, mapped into memory.

Opening a saved model needs neither the model file nor any stage of the compiler, so a second process starts in the time it
takes to map the file. A file is found by a key that names everything the program depends on (`CacheEntry`); it lies in the
private cache folder, beside the object code, and is as trusted as that: both are run. `formats.program` has the format,
`origins` what tells that a model is still the same.

Of a model whose first specialisations have programs of their own (see `specialisations`), those are saved, too, each in a file
beside the general program. Bodies of nodes are saved when they have run. What a saved program cannot do (other values than the
outputs, sizes that contradict the model, a branch never taken before) opens the model in full.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from sardonyx import errors
from sardonyx.cache_folder import CacheFolder
from sardonyx.codegen.loader import ENTRY, load, load_all
from sardonyx.forks import ForkSafeLock, cached_property, held_off, importing
from sardonyx.formats.program.container import FormatError
from sardonyx.formats.program.read import ProgramFile
from sardonyx.mapped_file import FileIdentity, identity_at, identity_of, map_file, mapped_range, shared_arrays
from sardonyx.options import environment
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.native_core import Array, NativeCore, SizeConflict
from sardonyx.runtime.origins import Origin, content_digest
from sardonyx.runtime.pool import shared_pool
from sardonyx.sources import source_version
from sardonyx.target.machine import machine_fingerprint, runtime

if TYPE_CHECKING:
    from sardonyx.formats.program.write import Record
    from sardonyx.plan.ports import Port
    from sardonyx.program.calls import HostNode
    from sardonyx.runtime.ports import ModelDescription
    from sardonyx.runtime.runs import RunControl
    from sardonyx.runtime.saved_specialisations import SavedSpecialisations
    from sardonyx.runtime.specialisations import SpecialisationKey

_SUFFIX: Final = ".program"
_LARGEST: Final = 512 << 20  # bytes of constants up to which a program is saved wherever there is room for it
_SHARE: Final = 8  # more are saved if the file system has so many times as much free
_LARGE_CONSTANT: Final = 1 << 16  # bytes of one that is not copied if it lies in the model's files
_LOCATED: Final = "file "  # begins the key of such a constant: file 0 is the model's, then those beside it
_LONG_TO_READ: Final = 16 << 20  # bytes of a model that is not read for nothing
_being_saved: dict[str, Any] = {}  # threads that save a program, by the name of its origin
_FOLDER_LIMIT: Final = 2 << 30  # bytes of saved programs that are kept at least; the ones unused for longest go first


class CacheEntry:
    """The entry of the cache for a model and some settings: its key, and the files it depends on."""

    def __init__(self, folder: str, source: str | bytes | memoryview, data_folder: str, settings: str) -> None:
        self.folder = folder
        self._identity: FileIdentity | None = None
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
        return f"{digest}|{self.settled}" if digest else None

    @cached_property
    def settled(self) -> str:
        """Names everything that a program depends on beside the model's files."""
        now = environment()
        machine = f"{machine_fingerprint()}|{now.target}|{now.runtime}"
        return f"{self._settings}|{source_version(self.folder, now.cache_trusted)}|{machine}"

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

    def save_later(self, save: Callable[[], None]) -> None:
        """Have a thread save what takes long to write. Sessions of this model wait for it, and so does the end of the process."""
        import threading  # lazy: the compiler has imported it, and nobody else comes here

        def work() -> None:
            try:
                with held_off:
                    save()
            finally:
                if _being_saved.get(where) is thread:
                    del _being_saved[where]

        where = self.origin.name
        thread = threading.Thread(target=work, name="sardonyx-save")
        _being_saved[where] = thread
        thread.start()

    def wait(self) -> None:
        """Until no other session of this process is about to save a program of this model."""
        thread = _being_saved.get(self.origin.name) if _being_saved else None
        if thread is not None:
            thread.join()

    def name(self, specialisation: SpecialisationKey | None = None) -> tuple[str, str]:
        """The name of the file of the program, or of that for one specialisation, and the key that it holds."""
        assert self.key is not None
        name = f"{self._size:x}-{_hash(self.key)}"
        if specialisation is None:
            return name, self.key
        key = f"{self.key}|{specialisation}"
        return f"{name}-{_hash(key)}", key

    def specialisation_count(self) -> int:
        """How many specialisations have programs of their own."""
        begin = f"{self.name()[0]}-"
        return sum(entry.key.startswith(begin) for entry in programs(self.folder).entries())

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

    def locations(self, arrays: Mapping[int, Array], looked_at: Mapping[str, FileIdentity | None]) -> dict[int, str]:
        """Large constants that lie as they are in the model's file, or in one of those beside it: the key of each tells where.

        A program refers to them: they are neither copied nor kept in memory twice.
        """
        numbers = {identity: number for number, identity in enumerate((self._identity, *looked_at.values()))}
        found: dict[int, str] = {}
        for number, array in arrays.items():
            where = mapped_range(array) if array.nbytes >= _LARGE_CONSTANT and array.flags.c_contiguous else None
            if where is not None and where[0].identity is not None and where[0].identity in numbers:
                found[number] = f"{_LOCATED}{numbers[where[0].identity]}+{where[1]}"
        return found

    def locate(self, file: ProgramFile) -> bool:
        """Have a program's constants that lie in the model's files; whether they are all there. `has` has looked at the files."""
        views: dict[int, memoryview] = {}
        try:
            for number, (key, kind, shape) in list(file.references.items()):
                if not key.startswith(_LOCATED):
                    return False
                which, start = map(int, key.removeprefix(_LOCATED).split("+"))
                if which not in views:
                    views[which] = self._mapped(which, file.files)
                size = prod(shape) * kind.itemsize
                file.locate(number, views[which][start : start + size])
        except (OSError, ValueError, LookupError):  # as FormatError is: files that were cut since, keys that make no sense
            return False
        return True

    def _mapped(self, number: int, files: Sequence[tuple[str, str]]) -> memoryview:
        """The model's file, or one of those beside it, if it is still what its digest was made of."""
        path = self._path if number == 0 else os.path.join(self._data_folder, files[number - 1][0])
        if path is None:
            raise ValueError("a model in memory has no file")
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            status = os.fstat(descriptor)
            if not self.origin.is_unchanged(path, identity_of(status)):
                raise ValueError("it has changed")
            return map_file(descriptor, status.st_size)
        finally:
            os.close(descriptor)


def _hash(key: str) -> str:
    content = key.encode("utf-8", "surrogatepass")
    return f"{zlib.crc32(content):08x}{zlib.adler32(content):08x}"


def programs(folder: str) -> CacheFolder:
    """The saved programs in the cache folder."""
    return CacheFolder(folder, _SUFFIX, _FOLDER_LIMIT, environment().cache_trusted)


def save(
    entry: CacheEntry,
    record: Record,
    arrays: Mapping[int, Array],
    keys: Mapping[int, str] | None = None,
    specialisation: SpecialisationKey | None = None,
    locations: Mapping[int, str] | None = None,
) -> None:
    """Write a program, or that for one specialisation, if it is small enough; a folder that cannot be written is not an error.

    `keys` are those that the weight store knows constants by: whoever opens the program hands it their arrays. Constants that
    have `locations` (see `CacheEntry.locations`) are not written.
    """
    from sardonyx.formats.program.write import NotSavable, write  # lazy: a start from a saved program writes nothing

    name, key = entry.name(specialisation)
    try:
        pieces = write(key, record, arrays, {**(keys or {}), **(locations or {})}, locations or ())
    except (OverflowError, NotSavable):  # sizes no machine has, what another provider made: compiled anew every time
        return
    files = programs(entry.folder)
    files.keep(name, *pieces)
    files.limit_bytes = max(_FOLDER_LIMIT, free_bytes(entry.folder) // _SHARE)
    files.make_room()


def is_small_enough(entry: CacheEntry, arrays: Mapping[int, Array], locations: Mapping[int, str], more: int = 0) -> bool:
    """Whether a program with these constants, and `more` bytes of others, is saved: large ones need much room."""
    size = sum(array.nbytes for number, array in arrays.items() if number not in locations) + more
    return size <= _LARGEST or size <= free_bytes(entry.folder) // _SHARE


def free_bytes(folder: str) -> int:
    """How much room there is on the file system of a folder; 0 if nobody says."""
    try:
        if hasattr(os, "statvfs"):  # what `shutil` asks, which imports all kinds of archives
            state = os.statvfs(folder)
            return state.f_bavail * state.f_frsize
        import shutil  # lazy: a start from a saved program writes nothing

        return shutil.disk_usage(folder).free
    except OSError:
        return 0


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
    if file.key != key or not entry.has(file.files) or not entry.locate(file):
        return None
    saved.mark_used(name)
    return file


def _log_refusal(path: str, error: FormatError) -> None:
    """Say why a file is not used: it is made anew, but somebody may want to know who damaged it."""
    import logging  # lazy: few files are refused

    logging.getLogger("sardonyx").info("the saved program %r is not used: %s", path, error)


class SavedProgram:
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
    def assigned_nodes(self) -> Sequence[HostNode]:
        """All nodes, with the provider that computes each."""
        nodes: Sequence[HostNode] = self.full.assigned_nodes
        return nodes

    def short_program(self, names: Sequence[str]) -> Executable | None:
        """The program that has computed these values before, if it has a short way to run."""
        found: Executable | None = None if self._full is None else self._full.short_program(names)
        return found

    def _program_for(self, feeds: Mapping[str, Any]) -> Executable | None:
        """The program for these feeds, if it was saved."""
        raise NotImplementedError

    def _drop(self, program: Executable) -> None:
        """A program lacks something: use the full model from now on."""
        raise NotImplementedError

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        raise NotImplementedError

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]:
        """Compute the named values from the feeds."""
        if list(fetches) == [port.name for port in self.outputs] and (control is None or control.on_node is None):
            program = self._program_for(feeds)
            if control is not None:
                control.stop_if_asked()
            try:
                if program is not None:
                    return _run(program, feeds, control)
            except (SizeConflict, MemoryError, OverflowError) as error:
                # NumPy computes it, as in the process that has compiled the program. The full model, which does not know how many
                # specialisations were saved, would make one more of it, whose results differ in their last bits.
                if not isinstance(error, SizeConflict) or not error.is_served_by_another:
                    refused: list[Any] = self.full.reference.run(feeds, fetches, control)
                    return refused
            except errors.EngineError:
                assert program is not None
                self._drop(program)
                self.full.compiles_all_of_specialisations = True
        results: list[Any] = self.full.run(feeds, fetches, control)
        return results


def _run(program: Executable, feeds: Mapping[str, Any], control: RunControl | None) -> list[Any]:
    if program.takes_arrays:
        if control is None:
            return program.run_checked(feeds)
        return program.run_checked(feeds, control.targets, control.shared, control)
    with importing:
        from sardonyx.runtime.runs import RunControl  # lazy: most programs never come back to Python
        from sardonyx.runtime.segment_runner import run_named  # lazy: the same

    return run_named(program, feeds, control or RunControl())


def _never_fast(feeds: Mapping[str, Any]) -> list[Any] | None:
    """Stands where a short way to run could be."""
    return None


class SavedModel(SavedProgram):
    """A model whose program was read from disk; the same face as a freshly compiled one."""

    def __init__(self, file: ProgramFile, program: Executable, open_full: Callable[[], Any]) -> None:
        super().__init__(file, open_full)
        self._program: Executable | None = program
        self.run_fast = program.run if program.has_fast_path else _never_fast

    def short_program(self, names: Sequence[str]) -> Executable | None:
        """The program that has computed these values before, if it has a short way to run."""
        program = self._program
        if program is not None and program.has_fast_path and list(names) == [port.name for port in self.outputs]:
            return program
        return super().short_program(names)

    def _program_for(self, feeds: Mapping[str, Any]) -> Executable | None:
        return self._program

    def _drop(self, program: Executable) -> None:
        self._program = None

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        for program in (self._program, self._full):
            if program is not None:
                program.shrink()


def open_saved(
    entry: CacheEntry, workers: int, spinning: bool, open_full: Callable[[], Any]
) -> SavedModel | SavedSpecialisations | None:
    """The model saved under an entry; None if there is none. `open_full` compiles it, for what the saved programs cannot do."""
    file = None if entry.is_new or entry.key is None else read(entry)
    if file is None:
        return None
    entry.origin.keep()
    if file.has_program and not file.is_specialised:
        program = loaded(file, workers, spinning)
        return None if program is None else SavedModel(file, program, open_full)
    from sardonyx.runtime.saved_specialisations import SavedSpecialisations  # lazy: most models have one program

    return SavedSpecialisations(entry, file, lambda file: loaded(file, workers, spinning), open_full)


def _shared(key: str, array: Array) -> Array:
    """What other sessions have under a key; else the array, for others to have."""
    found = shared_arrays.setdefault(key, array)
    return found if found.shape == array.shape and found.dtype == array.dtype else array


def loaded(file: ProgramFile, workers: int, spinning: bool) -> Executable | None:
    """The program of a file, ready to run; None if it cannot be."""
    kind = runtime()
    try:
        code = file.program
        if code is None:
            return None
        arrays = file.arrays
        for number, known in file.keys.items():
            arrays[number] = _shared(known, arrays[number])
        if code.segments is None:
            objects = load_all(code.objects, kind)
            entries = [objects[number].functions[ENTRY] for number in code.object_of_step]
            pool = shared_pool(lambda: load(code.driver, kind), workers, spinning, kind)
            program = Executable(NativeCore(code.image, entries, pool, lambda: arrays))
            program.keeps = objects
            return program
        from sardonyx.runtime.loaded_segments import segmented_program  # lazy: most programs never come back to Python

        return segmented_program(file, shared_pool(lambda: load(code.driver, kind), workers, spinning, kind), kind)
    except FormatError as error:
        _log_refusal(file.key, error)
    except (errors.EngineError, struct.error, LookupError, ValueError, OverflowError, OSError):  # code this machine does not take
        pass
    return None
