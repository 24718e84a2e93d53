"""LLVM: IR text in, object code out. The only importer of llvmlite.

Several threads may compile at once. llvmlite takes one lock around every call, because its users share a context; here every
module has a context of its own, and a target machine is used by one thread at a time, which is what LLVM asks for, so the long
call (the one that makes object code) goes past that lock.

Nobody may fork meanwhile (`forks.held_off`): a child in which LLVM was at work, in a thread that does not exist there, could
never compile anything. The caller sees to it, because the threads that help him must not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import llvmlite
from llvmlite import binding

from sardonyx import errors
from sardonyx.forks import ForkSafeLock
from sardonyx.target.target import Target

# What 2 adds (a second scheduling, shorter divisions where numbers happen to be small) changes no loop of ours, and takes a fifth
# of the time.
_EFFORT: Final = 1
# Kernels come with their address arithmetic settled, and compute things where they are needed. On loops over many operands, loop
# strength reduction takes ten times as long as all other passes together; sinking takes a twentieth of the time. Both leave code
# that is longer and runs no faster.
_LEFT_OUT: Final = ("disable-lsr", "disable-machine-sink")
_lock = ForkSafeLock()  # guards the number, and llvmlite's calls before the long one
_compiling = 0  # threads that compile
# Target machines that nobody uses now, by target. They are never given up: that would be another call of llvmlite, at any time.
_machines: dict[str, list[Any]] = {}


@cache
def _initialise() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


@cache
def _emit_to_memory() -> Any:
    """LLVM's own function that makes object code, without the lock of llvmlite around it."""
    library = binding.ffi.lib
    function = ctypes.CDLL(library._name, handle=library._handle).LLVMPY_TargetMachineEmitToMemory
    function.argtypes = library.LLVMPY_TargetMachineEmitToMemory.argtypes
    function.restype = library.LLVMPY_TargetMachineEmitToMemory.restype
    return function


def version() -> str:
    """Names the compiler in cache keys."""
    return f"llvm-{'.'.join(map(str, binding.llvm_version_info))}-llvmlite-{llvmlite.__version__}"


def host_description() -> tuple[str, str, str]:
    """Triple, CPU name and feature string of this machine. The features matter: the name alone promises too much in a VM."""
    return binding.get_default_triple(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


@contextmanager
def _machine(target: Target) -> Iterator[Any]:
    """A machine for a target that nobody else uses meanwhile."""
    idle = _machines.setdefault(target.key, [])
    try:
        machine = idle.pop()
    except IndexError:
        with _lock:
            _initialise()
            machine = binding.Target.from_triple(target.triple).create_target_machine(
                cpu=target.cpu, features=target.features, opt=_EFFORT, reloc="pic", codemodel="small"
            )
    try:
        yield machine
    finally:
        idle.append(machine)


@contextmanager
def _at_work() -> Iterator[None]:
    """While a thread compiles some of LLVM's passes are off. The options are for the whole process, and others use LLVM, too."""
    global _compiling
    with _lock:
        _compiling += 1
        if _compiling == 1:
            for name in _LEFT_OUT:
                binding.set_option("sardonyx", f"-{name}")
    try:
        yield
    finally:
        with _lock:
            _compiling -= 1
            if _compiling == 0:
                for name in _LEFT_OUT:
                    binding.set_option("sardonyx", f"-{name}=false")


def compile_to_object(ir: str, target: Target) -> bytes:
    """Object code of an IR module. Kernels are scheduled by hand: no IR passes are run."""
    with _at_work(), _machine(target) as machine:
        with _lock:
            context = binding.create_context()
            try:
                module = binding.parse_assembly(ir, context)
                module.triple = target.triple
                module.verify()
            except RuntimeError as error:
                raise errors.EngineError(f"generated code is not valid LLVM IR: {error}") from error
        with module:
            content = _emit(machine, module)
        context.close()
        return content


def _emit(machine: Any, module: Any) -> bytes:
    """Object code of a module, made without llvmlite's lock."""
    with binding.ffi.OutputString() as problem:
        buffer = _emit_to_memory()(machine, module, 1, problem)
        if not buffer:
            raise errors.EngineError(f"LLVM makes no code of it: {problem}")
    try:
        start, size = binding.ffi.lib.LLVMPY_GetBufferStart(buffer), binding.ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        binding.ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def load_object(content: bytes) -> Any:
    """An execution engine that holds the code of an object, in the format of this system."""
    with _lock:
        _initialise()
        try:
            image = binding.ObjectFileRef.from_data(content)
            machine = binding.Target.from_default_triple().create_target_machine(jit=True)
            engine = binding.create_mcjit_compiler(binding.parse_assembly("", binding.create_context()), machine)
            engine.add_object_file(image)
            engine.finalize_object()
        except RuntimeError as error:
            raise errors.EngineError(f"LLVM does not load the object code: {error}") from error
        return engine


def assembly(ir: str, target: Target) -> str:
    """The assembly of an IR module, to look at."""
    with _at_work(), _machine(target) as machine:
        with _lock:
            module = binding.parse_assembly(ir)
            module.triple = target.triple
        text: str = machine.emit_assembly(module)
        return text
