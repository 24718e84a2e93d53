"""Models of many nodes: opening takes work in proportion to the nodes, and no depth of the graph is too much."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from operation_counts import fastest_growing

F32 = np.float32


def model(nodes: list[Any], **constants: np.ndarray) -> bytes:
    """A model from x [N, 4] and the condition c to y."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "many", [x, c], [y], initializers)
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    return made


def chain(count: int, step: Callable[[str, str, int], Any]) -> list[Any]:
    """Nodes that each read what the one before has made."""
    names = ["x", *(f"v{number}" for number in range(count))]
    nodes = [step(before, after, number) for number, (before, after) in enumerate(pairwise(names))]
    return [*nodes, helper.make_node("Identity", [names[-1]], ["y"])]


def additions_and_softmaxes(count: int) -> bytes:
    def step(before: str, after: str, number: int) -> Any:
        return helper.make_node("Softmax", [before], [after]) if number % 2 else helper.make_node("Add", [before, "b"], [after])

    return model(chain(count, step), b=np.ones(4, F32))


def products(count: int) -> bytes:
    return model(
        chain(count, lambda before, after, _: helper.make_node("MatMul", [before, "w"], [after])), w=np.eye(4, dtype=F32)
    )


def concats_and_slices(count: int) -> bytes:
    def step(before: str, after: str, number: int) -> Any:
        if number % 2:
            return helper.make_node("Slice", [before, "first", "last"], [after])
        return helper.make_node("Concat", [before, before], [after], axis=0)

    return model(chain(count, step), first=np.array([0]), last=np.array([3]))


def ifs(count: int) -> bytes:
    def side(operator: str, before: str, name: str) -> Any:
        result = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(operator, [before], [name])], name, [], [result])

    def step(before: str, after: str, number: int) -> Any:
        sides = {"then_branch": side("Relu", before, f"t{number}"), "else_branch": side("Softmax", before, f"e{number}")}
        return helper.make_node("If", ["c"], [after], **sides)

    return model(chain(count, step))


def one_value_read_by_all(count: int) -> bytes:
    nodes = [helper.make_node("Softmax", ["x"], ["r"])]
    nodes += [helper.make_node("MatMul", ["r", f"w{number}"], [f"v{number}"]) for number in range(count)]
    nodes.append(helper.make_node("Concat", [f"v{number}" for number in range(count)], ["y"], axis=0))
    return model(nodes, **{f"w{number}": np.full((4, 4), number, F32) for number in range(count)})


@pytest.mark.parametrize("make", [additions_and_softmaxes, products, concats_and_slices, ifs, one_value_read_by_all])
def test_opening_takes_work_by_the_number_of_nodes(
    make: Callable[[int], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = {"x": np.ones((3, 4), F32), "c": np.array(True)}

    def work(count: int) -> Callable[[], object]:
        folder = tmp_path / str(count)
        content = make(count)

        def open_and_run() -> None:
            monkeypatch.setenv("SARDONYX_CACHE_DIR", str(folder))
            sardonyx.InferenceSession(content).run(None, feeds)

        open_and_run()  # its kernels are compiled now: how long one is depends on how many nodes it has, not on the model
        for saved in folder.iterdir():
            if saved.suffix != ".obj":  # the whole program, which would spare everything that is to be counted
                saved.unlink()
        return open_and_run

    growth, function = fastest_growing(work, 40 if make is ifs else 80)
    assert growth < 3, function
