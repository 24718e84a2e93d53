"""Compiled models on disk: plan, machine code and weights in one file, mapped into memory.

Opening a saved model needs neither the model file nor any stage of the compiler, so a second process starts in the time it
takes to map the file. A file is found by a key that names everything the program depends on (`identity`); it lies in the
private cache folder, beside the object code, and is as trusted as that: both are run.

    magic, length and checksum of the record ── record (pickled: plan, code, ports) ── checksummed constants, each aligned

Only programs that never come back to Python are saved. What a saved program cannot do (other values than the outputs, sizes
that contradict the model) opens the model in full.
"""

from __future__ import annotations

import hashlib
import marshal
import mmap
import os
import pickle
import struct
import sys
import threading
import time
import types
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from sardonyx.codegen.library import ENTRY
from sardonyx.codegen.loader import LoadedCode, load
from sardonyx.codegen.object_cache import PROGRAM_SUFFIX
from sardonyx.codegen.target import machine_fingerprint
from sardonyx.ir.graph import Value
from sardonyx.lower.steps import Buffer, KernelStep, View
from sardonyx.plan.native import NativePlan
from sardonyx.plan.plan import ExecutionPlan, Port
from sardonyx.runtime.executor import RunControl
from sardonyx.runtime.fast_path import FastPath
from sardonyx.runtime.native_program import NativeProgram, SizeConflict
from sardonyx.runtime.pool import Pool

_MAGIC: Final = b"SDXPRG1\0"
_HEADER: Final = struct.Struct("<8sQ32s")
_ALIGNMENT: Final = 64
_LARGEST: Final = 512 << 20  # bytes of constants up to which a program is saved
_CLOCK_TICK: Final = 20_000_000  # nanoseconds: file systems count time in steps of up to 10 ms
_FOLDER_LIMIT: Final = 2 << 30  # bytes of saved programs that are kept; the ones unused for longest go first


@dataclass(frozen=True)
class _SavedKernel:
    """Stands for a kernel whose code is in the file."""

    key: str


@dataclass
class Record:
    """All of a saved program but its constants."""

    plan: NativePlan
    inputs: list[Value]
    outputs: list[Value]
    ports: tuple[tuple[Port, ...], tuple[Port, ...], tuple[Port, ...]]
    node_count: int
    objects: list[bytes]  # machine code, each kernel once
    object_of_step: list[int]
    driver: bytes
    size_code: bytes  # marshalled code of the function that evaluates all sizes
    constants: dict[int, tuple[int, tuple[int, ...], str, int]]  # buffer -> offset, shape, element type, checksum
    about: Any  # what the session wants to know again: descriptions, metadata


