"""What Python computes between native segments: nodes by their operators' definitions, loops, regions of other providers.

A call is given the node's inputs, what its bodies capture, and the sizes of the symbols around it. Bodies are programs of their
own (`Executable`), compiled or loaded when they first run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from sardonyx import errors
from sardonyx.forks import ForkSafeLock, held_off
from sardonyx.plan.host_step import host_step
from sardonyx.plan.plan import SubgraphRunner
from sardonyx.program.calls import BodyNode, HostNode
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.executor import run_step
from sardonyx.runtime.native_core import SizeConflict
from sardonyx.runtime.native_loop import NativeLoop
from sardonyx.runtime.runs import RunControl


class NotInProgram(errors.EngineError):
    """A saved program lacks what a run needs: a body that had not run when it was saved, or sizes it was not made for."""


class Call(Protocol):
    """Computes a node, from its inputs, what its bodies capture and the sizes of the symbols."""

    has_bodies: bool
    is_plain: bool  # a function of arrays alone

    def __call__(
        self, inputs: Sequence[Any], captured: Sequence[Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]: ...

    def shrink(self) -> None:
        """Give memory kept for later runs back."""


_NO_BODIES: Final[Mapping[str, SubgraphRunner]] = {}
ReferenceBody = Callable[[Sequence[Any], Sequence[Any], RunControl], list[Any]]  # captured values, arguments -> results


class Body:
    """A subgraph, whose program is made when it first runs: a branch that is never taken costs nothing.

    The values it captures are inputs like its own. What the program was made for may not hold in every run (a loop whose carried
    value changes its rank): then `reference` computes it.
    """

    def __init__(self, node: BodyNode, make: Callable[[], Executable], reference: ReferenceBody) -> None:
        self.node = node
        self._make = make
        self._reference = reference
        self._lock = ForkSafeLock()
        self.made: Executable | None = None  # its program, once it has run

    def runner(self, outer: Sequence[Any], sizes: Mapping[str, int], control: RunControl) -> SubgraphRunner:
        """The body as a function of its own inputs; `outer` is what its node captures, `sizes` those known around it."""
        node = self.node
        captured = [outer[position] for position in node.captures]

        def run(*args: Any) -> list[Any]:
            if len(args) != len(node.input_types):
                raise ValueError(f"body {node.name!r} takes {len(node.input_types)} inputs, was given {len(args)}")
            try:
                program = self.made or self._program()
                if program.takes_arrays and control.on_node is None:
                    control.stop_if_asked()
                    return program.run_arrays([*args, *captured])
                return program.run_values([*args, *captured], control, sizes)
            except SizeConflict:
                return self._reference(captured, args, control)
            except NotInProgram:
                raise
            except errors.EngineError as error:
                import logging  # lazy: few bodies come here, and a program that is opened saved does without

                logging.getLogger("sardonyx").warning("body %r cannot be compiled, NumPy runs it: %s", node.name, error)
                return self._reference(captured, args, control)

        run.input_types = node.input_types  # type: ignore[attr-defined]
        run.output_types = node.output_types  # type: ignore[attr-defined]
        return run

    def compile_all(self) -> None:
        """Make its program, and those of all bodies inside, though they have not run yet."""
        for call in calls_of(self.made or self._program()):
            call.compile_all()

    def _program(self) -> Executable:
        with held_off, self._lock:
            if self.made is None:
                self.made = self._make()
            return self.made

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        with self._lock:
            made = self.made
        if made is not None:
            made.shrink()


class HostCall:
    """Computes a node by its definition; its bodies are programs of their own."""

    def __init__(self, node: HostNode, bodies: Mapping[str, Body]) -> None:
        self.node = node
        self.bodies = bodies
        self.has_bodies = bool(bodies)
        self.is_plain = not bodies and type(self) is HostCall
        self._step = host_step(node)

    def __call__(
        self, inputs: Sequence[Any], captured: Sequence[Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]:
        if not self.has_bodies:
            return run_step(self._step, inputs, _NO_BODIES, control)
        runners = {name: body.runner(captured, sizes, control) for name, body in self.bodies.items()}
        return run_step(self._step, inputs, runners, control)

    def compile_all(self) -> None:
        """Make the programs of its bodies, though they have not run yet; one that cannot be compiled is left."""
        for body in self.bodies.values():
            with suppress(errors.EngineError):
                body.compile_all()

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        for body in self.bodies.values():
            body.shrink()


class ProviderCall(HostCall):
    """A region that another provider computes, or a copy at the border of one."""


class LoopCall(HostCall):
    """A Loop or Scan: its iterations follow each other in native code if they can, else its definition runs the body."""

    def __init__(self, node: HostNode, bodies: Mapping[str, Body], make: Callable[[], NativeLoop | None]) -> None:
        super().__init__(node, bodies)
        self._make: Callable[[], NativeLoop | None] | None = make
        self._lock = ForkSafeLock()
        self.loop: NativeLoop | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it is known if its iterations can follow each other in native code."""
        return self._make is None

    def __call__(
        self, inputs: Sequence[Any], captured: Sequence[Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]:
        self._settle()
        if self.loop is not None:
            results = self.loop.run(inputs, captured, sizes, control)
            if results is not None:
                return results
        return super().__call__(inputs, captured, sizes, control)

    def _settle(self) -> None:
        """Find out whether its iterations can follow each other in native code."""
        if self._make is not None:
            with held_off, self._lock:
                if self._make is not None:
                    self.loop = self._make()
                    self._make = None

    def compile_all(self) -> None:
        """Make the programs of its bodies, though they have not run yet; one that cannot be compiled is left."""
        self._settle()
        super().compile_all()

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        super().shrink()
        if self.loop is not None:
            self.loop.shrink()


def calls_of(program: Executable) -> Sequence[Any]:
    """What a program computes in Python."""
    return () if program.segments is None else program.segments.calls
