"""LLVM's functions are called as llvmlite declares them, without importing what declares them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import llvmlite
import pytest

from sardonyx.codegen import llvm, llvm_library
from sardonyx.codegen.host import host
from sardonyx.errors import EngineError

SAME = "define i32 @same(i32 %x) { ret i32 %x }"


def test_functions_have_the_parameters_that_llvmlite_declares() -> None:
    llvm_library._compare_with_declared()


def test_the_host_is_described_as_llvmlite_does() -> None:
    from llvmlite import binding

    features = binding.get_host_cpu_features().flatten()
    assert llvm.host_description() == (binding.get_default_triple(), binding.get_host_cpu_name(), features)


def test_compiling_does_not_import_the_python_half_of_llvmlite() -> None:
    code = (
        "import sys\n"
        "from sardonyx.codegen import llvm\n"
        "from sardonyx.codegen.host import host\n"
        f"print(len(llvm.compile_to_object({SAME!r}, host())) > 0, 'llvmlite.binding' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_a_version_that_declares_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other: dict[str, tuple[Any, ...]] = {**llvm_library._FUNCTIONS, "DisposeModule": (None,)}
    monkeypatch.setattr(llvm_library, "_FUNCTIONS", other)
    monkeypatch.setattr(llvmlite, "__version__", "0.51.0")
    with pytest.raises(EngineError, match=r"llvmlite 0\.51\.0 has another DisposeModule"):
        llvm_library.LlvmLibrary()


@pytest.mark.parametrize("version", ["0.44.0", "0.45.0rc1", "0.50.1", "0.51.0dev0", "0+unknown"])
def test_versions_that_declare_the_same_are_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(llvmlite, "__version__", version)
    assert llvm_library.LlvmLibrary().host() == llvm.host_description()


def test_a_library_that_is_not_beside_the_package_is_found_by_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvmlite, "__file__", "nowhere/llvmlite/__init__.py")
    assert llvm_library.LlvmLibrary().host() == llvm.host_description()


@pytest.mark.parametrize("text", ["define", "define i32 @f() { ret i64 0 }", "define void @f() { br label %f }"])
def test_code_that_is_wrong_is_an_error_with_what_llvm_says(text: str) -> None:
    with pytest.raises(EngineError, match=r"not valid LLVM IR: .+"):
        llvm.compile_to_object(text, host())
    assert llvm.compile_to_object(SAME, host())  # and nothing is left behind
