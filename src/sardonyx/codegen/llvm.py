"""LLVM: IR text in, object code out.

Several threads may compile at once. llvmlite takes one lock around every call, because its users share a context; here every
module has a context of its own, and a target machine is used by one thread at a time, which is what LLVM asks for, so the long
call (the one that makes object code) goes past that lock.

Nobody may fork meanwhile (`forks.held_off`): a child in which LLVM was at work, in a thread that does not exist there, could
never compile anything. The caller sees to it, because the threads that help him must not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from sardonyx import errors
from sardonyx.codegen.llvm_library import LlvmError, LlvmLibrary, lock_of_others
from sardonyx.forks import ForkSafeLock
from sardonyx.target.target import Target

# What 2 adds (a second scheduling, shorter divisions where numbers happen to be small) changes no loop of ours, and takes a fifth
# of the time.
_EFFORT: Final = 1
# Kernels come with their address arithmetic settled, and compute things where they are needed. On loops over many operands, loop
# strength reduction takes ten times as long as all other passes together; sinking takes a twentieth of the time. Both leave code
# that is longer and runs no faster.
_LEFT_OUT: Final = ("disable-lsr", "disable-machine-sink")
_own_lock = ForkSafeLock()  # guards the number, and LLVM's calls before the long one
_compiling = 0  # threads that compile
# Target machines that nobody uses now, by target. They are never given up: that would be another call, at any time.
_machines: dict[str, list[int]] = {}


@contextmanager
def _lock() -> Iterator[None]:
    with _own_lock, lock_of_others():
        yield


@cache
def _library() -> LlvmLibrary:
    return LlvmLibrary()


@cache
def _initialise() -> None:
    _library().initialise()


def host_description() -> tuple[str, str, str]:
    """Triple, CPU name and feature string of this machine. The features matter: the name alone promises too much in a VM."""
    return _library().host()


@contextmanager
def _machine(target: Target) -> Iterator[int]:
    """A machine for a target that nobody else uses meanwhile."""
    idle = _machines.setdefault(target.key, [])
    try:
        machine = idle.pop()
    except IndexError:
        with _lock():
            _initialise()
            machine = _library().machine(target.triple, target.cpu, target.features, _EFFORT)
    try:
        yield machine
    finally:
        idle.append(machine)


@contextmanager
def _at_work() -> Iterator[None]:
    """While a thread compiles some of LLVM's passes are off. The options are for the whole process, and others use LLVM, too."""
    global _compiling
    with _lock():
        _compiling += 1
        if _compiling == 1:
            for name in _LEFT_OUT:
                _library().call("SetCommandLine", b"sardonyx", f"-{name}".encode())
    try:
        yield
    finally:
        with _lock():
            _compiling -= 1
            if _compiling == 0:
                for name in _LEFT_OUT:
                    _library().call("SetCommandLine", b"sardonyx", f"-{name}=false".encode())


@contextmanager
def _module(ir: str, target: Target) -> Iterator[int]:
    """A module of some IR, in a context of its own."""
    library = _library()
    with _lock():
        context = library.call("ContextCreate", True)
    module = 0
    try:
        with _lock():
            try:
                module = library.parse(ir, context)
                library.call("SetTarget", module, target.triple.encode())
                library.verify(module)
            except LlvmError as error:
                raise errors.EngineError(f"generated code is not valid LLVM IR: {error}") from error
        yield module
    finally:
        with _lock():
            if module:
                library.call("DisposeModule", module)
            library.call("ContextDispose", context)


def compile_to_object(ir: str, target: Target) -> bytes:
    """Object code of an IR module. Kernels are scheduled by hand: no IR passes are run."""
    return _emit(ir, target, as_object=True)


def assembly(ir: str, target: Target) -> str:
    """The assembly of an IR module, to look at."""
    return _emit(ir, target, as_object=False).decode()


def _emit(ir: str, target: Target, *, as_object: bool) -> bytes:
    """What LLVM makes of a module, without any lock."""
    with _at_work(), _machine(target) as machine, _module(ir, target) as module:
        try:
            return _library().emit(machine, module, as_object=as_object)
        except LlvmError as error:
            raise errors.EngineError(f"LLVM makes no code of it: {error}") from error


def load_object(content: bytes) -> Any:
    """An execution engine that holds the code of an object, in the format of this system."""
    from llvmlite import binding  # lazy: only systems that have no loader of ours need it, and it takes long

    with _lock():
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
