"""Execution providers for tests: they compute some operators in NumPy, and remember what they were asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sardonyx
from sardonyx.compile.providers import reference_model
from sardonyx.ir.graph import Node
from sardonyx.providers import ClaimedRegion, ExecutionProvider, GraphView

CPU = "CPUExecutionProvider"


class Recording(ExecutionProvider):
    """Claims the operators that its option `operators` lists."""

    name = "RecordingExecutionProvider"

    def __init__(self, options: Mapping[str, str]) -> None:
        self.operators = frozenset(options.get("operators", "").split(","))
        self.regions: list[list[str]] = []  # operators of each region that was compiled
        self.runs = 0

    def claim(self, view: GraphView) -> Iterable[Collection[Node]]:
        return view.regions(node for node in view.nodes if node.op_type in self.operators)

    def compile(self, region: ClaimedRegion) -> Any:
        self.regions.append([node.op_type for node in region.nodes])
        program = by_numpy(region)

        def run(inputs: Sequence[Any]) -> Any:
            self.runs += 1
            return program(inputs)

        return run


class Other(Recording):
    """A second provider, with another name."""

    name = "OtherExecutionProvider"


def by_numpy(region: ClaimedRegion) -> Any:
    """A region computed by the definitions of its operators."""
    program = reference_model(region.graph, lambda graph: list(graph.nodes))
    inputs = [value.name for value in region.inputs]
    outputs = [value.name for value in region.outputs]
    return lambda values: program.run(dict(zip(inputs, values)), outputs)


class Box:
    """A tensor in memory that the host cannot read."""

    def __init__(self, content: NDArray[Any]) -> None:
        self.content = content


class BoxDevice:
    """Memory of boxes; counts what is copied."""

    name = "box:0"

    def __init__(self) -> None:
        self.uploads = self.downloads = 0

    def upload(self, array: NDArray[Any]) -> Box:
        self.uploads += 1
        return Box(np.array(array))

    def download(self, handle: Any) -> NDArray[Any]:
        self.downloads += 1
        assert isinstance(handle, Box)
        return handle.content.copy()


class Boxing(Recording):
    """Computes on a device: it is given boxes, and returns boxes."""

    name = "BoxingExecutionProvider"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.device = BoxDevice()

    def compile(self, region: ClaimedRegion) -> Any:
        run = super().compile(region)

        def run_boxed(boxes: Sequence[Any]) -> list[Box]:
            assert all(isinstance(box, Box) for box in boxes)
            return [Box(result) for result in run([box.content for box in boxes])]

        return run_boxed


@contextmanager
def registered(*classes: type[ExecutionProvider]) -> Iterator[dict[str, Any]]:
    """Make providers available; the ones that were made last, by name."""
    made: dict[str, Any] = {}

    def factory_of(kind: Any) -> Any:
        def factory(options: Mapping[str, str]) -> Any:
            made[kind.name] = kind(options)
            return made[kind.name]

        return factory

    for kind in classes:
        sardonyx.register_provider(kind.name, factory_of(kind))
    try:
        yield made
    finally:
        for kind in classes:
            sardonyx.unregister_provider(kind.name)


def assignment(session: sardonyx.InferenceSession) -> list[tuple[str, list[str]]]:
    """The provider and the operators of each part of a model."""
    info = session.get_provider_graph_assignment_info()
    return [(part.ep_name, [node.op_type for node in part.get_nodes()]) for part in info]


def recording_options() -> sardonyx.SessionOptions:
    """Options of a session that tells who computes what."""
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options
