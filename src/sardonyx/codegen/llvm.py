"""LLVM: IR text in, object code out. The only importer of llvmlite.

Several threads may compile at once. llvmlite takes one lock around every call, because its users share a context; here every
module has a context of its own and every thread a target machine, which is what LLVM asks for, so the long call (the one that
makes object code) goes past that lock.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import llvmlite
from llvmlite import binding

from sardonyx import errors
from sardonyx.codegen.target import Target

_idle = threading.Condition(threading.Lock())  # guards what follows; told when no thread compiles any longer
_machines = threading.local()  # LLVM's target machines are not to be shared between threads
_compiling = 0  # threads that compile


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


def _machine(target: Target) -> Any:
    """This thread's machine for a target."""
    machines = _machines.__dict__
    if target.key not in machines:
        _initialise()
        machines[target.key] = binding.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small"
        )
    return machines[target.key]


@contextmanager
def _at_work() -> Iterator[None]:
    """While a thread compiles: nobody forks, and LLVM's loop strength reduction is off.

    Kernels come with their address arithmetic settled. On loops over many operands the pass takes ten times as long as all
    others together, and leaves longer code that runs no faster. The option is for the whole process, and others use LLVM, too.
    """
    global _compiling
    with _idle:
        _compiling += 1
        if _compiling == 1:
            binding.set_option("sardonyx", "-disable-lsr")
    try:
        yield
    finally:
        with _idle:
            _compiling -= 1
            if _compiling == 0:
                binding.set_option("sardonyx", "-disable-lsr=false")
                _idle.notify_all()


def _wait_until_idle() -> None:
    """Before a fork: a child in which LLVM was at work, in a thread that does not exist there, could never compile anything."""
    _idle.acquire()
    _idle.wait_for(lambda: _compiling == 0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_until_idle, after_in_parent=_idle.release, after_in_child=_idle.release)


def compile_to_object(ir: str, target: Target) -> bytes:
    """Object code of an IR module. Kernels are scheduled by hand: no IR passes are run."""
    with _at_work():
        with _idle:
            machine = _machine(target)
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


def assembly(ir: str, target: Target) -> str:
    """The assembly of an IR module, to look at."""
    with _at_work():
        with _idle:
            machine = _machine(target)
            module = binding.parse_assembly(ir)
            module.triple = target.triple
        text: str = machine.emit_assembly(module)
        return text
