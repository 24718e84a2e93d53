"""Object code in ELF format -> code at an address: places the sections of an object in memory and applies its relocations.

Our objects are simple: position-independent code, read-only constants, calls to a few functions of the C library. Anything else
in an object is refused.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from sardonyx import errors

Memory: TypeAlias = mmap.mmap | memoryview | bytearray

_ELF_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")

_SHT_RELA, _SHT_NOBITS, _SHT_SYMTAB = 4, 8, 2
_SHT_UNWIND = 0x70000001
_SHF_ALLOC = 2
_UNNAMED = (3, 4)  # symbols of sections and files
_EM_X86_64, _EM_AARCH64 = 62, 183
MACHINES: Final = {"x86_64": _EM_X86_64, "aarch64": _EM_AARCH64}  # architectures whose objects can be linked

_X86_64, _X86_PC32, _X86_PLT32, _X86_32S, _X86_32 = 1, 2, 4, 11, 10
_A64_ABS64, _A64_ADR_PAGE21, _A64_ADD_LO12, _A64_CALL26, _A64_JUMP26 = 257, 275, 277, 283, 282
_A64_LDST = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # load/store low 12 bits, scaled by 2**n

_STUB_SIZE: Final = 16


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def link(
    content: bytes, architecture: str, room: Callable[[int], tuple[Memory, int]], outside: Callable[[str], int]
) -> dict[str, int]:
    """Put an object into memory, of which `room` gives some bytes and their address; the addresses of its functions.

    `outside` gives the addresses of functions that the object calls but does not hold.
    """
    header = _ELF_HEADER.unpack_from(content)
    if header[0][:6] != b"\x7fELF\x02\x01" or header[2] != MACHINES.get(architecture):
        raise errors.EngineError("object code is not a 64-bit little-endian ELF object for this machine")
    machine, section_offset, section_count = header[2], header[6], header[12]
    sections = list(_SECTION.iter_unpack(content[section_offset : section_offset + section_count * _SECTION.size]))
    names = sections[header[13]][4]

    placed: dict[int, int] = {}  # section -> offset in memory
    size = 0
    for index, section in enumerate(sections):
        kind, flags, length, alignment = section[1], section[2], section[5], section[8]
        # Unwind tables are left out: nothing unwinds through kernels.
        if flags & _SHF_ALLOC and kind != _SHT_UNWIND and not content.startswith(b".eh_frame", names + section[0]):
            size = _align(size, max(alignment, 1))
            placed[index] = size
            size += length
    symbols = _symbols(content, sections)
    undefined = sorted({name for name, index, _ in symbols if index == 0 and name})
    stubs = {name: _align(size, _STUB_SIZE) + position * _STUB_SIZE for position, name in enumerate(undefined)}
    size = _align(size, _STUB_SIZE) + len(undefined) * _STUB_SIZE

    memory, base = room(max(size, 1))
    for index, offset in placed.items():
        section = sections[index]
        if section[1] != _SHT_NOBITS:
            memory[offset : offset + section[5]] = content[section[4] : section[4] + section[5]]
    for name, offset in stubs.items():
        memory[offset : offset + _STUB_SIZE] = _stub(machine, outside(name))

    addresses: list[int | None] = []
    for name, index, value in symbols:
        if index == 0:
            addresses.append(base + stubs[name] if name else None)
        else:
            addresses.append(base + placed[index] + value if index in placed else None)
    for section in sections:
        if section[1] == _SHT_RELA and section[7] in placed:
            at = placed[section[7]]
            for offset, info, addend in _RELOCATION.iter_unpack(content[section[4] : section[4] + section[5]]):
                symbol = addresses[info >> 32]
                if symbol is None:
                    raise errors.EngineError(f"relocation against a symbol that is not loaded: {symbols[info >> 32][0]!r}")
                _relocate(memory, machine, info & 0xFFFFFFFF, at + offset, symbol + addend, base)
    return {name: address for (name, index, _), address in zip(symbols, addresses) if name and index and address is not None}


def _symbols(content: bytes, sections: list[tuple[int, ...]]) -> list[tuple[str, int, int]]:
    """(name, section, value) of every symbol; names of sections and files are empty."""
    for section in sections:
        if section[1] == _SHT_SYMTAB:
            strings = sections[section[6]][4]
            found = []
            for name, info, _, index, value, _ in _SYMBOL.iter_unpack(content[section[4] : section[4] + section[5]]):
                start = strings + name
                text = "" if info & 15 in _UNNAMED else content[start : content.index(b"\0", start)].decode()
                found.append((text, index, value))
            return found
    return []


def _stub(machine: int, address: int) -> bytes:
    """A jump to an address anywhere in memory."""
    if machine == _EM_X86_64:
        return b"\xff\x25\x00\x00\x00\x00" + struct.pack("<Q", address) + b"\x90\x90"
    return struct.pack("<IIQ", 0x58000050, 0xD61F0200, address)  # ldr x16, #8; br x16


def _relocate(memory: Memory, machine: int, kind: int, at: int, value: int, base: int) -> None:
    if machine == _EM_X86_64:
        if kind == _X86_64:
            struct.pack_into("<Q", memory, at, value & (2**64 - 1))
        elif kind in (_X86_PC32, _X86_PLT32):
            struct.pack_into("<i", memory, at, value - (base + at))
        else:
            raise errors.EngineError(f"relocation type {kind} of x86-64 is not supported")
        return
    (word,) = struct.unpack_from("<I", memory, at)
    here = base + at
    if kind == _A64_ABS64:
        struct.pack_into("<Q", memory, at, value & (2**64 - 1))
        return
    if kind in (_A64_CALL26, _A64_JUMP26):
        word |= ((value - here) >> 2) & 0x3FFFFFF
    elif kind == _A64_ADR_PAGE21:
        pages = ((value & ~0xFFF) - (here & ~0xFFF)) >> 12
        word |= ((pages & 3) << 29) | (((pages >> 2) & 0x7FFFF) << 5)
    elif kind == _A64_ADD_LO12:
        word |= (value & 0xFFF) << 10
    elif kind in _A64_LDST:
        word |= ((value & 0xFFF) >> _A64_LDST[kind]) << 10
    else:
        raise errors.EngineError(f"relocation type {kind} of AArch64 is not supported")
    struct.pack_into("<I", memory, at, word)
