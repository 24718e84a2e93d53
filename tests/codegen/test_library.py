"""The kernels of a process: compiled ahead on several threads, or when they are asked for."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sardonyx import errors
from sardonyx.codegen import emit, llvm
from sardonyx.codegen.emit import kernel_ir
from sardonyx.codegen.host import host
from sardonyx.codegen.library import KernelLibrary
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.kernel.indexing.transpose import TransposeKernel
from sardonyx.kernel.indexing.write import WriteKernel

KERNELS = [
    *(WriteKernel(type="i64", count=count) for count in range(1, 6)),
    *(TransposeKernel(type=kind, outer=1, side=8) for kind in ("f32", "f64", "i8")),
]


def test_prepared_kernels_are_those_compiled_one_by_one(tmp_path: Path) -> None:
    prepared = KernelLibrary(host(), ObjectCache(tmp_path))
    prepared.prepare(KERNELS, 3)
    assert prepared.compiled == len(KERNELS) + 1  # and the native runtime
    alone = KernelLibrary(host(), None)
    for kernel in KERNELS:
        assert prepared.address(kernel)
        assert alone.address(kernel)
        assert prepared.object_of(kernel) == alone.object_of(kernel)
    assert prepared.driver_object() == alone.driver_object()
    assert prepared.compiled == len(KERNELS) + 1
    again = KernelLibrary(host(), ObjectCache(tmp_path))
    again.prepare(KERNELS, 3)
    assert again.compiled == 0


def test_a_kernel_that_cannot_be_compiled_does_not_keep_the_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = KERNELS[2]

    def broken_ir(kernel: object, target: object) -> str:
        return "nonsense" if kernel == bad else kernel_ir(kernel, host())

    monkeypatch.setattr(emit, "kernel_ir", broken_ir)
    library = KernelLibrary(host(), None)
    library.prepare(KERNELS, 2)
    assert library.compiled == len(KERNELS)
    assert library.address(KERNELS[3])
    with pytest.raises(errors.EngineError, match="not valid LLVM IR"):
        library.address(bad)


def test_threads_that_compile_at_once_get_what_one_alone_gets() -> None:
    sources = [kernel_ir(kernel, host()) for kernel in KERNELS]
    expected = [llvm.compile_to_object(source, host()) for source in sources]
    found: list[list[bytes]] = []
    threads = [
        threading.Thread(target=lambda: found.append([llvm.compile_to_object(source, host()) for source in sources]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
