"""A trace of training steps, as a file that Perfetto and chrome://tracing open.

    with sardonyx.training.StepProfile("step.json"):
        loss = model(x)
        loss.backward()

    forward  |██ Gemm+Relu ██|█ Gemm █|
    backward                            |█ Gemm █|█ ReduceSum █|██ Gemm ██| ...

Each pass is a bar, with the kernels in it: which nodes are fused in one, the bytes it reads and writes, its speed. Steps of all
training modules in the process are recorded, each kernel by itself, so that they take longer than otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager as Context
from contextlib import contextmanager, nullcontext
from types import TracebackType

from sardonyx import errors
from sardonyx.runtime.node_timing import NodeTiming
from sardonyx.runtime.profile import Profiler

_active: list[StepProfile] = []  # the one whose body runs, if any


class StepProfile:
    """Records the training steps in its body and writes them to a file when that ends, by whatever way."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._profiler = Profiler("")
        self._profiler.path = os.fspath(path)

    def __enter__(self) -> StepProfile:
        if _active:
            raise errors.InvalidArgument("a profile of training steps is being recorded already", hint="end that one first")
        _active.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _active.remove(self)
        self._profiler.finish()

    @contextmanager
    def recorded(self, name: str) -> Iterator[Callable[[NodeTiming], None]]:
        """Record the body as a pass of this name; what it gives takes note of each kernel."""
        with self._profiler.span(name):
            yield self._profiler.on_node


def profiled(name: str) -> Context[Callable[[NodeTiming], None] | None]:
    """A pass whose kernels are recorded if somebody wants that: the body is given what to tell each kernel to, or None."""
    return _active[0].recorded(name) if _active else nullcontext()


def is_profiled() -> bool:
    """Whether steps are recorded now."""
    return bool(_active)
