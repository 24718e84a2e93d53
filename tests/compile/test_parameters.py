"""Compiling with parameters: initializers that change between runs. Nothing that is compiled depends on what they held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx import errors
from sardonyx.compile.compiler import compile_model
from sardonyx.compile.native_model import NativeModel
from sardonyx.compile_options import CompileOptions
from sardonyx.formats.onnx import load, to_bytes
from sardonyx.ir.graph import Model
from sardonyx.ir.tensor import Tensor, from_numpy
from sardonyx.ir.text import format_graph, parse_graph
from sardonyx.ir.text_tokens import ElidedTensor
from sardonyx.passes.apply_overrides import free_parameters
from session_agreement import difference, session
from small_nets import NETS

BRANCHES = """graph main(x: f32[2,8,4,4]) -> (y: f32[...]) {
  const zero: f32[] = 0.0
  const w: f32[8,8,1,1] = <256 bytes, sha256 0000000000000000>
  const s: f32[1,8,1,1] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
  t = ReduceSum(x) {keepdims = 0} @17
  p = Greater(t, zero) @17
  y = If(p) {
    then_branch = graph then() -> (a: f32[...]) {
      c = Conv(x, w) @17
      a = Mul(c, s) @17
    },
    else_branch = graph otherwise() -> (b: f32[...]) {
      d = Conv(x, w) @17
      b = Mul(d, s) @17
    }
  } @17
}"""


def weights_of(model: Model) -> dict[str, Any]:
    """All initializers of floats, but the scales of Resize: they decide shapes and are no weights."""
    scales = {value for node in model.graph.nodes if node.op_type == "Resize" for value in node.inputs[2:]}
    held = {name: value.constant for name, value in model.graph.initializers.items() if value not in scales}
    return {name: data.numpy() for name, data in held.items() if isinstance(data, Tensor) and data.dtype.is_float}


def compiled(model: Model, parameters: frozenset[str]) -> tuple[NativeModel, Model]:
    program = compile_model(model, CompileOptions(parameters=parameters))
    assert isinstance(program, NativeModel)
    return program, model


def agree(program: NativeModel, feeds: dict[str, Any], expected: list[Any]) -> None:
    results = program.run(feeds, [port.name for port in program.outputs])
    assert not difference(results, expected)


@pytest.mark.parametrize("net", NETS)
def test_changed_weights_change_the_answer_without_compiling_anew(net: str) -> None:
    content, feeds = NETS[net]()
    weights = weights_of(load(content))
    program, _ = compiled(load(content), frozenset(weights))
    generator = np.random.default_rng(5)
    changed = {name: data * np.float32(1.1) + generator.random(data.shape, np.float32) * 0.05 for name, data in weights.items()}
    answers = []
    for values in (weights, changed):
        options = CompileOptions(initializer_overrides=values, providers=("SardonyxReferenceExecutionProvider",))
        reference = compile_model(load(content), options)
        expected = reference.run(feeds, [port.name for port in reference.outputs])
        agree(program, {**feeds, **values}, expected)
        answers.append(expected)
    assert difference(answers[0], answers[1])  # the change can be seen


@pytest.mark.parametrize("net", NETS)
def test_nothing_compiled_depends_on_what_the_weights_held(net: str) -> None:
    content, _ = NETS[net]()
    first, second = load(content), load(content)
    weights = frozenset(weights_of(first))
    for name in weights:
        held = second.graph.initializers[name].constant
        assert isinstance(held, Tensor)
        second.graph.initializers[name].constant = ElidedTensor(held.dtype, held.shape, "<no data can be read>", name)
    texts = [format_graph(compiled(model, weights)[1].graph) for model in (first, second)]
    assert texts[0] == texts[1]
    assert not weights.intersection(first.graph.initializers)


@pytest.mark.parametrize("net", ["residual_net", "transformer"])
def test_without_the_mode_weights_are_folded(net: str) -> None:
    """What the tests above would not see if there were nothing to fold."""
    content, _ = NETS[net]()
    model = load(content)
    before = set(weights_of(model))
    compile_model(model, CompileOptions())
    assert not before.issubset(weights_of(model))


def test_parameters_that_branches_read_stay_parameters() -> None:
    kernels = np.random.default_rng(0).normal(size=(8, 8, 1, 1)).astype(np.float32)
    model = Model(parse_graph(BRANCHES), opset_imports={"": 17})
    program, _ = compiled(model, frozenset(("w", "s")))
    for sign in (1, -1):
        x = sign * np.random.default_rng(1).random((2, 8, 4, 4), np.float32)
        for factor in (1, 2):
            scale = np.arange(1, 9, dtype=np.float32).reshape(1, 8, 1, 1) * factor
            expected = np.einsum("nchw,oc->nohw", x, kernels[:, :, 0, 0]) * scale
            agree(program, {"x": x, "w": kernels, "s": scale}, [expected])


def test_a_default_that_a_branch_reads_can_be_replaced_by_a_feed() -> None:
    """The scale is reordered for the blocked layout where it is a constant, and only there."""
    text = BRANCHES.replace("graph main(x: f32[2,8,4,4])", "graph main(x: f32[2,8,4,4], s: f32[1,8,1,1])")
    graph = parse_graph(text.replace("  const s: f32[1,8,1,1] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]\n", ""))
    kernels = np.eye(8, dtype=np.float32).reshape(8, 8, 1, 1)
    graph.initializers["w"].constant = from_numpy(kernels)
    graph.inputs[1].constant = from_numpy(np.ones((1, 8, 1, 1), np.float32))
    graph.initializers["s"] = graph.inputs[1]
    opened = session(to_bytes(Model(graph, opset_imports={"": 17})))
    x = np.random.default_rng(1).random((2, 8, 4, 4), np.float32)
    scale = np.arange(1, 9, dtype=np.float32).reshape(1, 8, 1, 1)
    for sign in (1, -1):
        np.testing.assert_allclose(opened.run(None, {"x": sign * x})[0], sign * x, rtol=1e-6)
        np.testing.assert_allclose(opened.run(None, {"x": sign * x, "s": scale})[0], sign * x * scale, rtol=1e-6)


def test_a_parameter_that_is_no_initializer_is_refused() -> None:
    graph = parse_graph(BRANCHES)
    with pytest.raises(errors.InvalidArgument, match="no initializer of the model is called 'v', 'x', so it cannot"):
        free_parameters(graph, {"w", "x", "v"})
