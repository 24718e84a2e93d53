"""The functions of LLVM, in the library that llvmlite brings.

llvmlite's own Python half is left out: importing it takes as long as compiling a small model's kernels, for objects that stand
for types, values and passes, and for ways to look for a file. Its library has had the same functions since 0.44. With a version
that nobody has looked at yet, the Python half is imported after all, and must state the same parameters.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from ctypes import c_bool, c_char_p, c_int, c_size_t, c_void_p
from typing import Any, Final

import llvmlite
from llvmlite.utils import get_library_name

from sardonyx import errors

_NEWEST_KNOWN: Final = (0, 50)
_OUT: Final = ctypes.POINTER(c_void_p)  # where a text is put that is given back with DisposeString
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {  # what each returns, and its parameters
    "InitializeAllTargetInfos": (None,),
    "InitializeAllTargets": (None,),
    "InitializeAllTargetMCs": (None,),
    "InitializeAllAsmPrinters": (None,),
    "SetCommandLine": (None, c_char_p, c_char_p),
    "GetDefaultTargetTriple": (None, _OUT),
    "GetHostCPUName": (None, _OUT),
    "GetHostCPUFeatures": (c_int, _OUT),
    "DisposeString": (None, c_void_p),
    "GetTargetFromTriple": (c_void_p, c_char_p, _OUT),
    "CreateTargetMachine": (
        c_void_p, c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p,
    ),
    "ContextDispose": (None, c_void_p),
    "ParseAssembly": (c_void_p, c_void_p, c_char_p, _OUT),
    "SetTarget": (None, c_void_p, c_char_p),
    "VerifyModule": (c_bool, c_void_p, _OUT),
    "DisposeModule": (None, c_void_p),
    "TargetMachineEmitToMemory": (c_void_p, c_void_p, c_void_p, c_int, _OUT),
    "GetBufferStart": (c_void_p, c_void_p),
    "GetBufferSize": (c_size_t, c_void_p),
    "DisposeMemoryBuffer": (None, c_void_p),
}  # fmt: skip
# 0.44 asks whether pointers may be without a type, which ours are; later ones ask nothing.
_CONTEXT: Final[tuple[Any, ...]] = (c_void_p, c_bool)


class LlvmError(Exception):
    """LLVM refuses something; the text is its own."""


class LlvmLibrary:
    """LLVM's functions on texts, and on modules, contexts and machines by their addresses."""

    def __init__(self) -> None:
        library = ctypes.CDLL(_path())
        if _version() > _NEWEST_KNOWN:
            _compare_with_declared()
        self._functions = {name: _function(library, name, types) for name, types in _FUNCTIONS.items()}
        self._functions["ContextCreate"] = _function(library, "ContextCreate", _CONTEXT)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function that says nothing."""
        return self._functions[name](*arguments)

    def call_for_text(self, name: str, *arguments: Any) -> tuple[Any, str]:
        """Call a function whose last argument is where it puts a text; what it returns, and the text."""
        out = c_void_p()
        result = self._functions[name](*arguments, ctypes.byref(out))
        if not out.value:
            return result, ""
        text = ctypes.string_at(out.value).decode("utf-8", "replace")
        self._functions["DisposeString"](out)
        return result, text

    def initialise(self) -> None:
        """Let LLVM know all processors that it can make code for."""
        for what in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
            self.call(f"InitializeAll{what}")

    def host(self) -> tuple[str, str, str]:
        """Triple, name and features of the processor that this is."""
        known, features = self.call_for_text("GetHostCPUFeatures")
        by_name = {each[1:]: each for each in features.split(",") if each} if known else {}
        in_order = ",".join(each for _, each in sorted(by_name.items()))
        return self.call_for_text("GetDefaultTargetTriple")[1], self.call_for_text("GetHostCPUName")[1], in_order

    def machine(self, triple: str, cpu: str, features: str, effort: int) -> int:
        """What makes code for a processor, with an effort from 0 to 3, that may lie anywhere in memory."""
        target, problem = self.call_for_text("GetTargetFromTriple", triple.encode())
        if not target:
            raise LlvmError(problem)
        texts = (triple.encode(), cpu.encode(), features.encode())
        found = self.call("CreateTargetMachine", target, *texts, effort, b"pic", b"small", 0, 0, b"")
        if not found:
            raise LlvmError(f"no machine for {triple}, {cpu}")
        return int(found)

    def parse(self, ir: str, context: int) -> int:
        """A module of some IR."""
        module, problem = self.call_for_text("ParseAssembly", context, ir.encode())
        if not module:
            raise LlvmError(problem)
        return int(module)

    def verify(self, module: int) -> None:
        """Refuse a module that is not what IR has to be."""
        wrong, problem = self.call_for_text("VerifyModule", module)
        if wrong:
            raise LlvmError(problem)

    def emit(self, machine: int, module: int, *, as_object: bool) -> bytes:
        """A module's object code, or its assembly."""
        buffer, problem = self.call_for_text("TargetMachineEmitToMemory", machine, module, int(as_object))
        if not buffer:
            raise LlvmError(problem)
        try:
            return ctypes.string_at(self.call("GetBufferStart", buffer), self.call("GetBufferSize", buffer))
        finally:
            self.call("DisposeMemoryBuffer", buffer)


def lock_of_others() -> AbstractContextManager[Any]:
    """What llvmlite's other users hold while they call LLVM; nothing, if there are none."""
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)  # not there yet while another thread imports it
    return nullcontext() if library is None else library._lock


def _version() -> tuple[int, ...]:
    """llvmlite's; larger than all others if it is not made of numbers."""
    try:
        return tuple(int(part) for part in llvmlite.__version__.split(".")[:2])
    except ValueError:
        return (sys.maxsize,)


def _path() -> str:
    path = os.path.join(os.path.dirname(llvmlite.__file__), "binding", get_library_name())
    if os.path.exists(path):
        return path
    from llvmlite.binding import ffi  # lazy: it finds the library where the package is no folder, but takes long to import

    return str(ffi.lib._name)


def _function(library: ctypes.CDLL, name: str, types: tuple[Any, ...]) -> Any:
    function = getattr(library, f"LLVMPY_{name}")
    function.restype, *function.argtypes = types
    return function


def _compare_with_declared() -> None:
    """Compare the parameters of functions with what llvmlite's Python half states."""
    from llvmlite import binding  # lazy: only with versions of which nobody knows yet whether they differ

    for name, (_, *parameters) in _FUNCTIONS.items():
        declared = getattr(binding.ffi.lib, f"LLVMPY_{name}").argtypes
        if declared is not None and [ctypes.sizeof(each) for each in declared] != [ctypes.sizeof(each) for each in parameters]:
            newest = ".".join(map(str, _NEWEST_KNOWN))
            raise errors.EngineError(
                f"llvmlite {llvmlite.__version__} has another {name} than is known here: install one up to {newest}"
            )
