"""The object loader: constants, calls between functions and into the C library, and what it refuses."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from sardonyx import errors
from sardonyx.codegen import llvm, loader
from sardonyx.compile.assemble import library
from sardonyx.target.machine import LINUX, PLAIN

SOURCE = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i64 @helper(i64 %x) noinline {
  %y = mul i64 %x, 3
  ret i64 %y
}

define void @scale(ptr %data) {
  %v = load <4 x double>, ptr %data, align 8
  %s = fmul <4 x double> %v, <double 1.5, double 2.5, double 3.5, double 4.5>
  store <4 x double> %s, ptr %data, align 8
  ret void
}

define void @clear(ptr %data, i64 %count) {
  call void @llvm.memset.p0.i64(ptr %data, i8 0, i64 %count, i1 false)
  ret void
}

define i64 @triple(i64 %x) {
  %y = call i64 @helper(i64 %x)
  ret i64 %y
}
"""


def loaded(source: str, kind: str) -> loader.LoadedCode:
    return loader.load(llvm.compile_to_object(source, library(None).target), kind)


@pytest.mark.parametrize("kind", [LINUX, PLAIN])
def test_functions_find_their_constants_each_other_and_the_c_library(kind: str) -> None:
    code = loaded(SOURCE, kind)
    data = np.ones(4)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.functions["scale"])(data.ctypes.data)
    assert data.tolist() == [1.5, 2.5, 3.5, 4.5]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.functions["clear"])(data.ctypes.data, 16)
    assert data.tolist() == [0.0, 0.0, 3.5, 4.5]
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.functions["triple"])(14) == 42


def test_a_call_of_anything_else_is_refused() -> None:
    source = "declare i32 @system(ptr)\ndefine void @k(ptr %c) {\n  %r = call i32 @system(ptr %c)\n  ret void\n}\n"
    with pytest.raises(errors.EngineError, match="object code calls 'system', which the loader does not provide"):
        loaded(source, LINUX)


@pytest.mark.parametrize(
    "content", [b"\x7fELF" + bytes(100), b"MZ" + bytes(200), b"\x7fELF\x02\x01" + bytes(12) + b"\x08" + bytes(200)]
)
def test_what_is_no_object_for_this_machine_is_refused(content: bytes) -> None:
    with pytest.raises(errors.EngineError, match="not a 64-bit little-endian ELF object"):
        loader.load(content, LINUX)
    with pytest.raises(errors.EngineError, match="object code is not for this machine"):
        loader.load(content, PLAIN)


def test_a_function_that_is_not_there_is_named() -> None:
    with pytest.raises(errors.EngineError, match="object code has no function 'nothing'"):
        loaded(SOURCE, PLAIN).functions["nothing"]


def test_invalid_code_is_refused_with_llvms_reason() -> None:
    with pytest.raises(errors.EngineError, match="not valid LLVM IR"):
        llvm.compile_to_object("define void @k() { nonsense }", library(None).target)
