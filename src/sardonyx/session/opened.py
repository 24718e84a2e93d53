"""What a session holds once its model is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from sardonyx import errors
from sardonyx.forks import cached_property, held_off, importing
from sardonyx.options import SessionOptions

if TYPE_CHECKING:
    from sardonyx.plan.plan import ExecutionPlan, Port
    from sardonyx.runtime.executor import RunControl
    from sardonyx.runtime.ports import ModelDescription, OrtEpAssignedSubgraph
    from sardonyx.runtime.profile import Profiler
    from sardonyx.session.calls import Caller

_RECORD_ASSIGNMENT: Final = "session.record_ep_graph_assignment_info"

ProviderSettings = Mapping[str, Mapping[str, str]]


class CompiledModel(Protocol):
    """What a session needs of a compiled model, whoever computes it."""

    @property
    def plan(self) -> ExecutionPlan: ...

    @property
    def node_count(self) -> int: ...

    @property
    def inputs(self) -> tuple[Port, ...]: ...

    @property
    def outputs(self) -> tuple[Port, ...]: ...

    @property
    def overridable_initializers(self) -> tuple[Port, ...]: ...

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]: ...

    def run_fast(self, feeds: Mapping[str, Any]) -> list[Any] | None: ...

    def shrink(self) -> None: ...


class Opened:
    """A program ready to run, with all that was decided for it."""

    def __init__(
        self,
        options: SessionOptions,
        providers: ProviderSettings,
        program: CompiledModel,
        describe: Callable[[], ModelDescription],
        profiler: Profiler | None = None,
    ) -> None:
        self.options = options
        self.providers = providers
        self.program = program
        self.profiler = profiler
        is_plain = profiler is None and options.enable_cpu_mem_arena
        self.run_fast: Callable[[Mapping[str, Any]], list[Any] | None] = program.run_fast if is_plain else never_fast
        self._describe = describe

    @cached_property
    def description(self) -> ModelDescription:
        """Inputs, outputs and metadata of the model."""
        return self._describe()

    @cached_property
    def caller(self) -> Caller:
        """Does what the short way cannot."""
        with held_off:
            from sardonyx.session.calls import Caller  # lazy: plain runs of a saved program never need it

        options = self.options
        shares_weights = bool(options.replaced_initializers)
        return Caller(self.program, self.profiler, keeps_memory=options.enable_cpu_mem_arena, shares_weights=shares_weights)

    def assignment(self) -> list[OrtEpAssignedSubgraph]:
        """Which provider computes which node; an error unless the session's configuration asked for it."""
        if self.options.config_entries.get(_RECORD_ASSIGNMENT) != "1":
            raise errors.Fail(
                f"Session configuration entry '{_RECORD_ASSIGNMENT}' must be set to \"1\" "
                "to retrieve EP graph assignment information."
            )
        with importing:
            from sardonyx.runtime.ports import OrtEpAssignedSubgraph  # lazy: few sessions are asked for it

        return [OrtEpAssignedSubgraph.of(step) for step in self.program.plan.steps if step.computes]


def never_fast(feeds: Mapping[str, Any]) -> list[Any] | None:
    """Stands where a short way to run could be: this run needs the full way."""
    return None
