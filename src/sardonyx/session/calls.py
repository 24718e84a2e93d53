"""One call of a session the full path: feeds checked and converted, options heeded, results presented."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sardonyx import errors
from sardonyx.forks import importing
from sardonyx.ir.tensor import Array
from sardonyx.options import RunOptions
from sardonyx.runtime.feeds import FeedReader, present
from sardonyx.runtime.runs import NOTHING_SHARED, RunControl
from sardonyx.runtime.values import OrtValue, OrtValueVector

if TYPE_CHECKING:
    from sardonyx.runtime.binding import IOBinding
    from sardonyx.runtime.profile import Profiler
    from sardonyx.session.opening import CompiledModel

_UNCONTROLLED: Final = RunControl()


class Caller:
    """Runs a program for all that a caller may feed and fetch."""

    def __init__(
        self, program: CompiledModel, profiler: Profiler | None, *, keeps_memory: bool, shares_weights: bool = False
    ) -> None:
        self._program = program
        self._shares_weights = shares_weights  # with the caller, whose memory outputs may be bound to, too
        self._keeps_memory = keeps_memory
        self._profiler = profiler
        self._output_names = [port.name for port in program.outputs]
        self._output_types = {port.name: port.type for port in program.outputs}
        self.feeds = FeedReader(program.inputs, program.overridable_initializers)

    def fetches(self, output_names: Sequence[str] | None) -> list[str]:
        """The values to compute: all outputs, if none are named."""
        if not output_names:
            return self._output_names
        if isinstance(output_names, str):
            raise TypeError(f"output_names: expected a list of names, got the string {output_names!r}")
        for name in output_names:
            if not isinstance(name, str):
                raise TypeError(f"output_names: expected names, got {name!r}")
        return list(output_names)

    def run(self, output_names: Sequence[str] | None, feed: Mapping[str, Any], run_options: RunOptions | None) -> list[Any]:
        """The named values as callers get them."""
        fetches = self.fetches(output_names)
        results = self._compute(fetches, feed, run_options)
        return [present(value, self._output_types.get(name)) for name, value in zip(fetches, results)]

    def run_ort_values(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, OrtValue],
        run_options: RunOptions | None,
        targets: Sequence[Array | None] = (),
        shared: Mapping[int, str] = NOTHING_SHARED,
    ) -> list[OrtValue]:
        """The named values as OrtValues, in the memory of `targets` where that can be had (see `RunControl`)."""
        fetches = self.fetches(output_names)
        results = self._compute(fetches, feed, run_options, targets, shared)
        types = [self._output_types.get(name) for name in fetches]
        return [OrtValue.of(present(value, type), type) for value, type in zip(results, types)]

    def run_vector(
        self,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        run_options: RunOptions | None,
    ) -> None:
        """The named values out of one vector of OrtValues into another."""
        if len(feed_names) != len(feeds):
            raise errors.InvalidArgument(f"{len(feed_names)} names were given for {len(feeds)} feeds")
        fetches.assign(self.run_ort_values(fetch_names, dict(zip(feed_names, feeds)), run_options))

    def run_bound(self, binding: IOBinding, run_options: RunOptions | None) -> None:
        """Inputs and outputs as they were bound; the binding holds the results."""
        try:
            if not binding.fetches:
                raise errors.InvalidArgument("At least one output should be requested.")
            targets, shared = ((), NOTHING_SHARED) if self._shares_weights else binding.direct_targets()
            binding.accept(self.run_ort_values(binding.fetches, binding.feeds, run_options, targets, shared))
            if run_options is None and self._keeps_memory and self._profiler is None and not shared and not self._shares_weights:
                binding.repeat(self._program, targets)
        except errors.InvalidArgument as error:
            raise errors.Fail(f"Error in execution: {error.message}", hint=error.hint) from error

    def run_async(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        callback: Callable[[Sequence[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None,
    ) -> None:
        """`run` in another thread, which then calls back; a feed that lacks inputs is refused at once."""
        with importing:
            import threading  # lazy: it takes a millisecond, which a small program would notice

        fetches = self.fetches(output_names)
        self.feeds.require(feed)

        def work() -> None:
            try:
                results, error = self.run(fetches, feed, run_options), ""
            except Exception as failure:  # the callback is the only one who can be told
                results, error = [], getattr(failure, "message", str(failure)) or type(failure).__name__
            callback(results, user_data, error)

        threading.Thread(target=work, name="sardonyx-run-async").start()

    def _compute(
        self,
        fetches: Sequence[str],
        feed: Mapping[str, Any],
        run_options: RunOptions | None,
        targets: Sequence[Array | None] = (),
        shared: Mapping[int, str] = NOTHING_SHARED,
    ) -> list[Any]:
        shrinking = not self._keeps_memory
        if run_options is None:
            control = _UNCONTROLLED
        elif isinstance(run_options, RunOptions):
            if run_options.terminate:
                raise errors.Fail("Exiting due to terminate flag being set to true.")
            control = RunControl(terminate=lambda: run_options.terminate)
            shrinking = shrinking or run_options.shrinks_arena
            if run_options.active_adapters:
                parameters = {
                    name: value for adapter in run_options.active_adapters for name, value in adapter.parameters.items()
                }
                feed = {**parameters, **feed}
        else:
            raise TypeError(f"run_options: expected RunOptions, got {type(run_options).__name__}")
        if targets:
            control = RunControl(control.terminate, targets=targets, shared=shared)
        values = self.feeds.read(feed)
        profiler = self._profiler
        try:
            if profiler is None:
                return self._program.run(values, fetches, control)
            with profiler.span("model_run"):
                watched = RunControl(control.terminate, profiler.on_node, control.targets, control.shared)
                return self._program.run(values, fetches, watched)
        except errors.SardonyxError as error:
            self.feeds.explain(error, values)
            raise
        finally:
            if shrinking:
                self._program.shrink()
