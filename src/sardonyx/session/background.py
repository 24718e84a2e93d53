"""Sessions that answer before their model is compiled: `session.background_compile=1`.

    caller ── run ──> NumPy, node by node ┄┄┄┄┄┄┄┄┄┄┄┄┐ goes over as soon as it is there
    thread ── passes, kernels, packed weights ── compiled program ── run, run, ...

A run that NumPy is in the middle of when the program is ready begins again there, so that no run takes longer than waiting for
the compiler would have taken. What the compiler raises, the next run raises: without the entry, creating the session would have.

A fork waits while the thread compiles, as it does for every compilation (`forks.held_off`); so a child has either the program or
a model nobody has touched yet, which it compiles in a thread of its own. A session that is dropped has its compilation end with
the kernel it is at; so does the end of the process, which waits for that: LLVM must not be at work while its library goes away.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from sardonyx import errors
from sardonyx.forks import ForkSafeLock, held_off
from sardonyx.runtime.runs import RunControl

if TYPE_CHECKING:
    from sardonyx.codegen.library import OnProgress
    from sardonyx.plan.ports import Port
    from sardonyx.program.calls import HostNode
    from sardonyx.runtime.executable import Executable
    from sardonyx.session.opening import CompiledModel


class _Stopped(BaseException):
    """Nobody waits for the program any more. Not an Exception: the compiler goes on without what raises one."""


class Compilation:
    """A compilation in a thread of its own. Nothing in it refers to the session that waits for it."""

    def __init__(self, compile_: Callable[[OnProgress], CompiledModel]) -> None:
        self._compile: Callable[[OnProgress], CompiledModel] | None = compile_
        self._take: Callable[[CompiledModel], None] | None = None
        self.program: CompiledModel | None = None
        self.error: Exception | None = None
        self._stopped = False
        self._process = 0  # the one that has a thread for it
        self._thread: threading.Thread | None = None
        self._lock = ForkSafeLock()

    @property
    def has_ended(self) -> bool:
        """Whether there is a program, or the reason why there is none."""
        return self.program is not None or self.error is not None

    def begin(self, take: Callable[[CompiledModel], None] | None = None) -> None:
        """Have a thread compile it, and then give the program to `take`; in a child whose parent has not, another one does."""
        if self._process == os.getpid():
            return
        with self._lock:
            self._take = take or self._take
            if self._process == os.getpid() or self.has_ended or self._stopped:
                return
            self._process = os.getpid()
            self._thread = threading.Thread(target=self._work, name="sardonyx-compile", daemon=True)
            _under_way.add(self)
            self._thread.start()

    def stop(self) -> None:
        """End with the kernel that is being compiled; a program that is there stays."""
        self._stopped = True

    def wait(self, timeout: float | None = None) -> None:
        """Until the thread has ended."""
        if self._thread is not None and self._process == os.getpid():
            self._thread.join(timeout)

    def _on_progress(self, made: int, count: int) -> None:
        if self._stopped and self.program is None:
            raise _Stopped

    def _work(self) -> None:
        with held_off:
            compile_ = self._compile
            try:
                assert compile_ is not None
                self._on_progress(0, 0)
                self.program = compile_(self._on_progress)
            except _Stopped:
                return
            except Exception as error:
                self.error = error
                return
            finally:
                self._compile = None  # it has the model as it was read
            if self._take is not None:
                self._take(self.program)


_under_way: weakref.WeakSet[Compilation] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    every = list(_under_way)
    for compilation in every:
        compilation.stop()
    for compilation in every:
        compilation.wait()


class BackgroundModel:
    """A model that NumPy computes until its program is there; the face of a compiled one."""

    def __init__(self, quick: CompiledModel, compilation: Compilation) -> None:
        self._quick = quick
        self._compilation = compilation
        weakref.finalize(self, compilation.stop).atexit = False

    @property
    def _now(self) -> CompiledModel:
        """What computes the model at the moment."""
        return self._compilation.program or self._quick

    @property
    def assigned_nodes(self) -> Sequence[HostNode]:
        """All nodes, with the provider that computes each."""
        return self._quick.assigned_nodes

    @property
    def node_count(self) -> int:
        """How many nodes the model has, bodies not counted."""
        return self._quick.node_count

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What must be fed."""
        return self._quick.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What the model gives."""
        return self._quick.outputs

    @property
    def overridable_initializers(self) -> tuple[Port, ...]:
        """Weights that a feed of the same name replaces."""
        return self._quick.overridable_initializers

    def run_fast(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """All outputs, if the program is there and has a shorter way than `run`."""
        program = self._compilation.program
        return None if program is None else program.run_fast(feeds)

    def short_program(self, names: Sequence[str]) -> Executable | None:
        """The program that has computed these values before, if it has a short way to run."""
        program = self._compilation.program
        return None if program is None else program.short_program(names)

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]:
        """Compute the named values from the feeds."""
        asked, compilation = control or RunControl(), self._compilation
        if not compilation.has_ended:
            compilation.begin()
            watched = RunControl(lambda: compilation.has_ended or asked.terminate(), asked.on_node, asked.targets, asked.shared)
            try:
                return self._quick.run(feeds, fetches, watched)
            except errors.Fail:  # the run was stopped: by its caller, or by the program that is there now
                if not compilation.has_ended:
                    raise
            asked.stop_if_asked()
        if compilation.error is not None:
            # A copy for each run: the error itself would keep the frames of all of them, with their feeds.
            raise copy(compilation.error) from compilation.error
        return self._now.run(feeds, fetches, asked)

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        self._now.shrink()
