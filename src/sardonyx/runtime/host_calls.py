"""What Python computes between native segments: nodes by their operators' definitions, branches, loops, regions of others.

A call is given the node's inputs, what its bodies capture, and the sizes of the symbols around it. Bodies are programs of their
own (`Executable`), compiled or loaded when they first run. A branch runs the program of the side its condition chooses; small
branches are no calls at all but steps of the program around them (see `lower.branches`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np

from sardonyx import errors
from sardonyx.forks import ForkSafeLock, importing
from sardonyx.ops.definition import Trait
from sardonyx.ops.interruption import interruptible
from sardonyx.plan.host_step import SubgraphRunner, host_function, required_definition
from sardonyx.program.calls import BodyNode, HostNode
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.mixed_program import BODIES
from sardonyx.runtime.native_core import SizeConflict
from sardonyx.runtime.node_timing import NodeTiming
from sardonyx.runtime.runs import RunControl, never

if TYPE_CHECKING:
    from sardonyx.ops.definition import OpDef
    from sardonyx.runtime.native_loop import NativeLoop
    from sardonyx.runtime.text_steps import NativeStep

_TOO_BIG: Final = "array is too big"  # NumPy's words for sizes beyond every memory, in a ValueError


class NotInProgram(errors.EngineError):
    """A saved program lacks what a run needs: a body that had not run when it was saved, or sizes it was not made for."""


class Call(Protocol):
    """Computes a node, from its inputs, what its bodies capture and the sizes of the symbols."""

    kind: ClassVar[str]  # of the segment
    node: HostNode
    has_bodies: bool
    is_plain: bool  # a function of arrays alone
    is_quiet: bool  # and one that NumPy never warns of
    native: NativeStep | None  # what computes it for most inputs, natively

    def quicken(self, native: NativeStep) -> None:
        """Have native code compute the node wherever it can; it gives None where it cannot."""

    def compute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """What a plain call gives; its errors do not name the node."""

    def __call__(
        self, inputs: Sequence[Any], captured: Sequence[Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]: ...

    def shrink(self) -> None:
        """Give memory kept for later runs back."""


_NO_BODIES: Final[Mapping[str, SubgraphRunner]] = {}
_SIDES: Final = {"then_branch", "else_branch"}
ReferenceBody = Callable[[Sequence[Any], Sequence[Any], RunControl], list[Any]]  # captured values, arguments -> results


class Body:
    """A subgraph, whose program is made when it first runs: a branch that is never taken costs nothing.

    The values it captures are inputs like its own. What the program was made for may not hold in every run (a loop whose carried
    value changes its rank): then `reference` computes it.
    """

    def __init__(self, node: BodyNode, make: Callable[[], Executable], reference: ReferenceBody | None = None) -> None:
        self.node = node
        self._make = make
        self._reference = reference  # None: the program holds for all sizes
        self._lock = ForkSafeLock()
        self.made: Executable | None = None  # its program, once it has run

    def runner(self, outer: Sequence[Any], sizes: Mapping[str, int], control: RunControl) -> SubgraphRunner:
        """The body as a function of its own inputs; `outer` is what its node captures, `sizes` those known around it."""
        node = self.node
        captured = [outer[position] for position in node.captures]

        def run(*args: Any) -> list[Any]:
            if len(args) != len(node.input_types):
                raise ValueError(f"body {node.name!r} takes {len(node.input_types)} inputs, was given {len(args)}")
            return self.run(args, captured, sizes, control)

        run.input_types = node.input_types  # type: ignore[attr-defined]
        run.output_types = node.output_types  # type: ignore[attr-defined]
        return run

    def run(self, args: Sequence[Any], captured: Sequence[Any], sizes: Mapping[str, int], control: RunControl) -> list[Any]:
        """The outputs for its own inputs and what it captures."""
        try:
            program = self.made or self._program()
            if program.takes_arrays and control.on_node is None:
                control.stop_if_asked()
                return program.run_arrays([*args, *captured])
            return program.run_values([*args, *captured], control, sizes)
        except SizeConflict:
            if self._reference is None:
                raise
            return self._reference(captured, args, control)
        except NotInProgram:
            raise
        except errors.EngineError as error:
            if self._reference is None:
                raise
            import logging  # lazy: few bodies come here, and a program that is opened saved does without

            logging.getLogger("sardonyx").warning("body %r cannot be compiled, NumPy runs it: %s", self.node.name, error)
            return self._reference(captured, args, control)

    def compile_all(self) -> None:
        """Make its program, and those of all bodies inside, though they have not run yet."""
        for call in calls_of(self.made or self._program()):
            call.compile_all()

    def _program(self) -> Executable:
        with importing, self._lock:
            if self.made is None:
                self.made = self._make()
                BODIES.made += 1
            return self.made

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        with self._lock:
            made = self.made
        if made is not None:
            made.shrink()


class HostCall:
    """Computes a node by its definition; its bodies are programs of their own."""

    kind: ClassVar[str] = "host"

    def __init__(self, node: HostNode, bodies: Mapping[str, Body], definition: OpDef | None = None) -> None:
        self.node = node
        self.bodies = bodies
        self.has_bodies = bool(bodies)
        self.is_plain = not bodies and type(self) is HostCall
        definition = definition or required_definition(node.domain, node.op_type, node.version, node.label)
        self.is_quiet = self.is_plain and Trait.QUIET in definition.traits
        self._function = host_function(node, definition)
        self.native: NativeStep | None = None  # what computes it for most inputs, natively

    def quicken(self, native: NativeStep) -> None:
        """Have native code compute the node wherever it can; it gives None where it cannot."""
        define = self._function

        def function(inputs: Sequence[Any], bodies: Mapping[str, SubgraphRunner]) -> tuple[Any, ...]:
            found = native(inputs)
            return define(inputs, bodies) if found is None else found

        self.native = native
        self._function = function

    def compute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """What a plain call gives; its errors do not name the node."""
        return self._function(inputs, _NO_BODIES)

    def __call__(
        self, inputs: Sequence[Any], captured: Sequence[Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]:
        on_node = control.on_node
        start = time.perf_counter_ns() if on_node is not None else 0
        try:
            if self.is_plain and on_node is None and control.terminate is never:
                return self._function(inputs, _NO_BODIES)
            if control.terminate is never:
                outputs = self._compute(inputs, captured, sizes, control)
            else:
                with interruptible(control.stop_if_asked):
                    outputs = self._compute(inputs, captured, sizes, control)
        except errors.SardonyxError:
            raise
        except Exception as error:
            raise _node_error(self.node, inputs, error) from error
        if on_node is not None:
            self._report(on_node, start, inputs, outputs)
        return outputs

    def _compute(
        self, inputs: Sequence[Any], captured: Sequence[Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]:
        if not self.has_bodies:
            return self._function(inputs, _NO_BODIES)
        return self._function(inputs, {name: body.runner(captured, sizes, control) for name, body in self.bodies.items()})

    def _report(self, on_node: Callable[[NodeTiming], None], start: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        end, node = time.perf_counter_ns(), self.node
        facts = {"nodes": "; ".join(each.label for each in node.computes)} if len(node.computes) > 1 else {}
        given, made = tuple(inputs), tuple(outputs)
        on_node(NodeTiming(node.label, node.op_type, node.name, node.provider, start, end, given, made, facts))

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

    kind: ClassVar[str] = "provider"


class BranchCall(HostCall):
    """An If: the program of the side that its condition chooses runs, nothing else."""

    kind: ClassVar[str] = "branch"

    def _compute(
        self, inputs: Sequence[Any], captured: Sequence[Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]:
        condition = inputs[0] if inputs else None
        if type(condition) is not np.ndarray or condition.size != 1:
            return super()._compute(inputs, captured, sizes, control)  # says what is wrong
        body = self.bodies["then_branch" if condition.item() else "else_branch"]
        if body.node.input_types:
            return super()._compute(inputs, captured, sizes, control)  # the same
        return body.run((), [captured[position] for position in body.node.captures], sizes, control)


class LoopCall(HostCall):
    """A Loop or Scan: its iterations follow each other in native code if they can, else its definition runs the body."""

    kind: ClassVar[str] = "loop"

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
        with np.errstate(all="ignore"):
            return super().__call__(inputs, captured, sizes, control)

    def _settle(self) -> None:
        """Find out whether its iterations can follow each other in native code."""
        if self._make is not None:
            with importing, self._lock:
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


def call_of(
    node: HostNode,
    bodies: Mapping[str, Body],
    *,
    definition: OpDef | None = None,
    loop: Callable[[], NativeLoop | None] | None = None,
    is_region: bool = False,
) -> HostCall:
    """What computes a node: a loop (`loop` makes native iterations), a provider's region, a branch, or its definition."""
    if loop is not None:
        return LoopCall(node, bodies, loop)
    if is_region:
        return ProviderCall(node, bodies, definition)
    if node.op_type == "If" and not node.domain and bodies.keys() == _SIDES:
        return BranchCall(node, bodies, definition)
    return HostCall(node, bodies, definition)


def calls_of(program: Executable) -> Sequence[Any]:
    """What a program computes in Python."""
    return () if program.segments is None else program.segments.calls


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{list(value.shape)}"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    return "omitted" if value is None else type(value).__name__


def _node_error(node: HostNode, inputs: Sequence[Any], error: Exception) -> errors.SardonyxError:
    """The error a node's evaluation raised, with the node and what it was given."""
    given = ", ".join(_describe(value) for value in inputs)
    said = str(error) or type(error).__name__
    if isinstance(error, KeyError):  # whose text is the key and nothing else
        said = f"nothing is known about {error}"
    text = f"{node.label}: {said} (inputs: {given})"
    if isinstance(error, (MemoryError, OverflowError)) or _TOO_BIG in said:
        return errors.NodeFailed(text, hint="check the sizes it is given: its result would not fit into memory")
    if isinstance(error, (ValueError, IndexError, TypeError, KeyError)):
        return errors.BadNodeInput(text)
    return errors.NodeFailed(text, hint="this is a defect of Sardonyx if the node's inputs are as ONNX wants them")