@cache
def source_version() -> str:
    """Changes with every file of the package: a saved program never meets another version's runtime."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256(sys.version.encode() + np.__version__.encode())
    for path in sorted(root.rglob("*.py")):
        status = path.stat()
        digest.update(f"{path.relative_to(root)}|{status.st_size}|{status.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def identity(source: str | bytes, settings: str) -> str | None:
    """The key of a model and the settings that matter; None if the model is not there, or was written this moment.

    A file is known by what the file system says of it, not by its content: reading it would take longer than opening it saved.
    Its clock is coarse, so that a file that is just being written may change once more without looking different.
    """
    if isinstance(source, str):
        try:
            status = os.stat(source)
        except OSError:
            return None
        if abs(time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns)) < _CLOCK_TICK:
            return None
        file = (os.path.realpath(source), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        digest = hashlib.sha256(repr(file).encode())
    else:
        digest = hashlib.sha256(source)
    digest.update(f"|{settings}|{source_version()}|{machine_fingerprint()}".encode())
    return digest.hexdigest()[:40]


def save(folder: Path, key: str, record: Record, arrays: Mapping[int, Any]) -> None:
    """Write a program, if it is small enough; a folder that cannot be written is not an error."""
    if sum(array.nbytes for array in arrays.values()) > _LARGEST:
        return
    offset = 0
    for number, array in arrays.items():
        checksum = zlib.adler32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data) if array.nbytes else 1
        record.constants[number] = (offset, array.shape, record.plan.buffers[number].dtype.name, checksum)
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    body = pickle.dumps(record, protocol=5)
    start = -(-(_HEADER.size + len(body)) // _ALIGNMENT) * _ALIGNMENT
    temporary = folder / f".new-{key}-{os.getpid()}-{threading.get_ident()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(_HEADER.pack(_MAGIC, len(body), hashlib.sha256(body).digest()) + body)
            for number, array in arrays.items():
                file.seek(start + record.constants[number][0])
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            file.truncate(start + offset)
        os.replace(temporary, folder / f"{key}{PROGRAM_SUFFIX}")
        _evict(folder)
    except OSError:
        temporary.unlink(missing_ok=True)


def _evict(folder: Path) -> None:
    """Keep the folder below its limit."""
    found = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in folder.glob(f"*{PROGRAM_SUFFIX}"))
    total = sum(size for _, size, _ in found)
    for _, size, path in found:
        if total <= _FOLDER_LIMIT:
            return
        path.unlink(missing_ok=True)
        total -= size


def read(folder: Path, key: str) -> tuple[Record, dict[int, Any]] | None:
    """A saved program and its constants, which share the mapped file's memory; None if there is none or it is damaged."""
    path = folder / f"{key}{PROGRAM_SUFFIX}"
    try:
        with open(path, "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        os.utime(path)
    except (OSError, ValueError):
        return None
    if len(content) < _HEADER.size:
        return None
    magic, length, digest = _HEADER.unpack_from(content)
    body = memoryview(content)[_HEADER.size : _HEADER.size + length]
    if magic != _MAGIC or len(body) != length or hashlib.sha256(body).digest() != digest:
        return None
    try:
        record: Record = pickle.loads(body)
    except Exception:  # what another version has written, or nobody: whatever unpickling stumbles over, it is made anew
        return None
    start = -(-(_HEADER.size + length) // _ALIGNMENT) * _ALIGNMENT
    arrays: dict[int, Any] = {}
    for number, (offset, shape, kind, checksum) in record.constants.items():
        dtype = record.plan.buffers[number].dtype.numpy
        count = int(np.prod(shape, dtype=np.int64))
        end = start + offset + count * dtype.itemsize
        if end > len(content) or kind != record.plan.buffers[number].dtype.name:
            return None
        if count and zlib.adler32(memoryview(content)[start + offset : end]) != checksum:
            return None
        arrays[number] = np.frombuffer(content, dtype, count, start + offset).reshape(shape)
    return record, arrays


def stripped(plan: NativePlan, inputs: Sequence[Value], outputs: Sequence[Value]) -> tuple[NativePlan, list[Value], list[Value]]:
    """The plan without anything that leads back to the graph or to kernels."""
    values: dict[Value, Value] = {}
    buffers: dict[int, Buffer] = {}

    def bare_value(value: Value) -> Value:
        if value not in values:
            values[value] = Value(value.name, value.type)
        return values[value]

    def bare_buffer(buffer: Buffer) -> Buffer:
        if id(buffer) not in buffers:
            value = None if buffer.value is None else bare_value(buffer.value)
            buffers[id(buffer)] = Buffer(buffer.kind, buffer.dtype, buffer.size, buffer.label, None, value)
        return buffers[id(buffer)]

    def bare_view(view: View) -> View:
        return View(bare_buffer(view.buffer), view.shape, view.strides, view.offset)

    steps = []
    for step in plan.steps:
        kernel = _SavedKernel(step.kernel.key)
        steps.append(KernelStep(kernel, (), step.units, step.work, (), (), step.label, step.nodes))
    bare = NativePlan(
        steps, list(plan.segments), [bare_buffer(buffer) for buffer in plan.buffers], plan.symbols, plan.dims, plan.table_size,
        plan.dim_slots, plan.address_slots, plan.step_slots, plan.work_slots, plan.lifetimes, plan.sizes, plan.shared,
        [bare_view(view) for view in plan.inputs], [bare_view(view) for view in plan.outputs], plan.checks, plan.equalities,
        plan.faults,
    )  # fmt: skip
    return bare, [bare_value(value) for value in inputs], [bare_value(value) for value in outputs]


_pools: dict[tuple[str, int, bool], tuple[Pool, LoadedCode]] = {}


def _pool(driver: bytes, workers: int, spinning: bool) -> Pool:
    key = (hashlib.sha256(driver).hexdigest(), workers, spinning)
    if key not in _pools:
        code = load(driver)
        _pools[key] = (Pool(code.functions, workers, spinning=spinning), code)
    return _pools[key][0]


class SavedModel:
    """A program read from disk; the same face as a freshly compiled model."""

    def __init__(
        self, record: Record, arrays: Mapping[int, Any], workers: int, spinning: bool, open_full: Callable[[], Any]
    ) -> None:
        self.inputs, self.outputs, self.overridable_initializers = record.ports
        self.node_count = record.node_count
        self._open_full = open_full
        self._full: Any = None
        self._code = [load(content) for content in record.objects]
        plan = record.plan
        for number, array in arrays.items():
            plan.buffers[number].load = partial(_same, array)
        entries = [self._code[number].functions[ENTRY] for number in record.object_of_step]
        sizes = types.FunctionType(marshal.loads(record.size_code), {"__builtins__": {}, "max": max, "min": min})
        program = NativeProgram(plan, entries, _pool(record.driver, workers, spinning), {}, sizes)
        self._names = tuple(port.name for port in self.outputs)
        self._fast = FastPath(program, record.inputs, record.outputs)

    @property
    def full(self) -> Any:
        """The model opened with the whole compiler."""
        if self._full is None:
            self._full = self._open_full()
        return self._full

    @property
    def plan(self) -> ExecutionPlan:
        """The plan by which NumPy runs the model."""
        plan: ExecutionPlan = self.full.plan
        return plan

    def run_fast(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """All outputs, if this run can go the short way; None if it needs `run`."""
        return self._fast.run(feeds)

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]:
        """Compute the named values from the feeds."""
        if tuple(fetches) == self._names and (control is None or control.is_idle):
            try:
                return self._fast.run_checked(feeds)
            except (SizeConflict, MemoryError, OverflowError):
                pass  # the full model knows what to do
        results: list[Any] = self.full.run(feeds, fetches, control)
        return results

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        self._fast.shrink()


def _same(array: Any) -> Any:
    return array
