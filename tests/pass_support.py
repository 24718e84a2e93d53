"""What the tests of passes share: models from text, running them with NumPy, golden files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.compile.providers import reference_model
from sardonyx.ir.clone import clone_graph
from sardonyx.ir.graph import Graph, Model
from sardonyx.ir.tensor import Array
from sardonyx.ir.text import format_graph, parse_graph
from sardonyx.ir.verify import verify
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.protocol import Pass, PassResult

GOLDEN = Path(__file__).parent / "golden"


def model_of(graph: Graph | str) -> Model:
    """A model of a graph or its text, with types."""
    parsed = parse_graph(graph) if isinstance(graph, str) else graph
    model = Model(parsed, opset_imports={"": 22})
    infer_from_inputs(model)
    return model


def copy_of(model: Model) -> Model:
    """The same model again, with values of its own."""
    return Model(clone_graph(model.graph), model.ir_version, dict(model.opset_imports))


def evaluate(model: Model, feeds: Mapping[str, Array]) -> list[Any]:
    """The outputs of a model by the NumPy meaning of its operators."""
    program = reference_model(model.graph, lambda graph: list(graph.nodes))
    return program.run(feeds, [value.name for value in model.graph.outputs])


def apply(pass_: Pass, graph: Graph | str) -> tuple[Model, PassResult]:
    """Run a pass on a graph, verified before and after."""
    model = model_of(graph)
    assert verify(model) == []
    result = pass_.run(model)
    assert verify(model) == []
    assert result.modified == (result.changes > 0)
    return model, result


def operators(model: Model) -> list[str]:
    """The operators of the main graph in order."""
    return [node.op_type for node in model.graph.nodes]


def golden_text(pass_: Pass, source: str) -> str:
    """Graph text before `=>`, the graph after the pass, and what the pass said if it refused something."""
    model, result = apply(pass_, source)
    refused = "".join(f"# {reason}\n" for reason in result.reasons)
    return f"{source.rstrip()}\n=>\n{_renumbered(format_graph(model.graph, elide=True))}{refused}"


def _renumbered(text: str) -> str:
    """The text with anonymous sizes counted from 0: their own numbers go on from whatever the process did before."""
    numbers: dict[str, int] = {}
    return re.sub(r"\?([a-z_]*)(\d+)", lambda found: f"?{found[1]}{numbers.setdefault(found[0], len(numbers))}", text)


def assert_same(got: list[Any], expected: list[Any], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Equal up to rounding, of the same types and shapes."""
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(np.asarray(ours, np.float64), np.asarray(theirs, np.float64), rtol=rtol, atol=atol)
