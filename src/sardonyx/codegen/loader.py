"""Object code -> callable: ELF objects by our own loader, others by LLVM's.

On Linux objects are linked here (`elf`): that takes a fraction of a millisecond and needs no LLVM, so a program whose kernels are
cached starts without it. On other systems LLVM loads them, whatever their format.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

from sardonyx import errors
from sardonyx.codegen.elf import MACHINES, link
from sardonyx.forks import held_off
from sardonyx.target.machine import PLAIN, architecture

ENTRY: Final = "kernel"  # the name of every kernel's function

# Formats of objects: how they begin, where the machine is told, and its numbers
_FORMATS: Final[tuple[tuple[bytes, int, dict[str, int]], ...]] = (
    (b"\x7fELF\x02\x01", 18, MACHINES),
    (b"\xcf\xfa\xed\xfe", 4, {"x86_64": 7, "aarch64": 12}),  # Mach-O
    (b"\x64\x86", 0, {"x86_64": 0x8664}),  # COFF
    (b"\x64\xaa", 0, {"aarch64": 0xAA64}),
)
_LIBC: Final = ("memcpy", "memset", "memmove", "syscall", "sched_yield")
_LIBM: Final = ("fmod", "fmodf")
_ALIGNMENT: Final = 64  # of objects: what the widest of their constants need


class _Functions(dict[str, int]):
    """Addresses that are asked for when somebody wants them: LLVM does not list what an object has."""

    def __init__(self, address_of: Callable[[str], int]) -> None:
        super().__init__()
        self._address_of = address_of

    def __missing__(self, name: str) -> int:
        address = self._address_of(name)
        if not address:
            raise errors.EngineError(f"object code has no function {name!r}")
        self[name] = address
        return address


class LoadedCode:
    """Executable memory and the addresses of the functions in it. The code lives as long as this object does."""

    def __init__(self, memory: object, functions: Mapping[str, int]) -> None:
        self._memory = memory  # or whatever else keeps the code where it is
        self.functions = functions


def load(content: bytes, kind: str) -> LoadedCode:
    """Make an object's functions callable, by the loader of a kind of runtime."""
    return load_all([content], kind)[0]


def load_all(contents: Sequence[bytes], kind: str) -> list[LoadedCode]:
    """The same for several objects, which share their memory: it takes less of that, and less time."""
    if kind == PLAIN:
        return [_load_by_llvm(content) for content in contents]
    if not contents:
        return []
    memory = _Memory(sum(len(content) + _ALIGNMENT for content in contents))
    functions = [link(content, architecture(), memory.room, _library_address) for content in contents]
    memory.make_executable()
    return [LoadedCode(memory, each) for each in functions]


def _load_by_llvm(content: bytes) -> LoadedCode:
    _check_machine(content)
    from sardonyx.codegen import llvm  # lazy: only systems that have nothing else need LLVM for it

    with held_off:
        engine = llvm.load_object(content)
    return LoadedCode(engine, _Functions(engine.get_function_address))


class _Memory:
    """Memory that is written first and executable afterwards, never both. Parts of it are given out one after the other."""

    def __init__(self, size: int) -> None:
        self._blocks = [self._block(size)]
        self._used = 0

    def room(self, size: int) -> tuple[memoryview, int]:
        """Some bytes, and their address."""
        start = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        if start + size > len(self._blocks[-1][0]):  # code needs more than its object if that has variables that begin as zeros
            self._blocks.append(self._block(size))
            start = 0
        self._used = start + size
        memory, address = self._blocks[-1]
        return memory[start : start + size], address + start

    def make_executable(self) -> None:
        """From now on the memory can be run, and not be written."""
        for memory, address in self._blocks:
            if _libc().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(memory)), mmap.PROT_READ | mmap.PROT_EXEC):
                raise errors.EngineError(f"memory cannot be made executable: errno {ctypes.get_errno()}")

    @staticmethod
    def _block(size: int) -> tuple[memoryview, int]:
        mapped = mmap.mmap(-1, max(size, 1), prot=mmap.PROT_READ | mmap.PROT_WRITE)
        return memoryview(mapped), ctypes.addressof(ctypes.c_char.from_buffer(mapped))


def _check_machine(content: bytes) -> None:
    """Refuse what is no object for this machine: LLVM would end the process."""
    _, at, machines = next((known for known in _FORMATS if content.startswith(known[0])), (b"", 0, {}))
    machine = int.from_bytes(content[at : at + 2], "little")
    if not machines or machine != machines.get(architecture(), machine):
        raise errors.EngineError("object code is not for this machine")


def _library_address(name: str) -> int:
    if name in _LIBC:
        process = _libc()
    elif name in _LIBM:
        process = _math_library()
    else:
        raise errors.EngineError(f"object code calls {name!r}, which the loader does not provide")
    address = ctypes.cast(getattr(process, name), ctypes.c_void_p).value
    if address is None:
        raise errors.EngineError(f"the C library has no {name!r}")
    return address


def _math_library() -> ctypes.CDLL:
    import ctypes.util  # it imports a lot, and few kernels call the library

    return ctypes.CDLL(ctypes.util.find_library("m"))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
