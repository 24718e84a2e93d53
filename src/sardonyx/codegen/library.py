"""Compiled kernels of this process, and the cache of object code in front of the compiler.

Nothing here knows how a kernel is written: the emitters and LLVM are loaded only when something must be compiled.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

from sardonyx import errors
from sardonyx.codegen.drivers import driver_ir
from sardonyx.codegen.loader import ENTRY, LoadedCode, load
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.forks import held_off
from sardonyx.sources import contents_of
from sardonyx.target.target import Target

OnProgress = Callable[[int, int], None]  # how many kernels are made, of how many


def _nobody(made: int, count: int) -> None:
    """Stands where somebody could want to know how far the compilation is."""


@cache
def source_version() -> str:
    """A hash of the code generator's own source: changed emitters never meet old objects."""
    digest = hashlib.sha256()
    for content in contents_of("codegen", "kernel", "target"):
        digest.update(content)
    return digest.hexdigest()[:16]


def _compiled(kernel: Any, target: Target) -> str:
    from sardonyx.codegen.emit import kernel_ir  # lazy: only a kernel that is not cached needs its emitter
    from sardonyx.codegen.half_precision import with_conversions  # lazy: as above

    return with_conversions(kernel_ir(kernel, target), target)


def _compile(ir: Callable[[], str], target: Target) -> bytes:
    """Object code. A bug in an emitter is an EngineError like one that LLVM finds: who wants the kernel goes on without it."""
    from sardonyx.codegen import llvm  # lazy: LLVM is loaded only when something must be compiled

    try:
        text = ir()
    except Exception as error:
        raise errors.EngineError(f"writing the code failed: {type(error).__name__}: {error}") from error
    return llvm.compile_to_object(text, target)


class KernelLibrary:
    """Compiled kernels of this process: each is compiled, or read from the cache, once and stays loaded.

    With `loads` off they are compiled only: for another machine, where a file takes them.
    """

    def __init__(self, target: Target, cache_: ObjectCache | None, *, loads: bool = True) -> None:
        self.target = target
        self.loads = loads
        self._keys = f"{source_version()}|{target.key}"  # what the keys of all kernels begin with
        self._cache = cache_
        self._loaded: dict[str, LoadedCode] = {}
        self._objects: dict[str, bytes] = {}
        self.compiled = 0  # kernels that had to be compiled, not read

    def address(self, kernel: Any) -> int:
        """The entry point of a kernel; 0 if it is for another machine."""
        key = self._key(kernel.key)
        self._provide(key, partial(_compiled, kernel, self.target))
        return self._loaded[key].functions[ENTRY] if self.loads else 0

    @contextmanager
    def driver_ahead(self, workers: int) -> Iterator[None]:
        """While a graph is lowered, another thread loads LLVM and compiles the native runtime, if that is not there yet."""
        key = self._key("driver")
        if workers < 2 or key in self._objects or self._read(key):
            yield
            return
        with held_off:
            helper = threading.Thread(target=self._compile_driver, args=(key,), daemon=True)
            helper.start()
            try:
                yield
            finally:
                helper.join()

    def _compile_driver(self, key: str) -> None:
        from sardonyx.codegen import llvm  # lazy: LLVM is loaded only when something must be compiled

        with suppress(Exception):  # the same happens again, in the thread of whoever asks for it
            self._keep(key, llvm.compile_to_object(driver_ir(self.target), self.target))

    def prepare(
        self,
        kernels: Iterable[Any],
        workers: int,
        on_progress: OnProgress | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Compile what is not there yet of some kernels and of the native runtime, on several threads.

        A kernel that cannot be compiled is left out: whoever asks for its address learns why. `on_progress` is told, in the
        caller's thread, how many are made and how many there are to make; what it raises ends the compilation. If there is
        something to compile and another thread to do it, one of those does `meanwhile` first, which must not raise anything.
        """
        with held_off:
            self._prepare(kernels, workers, on_progress or _nobody, meanwhile)

    def _prepare(
        self, kernels: Iterable[Any], workers: int, on_progress: OnProgress, meanwhile: Callable[[], None] | None
    ) -> None:
        wanted: dict[str, Callable[[], str]] = {self._key("driver"): partial(driver_ir, self.target)}
        for text, kernel in {kernel.key: kernel for kernel in kernels}.items():
            wanted[self._key(text)] = partial(_compiled, kernel, self.target)
        missing = [(key, ir) for key, ir in wanted.items() if key not in self._objects and not self._read(key)]
        on_progress(0, len(missing))
        if not missing:
            return
        todo = iter(missing)
        made: dict[str, bytes] = {}
        lock = threading.Lock()

        def work(on_progress: OnProgress, before: Callable[[], None] | None = None) -> None:
            from sardonyx.codegen import llvm  # lazy: LLVM is loaded only when something must be compiled

            if before is not None:
                before()
            while True:
                with lock:
                    key, ir = next(todo, ("", str))
                if not key:
                    return
                on_progress(len(made), len(missing))
                try:
                    made[key] = llvm.compile_to_object(ir(), self.target)
                except Exception:  # the same happens again, in the caller's thread, when its address is asked for
                    continue

        tasks = len(missing) + (meanwhile is not None)
        firsts = [meanwhile, *[None] * workers][: min(workers, tasks) - 1]  # what helpers begin with
        helpers = [threading.Thread(target=work, args=(_nobody, first), daemon=True) for first in firsts]
        for helper in helpers:
            helper.start()
        try:
            work(on_progress)
        finally:
            todo = iter(())  # after an interrupt nobody begins with another one
            for helper in helpers:
                helper.join()
        for key, content in made.items():
            self._keep(key, content)

    def driver(self) -> LoadedCode:
        """The native half of the runtime."""
        key = self._key("driver")
        self._provide(key, partial(driver_ir, self.target))
        return self._loaded[key]

    def _key(self, text: str) -> str:
        return hashlib.sha256(f"{self._keys}|{text}".encode()).hexdigest()[:40]

    def _provide(self, key: str, ir: Callable[[], str]) -> None:
        """Have the code of a key, compiled if it is not there."""
        if key not in self._objects and not self._read(key):
            with held_off:
                self._keep(key, _compile(ir, self.target))

    def _read(self, key: str) -> bool:
        """Load an entry of the cache; whether there is one, and one with code for this machine."""
        content = self._cache.get(key) if self._cache is not None else None
        if content is None:
            return False
        try:
            self._load(key, content)
        except (errors.EngineError, struct.error, ValueError, IndexError):
            return False
        return True

    def _keep(self, key: str, content: bytes) -> None:
        """Load what was compiled, and put it into the cache."""
        self.compiled += 1
        if self._cache is not None:
            self._cache.put(key, content)
        self._load(key, content)

    def _load(self, key: str, content: bytes) -> None:
        if self.loads:
            code = load(content, self.target.runtime)
            self._loaded.setdefault(key, code)  # of two threads that compile it, one may have handed its address out
        self._objects.setdefault(key, content)

    def object_of(self, kernel: Any) -> bytes:
        """The object code of a kernel that was asked for before."""
        return self._objects[self._key(kernel.key)]

    def driver_object(self) -> bytes:
        """The object code of the native runtime."""
        key = self._key("driver")
        self._provide(key, partial(driver_ir, self.target))
        return self._objects[key]
