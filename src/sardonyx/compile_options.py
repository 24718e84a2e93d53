"""What the compiler is told: all that may change what a model is compiled to."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from sardonyx.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from sardonyx.errors import InvalidArgument
from sardonyx.options import DISABLED_OPTIMIZERS_KEY, SessionOptions, environment
from sardonyx.provider_names import CPU_PROVIDER, usable_providers
from sardonyx.records import dataclass


def _empty() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class CompileOptions:
    """All that may change what a model is compiled to."""

    optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    disabled_optimizers: frozenset[str] = frozenset()
    free_dimension_overrides: Mapping[str, int] = field(default_factory=_empty)  # by the dimension's name
    free_dimension_denotations: Mapping[str, int] = field(default_factory=_empty)  # by what the dimension stands for
    providers: tuple[str, ...] = (CPU_PROVIDER,)  # by falling priority
    provider_options: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({CPU_PROVIDER: {}}))
    intra_op_num_threads: int = 0  # 0: as many as the machine (cgroup, affinity) gives
    inter_op_num_threads: int = 0
    deterministic: bool = False
    memory_reuse: bool = True
    config: Mapping[str, str] = field(default_factory=_empty)
    initializer_overrides: Mapping[str, NDArray[Any]] = field(default_factory=_empty)
    parameters: frozenset[str] = frozenset()  # initializers that change between runs (training): inputs, nothing is made of them
    weights: Any = field(default=None, compare=False)  # the store that packs weights; None: that of the process
    kernels: Any = field(default=None, compare=False)  # who compiles kernels; None: the library of this machine
    on_progress: Callable[[int, int], None] | None = field(default=None, compare=False)  # kernels made, and how many there are
    verify: bool = field(default_factory=lambda: environment().verify)  # look at the graph after every pass

    def flag(self, key: str) -> bool:
        """A configuration entry that is 0 (also if it is not there) or 1."""
        given = self.config.get(key, "0").strip()
        if given not in ("0", "1"):
            raise InvalidArgument(f"{key} is {given!r}: expected 0 or 1")
        return given == "1"

    @classmethod
    def of(
        cls,
        options: SessionOptions,
        providers: Mapping[str, Mapping[str, str]] | None = None,
        disabled_optimizers: Iterable[str] = (),
        initializers: Container[str] | None = None,
    ) -> CompileOptions:
        """What a session's options mean for the compiler; `initializers` are those of the model, if it is known."""
        chosen = providers or options.provider_settings or {CPU_PROVIDER: {}}
        named = options.config_entries.get(DISABLED_OPTIMIZERS_KEY, "").replace(";", ",").split(",")
        by_name, by_denotation = options.dimension_overrides
        intra_op, inter_op = options.thread_counts()
        return cls(
            optimization_level=options.graph_optimization_level,
            execution_mode=options.execution_mode,
            execution_order=options.execution_order,
            disabled_optimizers=frozenset(disabled_optimizers).union(filter(None, (name.strip() for name in named))),
            free_dimension_overrides=MappingProxyType(dict(by_name)),
            free_dimension_denotations=MappingProxyType(dict(by_denotation)),
            providers=tuple(name for name in chosen if name in usable_providers(chosen)) or (CPU_PROVIDER,),
            provider_options=MappingProxyType(dict(chosen)),
            intra_op_num_threads=intra_op,
            inter_op_num_threads=inter_op,
            deterministic=options.use_deterministic_compute,
            memory_reuse=options.enable_mem_reuse,
            config=MappingProxyType(dict(options.config_entries)),
            initializer_overrides=options.initializers_for(initializers),
        )
