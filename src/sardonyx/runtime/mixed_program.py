"""Programs that come back to Python for nodes, and the short way to run them again.

Checking and converting a caller's feeds takes longer than many a node does. What fitted once fits again: a run whose feeds are
plain arrays of the types and shapes of a run that was checked in full goes straight to the segments. Anything else, and whatever
fails on the way, is left to the full path, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sardonyx.program.segments import ProgramInput
from sardonyx.runtime.executable import Executable, Segments, Shapes
from sardonyx.runtime.native_core import Array, NativeCore
from sardonyx.runtime.runs import RunControl, borrowed, never, owned

_MOST_SHAPES: Final = 64  # sets of shapes that are remembered
_UNCONTROLLED: Final = RunControl()
_TEXTS: Final = {str}


class BodyCounter:
    """Counts the bodies of all programs that were made: a model whose run made some has them saved."""

    def __init__(self) -> None:
        self.made = 0


BODIES: Final = BodyCounter()


class _KnownFeeds:
    """Feeds that were checked in full."""

    __slots__ = ("rows", "shapes")

    def __init__(self, rows: list[tuple[str, np.dtype[Any], bool]]) -> None:
        self.rows = rows  # each input's name, type, and whether it has texts
        self.shapes: set[Shapes] = set()


class NativeChain:
    """A program whose nodes native functions compute, which Python calls one behind the other.

    They look at their inputs themselves, and leave them as they are; their results are new arrays.
    """

    def __init__(
        self, steps: list[tuple[Callable[..., Any], tuple[int, ...], list[int]]], count: int, results: list[int]
    ) -> None:
        self._steps = steps  # what computes, the values it reads, those it makes
        self._count = count  # values
        self._results = results

    @classmethod
    def of(cls, runner: Any, inputs: Sequence[ProgramInput]) -> NativeChain | None:
        """The chain of a program; None if it has other segments, constants that Python reads, or results that are one."""
        results = [result.number for result in runner.plan.results]
        if not runner.is_host_only or len(set(results)) != len(results) or any(each.default >= 0 for each in inputs):
            return None
        steps = []
        for segment in runner.bound.segments:
            native = runner.calls[segment.call].native
            if native is None or segment.values is None:
                return None
            steps.append((native, segment.values, [value for value, _, _ in segment.outputs]))
        return cls(steps, runner.plan.value_count, results)

    def __call__(self, feeds: Mapping[str, Any], known: _KnownFeeds) -> list[Any] | None:
        """The results; None if the feeds are others than those known, or a function refuses what it is given."""
        frame: list[Any] = []
        for name, dtype, _ in known.rows:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype:
                return None
            frame.append(array)
        if tuple([array.shape for array in frame]) not in known.shapes:
            return None
        results = self._run(frame)
        if results is None and not all(array.flags.c_contiguous for array in frame):
            results = self._run([array.copy() for array in frame])
        return results

    def _run(self, given: Sequence[Any]) -> list[Any] | None:
        frame = [*given, *[None] * (self._count - len(given))]
        for native, values, made in self._steps:
            results = native([frame[value] for value in values])
            if results is None:
                return None
            for value, result in zip(made, results):
                if value >= 0:
                    frame[value] = result
        return [frame[value] for value in self._results]


class MixedProgram(Executable):
    """A program some of whose nodes Python computes; `constant` gives the values of inputs that need not be fed."""

    def __init__(
        self, core: NativeCore, segments: Segments, inputs: Sequence[ProgramInput], constant: Callable[[int], Any]
    ) -> None:
        super().__init__(core, segments, is_one_call=False, takes_arrays=False)
        self.has_fast_path = True
        self._inputs = inputs
        self._constant = constant
        self._known: _KnownFeeds | None = None
        self._chain: NativeChain | None = None
        self._has_chain_been_sought = False
        # Loops look at their inputs themselves, and leave them as they are; NumPy warns of nothing in native code.
        self._has_loops_only = bool(segments.calls) and all(call.kind == "loop" for call in segments.calls)
        self.on_bodies: Callable[[], None] | None = None  # told behind a run of the short way that has made bodies

    def run_named(self, feeds: Mapping[str, Any], control: RunControl) -> list[Any]:
        """The results for feeds by name, which were checked; they share no memory with those, nor with weights."""
        inputs, constant = self._inputs, self._constant
        given = [borrowed(feeds[each.name]) if each.name in feeds else constant(each.default) for each in inputs]
        with np.errstate(all="ignore"):
            results = owned(self.run_values(given, control))
        if control.terminate is never and control.on_node is None and all(_is_presented(result) for result in results):
            self._learn(feeds)
        return results

    def run_checked(
        self,
        feeds: Mapping[str, Any],
        targets: Sequence[Array | None] = (),
        shared: Mapping[int, str] | None = None,
        control: RunControl | None = None,
    ) -> list[Any]:
        """The outputs for feeds whose types and shapes fit the model; Python makes some of them, so targets are left alone."""
        return self.run_named(feeds, control or _UNCONTROLLED)

    def _learn(self, feeds: Mapping[str, Any]) -> None:
        """Remember feeds that were checked in full, and ran."""
        fed = [each.name for each in self._inputs if each.name in feeds]
        if len(feeds) != len(fed) or not all(type(array) is np.ndarray for array in feeds.values()):
            return
        rows = [(name, feeds[name].dtype, feeds[name].dtype == object) for name in fed]
        known = self._known
        if known is None or known.rows != rows or len(known.shapes) >= _MOST_SHAPES:
            known = _KnownFeeds(rows)
        known.shapes.add(tuple([feeds[name].shape for name in fed]))
        self._known = known
        if self._chain is None and not self._has_chain_been_sought:
            self._has_chain_been_sought = True
            self._chain = NativeChain.of(self.segments, self._inputs)

    def run(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs, or None if this run needs the full path."""
        known = self._known
        if known is None or len(feeds) != len(known.rows):
            return None
        chain = self._chain
        if chain is not None:
            made = chain(feeds, known)
            if made is not None:
                return made
        given, shapes = [], []
        for name, dtype, is_text in known.rows:
            array = feeds.get(name)
            if type(array) is not np.ndarray:
                return None
            if is_text:
                if array.dtype.kind == "U":
                    array = array.astype(object)
                elif array.dtype != object or not set(map(type, array.ravel().tolist())) <= _TEXTS:
                    return None
            elif array.dtype != dtype:
                return None
            shapes.append(array.shape)
            given.append(array if self._has_loops_only else borrowed(array))
        if tuple(shapes) not in known.shapes:
            return None
        if len(given) < len(self._inputs):
            fed = {name: array for (name, _, _), array in zip(known.rows, given)}
            given = [fed[each.name] if each.name in fed else self._constant(each.default) for each in self._inputs]
        bodies = BODIES.made
        try:
            if self._has_loops_only:
                results = self.run_values(given, _UNCONTROLLED)
                if not _are_new(results, given):
                    results = owned(results, given)
            else:
                with np.errstate(all="ignore"):
                    results = owned(self.run_values(given, _UNCONTROLLED))
        except Exception:  # the full path names the node, or lets NumPy compute a run whose sizes do not fit
            return None
        if bodies != BODIES.made and self.on_bodies is not None:
            self.on_bodies()
        return results


def _are_new(results: list[Any], given: list[Any]) -> bool:
    """Whether results surely share no memory with what was given, weights or each other: each is an array with its own."""
    others = set(map(id, given))
    for result in results:
        if type(result) is not np.ndarray or result.base is not None or not result.flags.writeable or id(result) in others:
            return False
        others.add(id(result))
    return True


def _is_presented(result: Any) -> bool:
    """Whether callers get a result just as a program leaves it."""
    return type(result) is np.ndarray or (type(result) is list and bool(result) and type(result[0]) is np.ndarray)
