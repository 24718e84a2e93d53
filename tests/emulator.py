"""Kernels for another machine, run by an emulator, in memory of its own with gaps that nobody may touch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from sardonyx.codegen import llvm
from sardonyx.codegen.elf import link
from sardonyx.codegen.emit import kernel_ir
from sardonyx.codegen.loader import ENTRY
from sardonyx.target.target import Target

Array = NDArray[Any]

_PAGE: Final = 4096
_STACK: Final = 1 << 20  # bytes
_ENABLE_VECTORS: Final = 3 << 20  # in CPACR_EL1: without it an access to a vector register is a trap
_RETURN: Final = bytes.fromhex("c0035fd6")  # ret


class Emulator:
    """An AArch64 machine. Arrays are copied into its memory, each to the end of pages of its own."""

    def __init__(self, target: Target) -> None:
        unicorn = pytest.importorskip("unicorn", reason="the emulator is not installed: pip install unicorn")
        registers = pytest.importorskip("unicorn.arm64_const")
        assert target.architecture == "aarch64"
        self.target = target
        self._machine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM, registers.UC_CPU_ARM64_MAX)
        self._x = [getattr(registers, f"UC_ARM64_REG_X{number}") for number in range(4)]
        self._sp, self._lr = registers.UC_ARM64_REG_SP, registers.UC_ARM64_REG_LR
        self._machine.reg_write(registers.UC_ARM64_REG_CPACR_EL1, _ENABLE_VECTORS)
        self._next = 1 << 20
        self._stack = self._room(_STACK)[0] + _STACK
        self._entries: dict[str, int] = {}
        self._library: dict[str, int] = {}  # functions of the C library: a return instruction that Python watches
        self._functions = {"memcpy": self._memcpy, "memmove": self._memcpy, "memset": self._memset}
        self._unicorn = unicorn

    def put(self, array: Array) -> int:
        """The address of a copy; behind its end is nothing."""
        content = np.ascontiguousarray(array).tobytes()
        start, size = self._room(len(content))
        address = start + size - len(content)
        self._machine.mem_write(address, content)
        return address

    def get(self, address: int, like: Array) -> Array:
        """What lies at an address now, as an array."""
        content = bytes(self._machine.mem_read(address, like.nbytes))
        return np.frombuffer(content, like.dtype).reshape(like.shape).copy()

    def call(self, kernel: Any, arguments: Sequence[int], begin: int, end: int) -> None:
        """Run a part of a kernel."""
        if kernel.key not in self._entries:
            self._entries[kernel.key] = self._load(kernel)
        table = self.put(np.array(arguments, np.int64))
        home = self._stub("home")
        for register, value in zip(self._x, (table, begin, end, 0)):
            self._machine.reg_write(register, value)
        self._machine.reg_write(self._sp, self._stack)
        self._machine.reg_write(self._lr, home)
        self._machine.emu_start(self._entries[kernel.key], home)

    def _room(self, size: int) -> tuple[int, int]:
        """Pages with a gap behind them: their address, and how long they are."""
        pages = -(-max(size, 1) // _PAGE) * _PAGE
        start = self._next
        self._machine.mem_map(start, pages)
        self._next += pages + _PAGE
        return start, pages

    def _load(self, kernel: Any) -> int:
        content = llvm.compile_to_object(kernel_ir(kernel, self.target), self.target)
        places: list[tuple[bytearray, int]] = []

        def room(size: int) -> tuple[bytearray, int]:
            places.append((bytearray(size), self._room(size)[0]))
            return places[0]

        functions = link(content, self.target.architecture, room, self._stub)
        code, address = places[0]
        self._machine.mem_write(address, bytes(code))
        return functions[ENTRY]

    def _stub(self, name: str) -> int:
        if name not in self._library:
            address = self._room(len(_RETURN))[0]
            self._machine.mem_write(address, _RETURN)
            self._library[name] = address
            if name in self._functions:
                function = self._functions[name]
                self._machine.hook_add(self._unicorn.UC_HOOK_CODE, lambda *_: function(), begin=address, end=address)
            else:
                assert name == "home", f"code calls {name}"
        return self._library[name]

    def _arguments(self) -> list[int]:
        return [self._machine.reg_read(register) for register in self._x[:3]]

    def _memcpy(self) -> None:
        target, source, count = self._arguments()
        self._machine.mem_write(target, bytes(self._machine.mem_read(source, count)))

    def _memset(self) -> None:
        target, value, count = self._arguments()
        self._machine.mem_write(target, bytes([value & 255]) * count)
