"""Compiled kernels of this process, and the cache of object code in front of the compiler.

Nothing here knows how a kernel is written: the emitters and LLVM are loaded only when something must be compiled.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from sardonyx import errors
from sardonyx.codegen.driver import driver_ir
from sardonyx.codegen.loader import LoadedCode, load
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.codegen.target import Target

ENTRY: Final = "kernel"  # the name of every kernel's function


@cache
def source_version() -> str:
    """A hash of the code generator's own source: changed emitters never meet old objects."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("codegen", "kernel"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _compiled(kernel: Any, target: Target) -> str:
    from sardonyx.codegen.emit import kernel_ir  # lazy: only a kernel that is not cached needs its emitter

    return kernel_ir(kernel, target)


def _compile(ir: Callable[[], str], target: Target) -> bytes:
    """Object code. A bug in an emitter is an EngineError like one that LLVM finds: who wants the kernel goes on without it."""
    from sardonyx.codegen import llvm  # lazy: LLVM is loaded only when something must be compiled

    try:
        text = ir()
    except Exception as error:
        raise errors.EngineError(f"writing the code failed: {type(error).__name__}: {error}") from error
    return llvm.compile_to_object(text, target)


class KernelLibrary:
    """Compiled kernels of this process: each is compiled, or read from the cache, once and stays loaded."""

    def __init__(self, target: Target, cache_: ObjectCache | None) -> None:
        self.target = target
        self._cache = cache_
        self._loaded: dict[str, LoadedCode] = {}
        self._objects: dict[str, bytes] = {}
        self.compiled = 0  # kernels that had to be compiled, not read

    def address(self, kernel: Any) -> int:
        """The entry point of a kernel."""
        return self._code(self._key(kernel.key), partial(_compiled, kernel, self.target)).functions[ENTRY]

    def driver(self) -> dict[str, int]:
        """The entry points of the native runtime."""
        return self._code(self._key("driver"), driver_ir).functions

    def _key(self, text: str) -> str:
        return hashlib.sha256(f"{source_version()}|{self.target.key}|{text}".encode()).hexdigest()[:40]

    def _code(self, key: str, ir: Callable[[], str]) -> LoadedCode:
        found = self._loaded.get(key)
        if found is None:
            found = self._from_cache(key)
        if found is None:
            content = _compile(ir, self.target)
            self.compiled += 1
            if self._cache is not None:
                self._cache.put(key, content)
            found = load(content)
            self._objects[key] = content
        self._loaded[key] = found
        return found

    def _from_cache(self, key: str) -> LoadedCode | None:
        """What the cache has, loaded; None if it has nothing, or something that is no code for this machine."""
        content = self._cache.get(key) if self._cache is not None else None
        if content is None:
            return None
        try:
            found = load(content)
        except (errors.EngineError, struct.error, ValueError, IndexError):
            return None
        self._objects[key] = content
        return found if found.functions else None

    def object_of(self, kernel: Any) -> bytes:
        """The object code of a kernel that was asked for before."""
        return self._objects[self._key(kernel.key)]

    def driver_object(self) -> bytes:
        """The object code of the native runtime."""
        self.driver()
        return self._objects[self._key("driver")]
