"""LLVM's code leaves the process's memory, and comes back when something is compiled."""

from __future__ import annotations

import sys

import pytest

from sardonyx.codegen import llvm
from sardonyx.codegen.host import host
from sardonyx.codegen.resident_code import _clean_mappings, release_compiler_code

SMAPS = """\
7f00-7f10 r-xp 00001000 fe:00 5 /lib/llvmlite/binding/libllvmlite.so
Size:                 64 kB
Rss:                  48 kB
Private_Dirty:         0 kB
7f10-7f20 r--p 00002000 fe:00 5 /lib/llvmlite/binding/libllvmlite.so
Rss:                   4 kB
Private_Dirty:         4 kB
7f20-7f30 rw-p 00003000 fe:00 5 /lib/llvmlite/binding/libllvmlite.so
Rss:                   4 kB
Private_Dirty:         0 kB
7f30-7f40 r-xp 00001000 fe:00 6 /lib/libc.so.6
Rss:                  12 kB
Private_Dirty:         0 kB
"""


def test_only_pages_of_llvm_that_nobody_writes_are_given_back() -> None:
    """Those that the loader has written to, as tables of addresses, are in no file."""
    assert _clean_mappings(SMAPS) == [(0x7F00, 0x7F10, 48 << 10)]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep the pages")
def test_code_that_was_given_back_still_compiles() -> None:
    text = "define i32 @same(i32 %x) { ret i32 %x }"
    first = llvm.compile_to_object(text, host())
    for _ in range(3):
        assert release_compiler_code() > 1 << 20
        assert llvm.compile_to_object(text, host()) == first
