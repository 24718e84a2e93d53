"""Differentiation of whole graphs: what is refused, seeds, accumulation; and training programs: random masks, saved values."""

from __future__ import annotations

import numpy as np
import pytest

from model_text import model
from pass_support import evaluate
from sardonyx import errors
from sardonyx.formats.loading import load
from sardonyx.ir.graph import Model
from sardonyx.training.differentiate import differentiate
from sardonyx.training.step_program import GradientRequest, InferenceProgram, TrainingProgram


def _model(graph: str, opset: int = 18) -> Model:
    return load(model(graph, opset))


def test_a_loss_has_the_seed_one_and_ways_add_up() -> None:
    found = _model("(float[3] x) => (float[] loss) { a = Mul(x, x) b = Add(a, x) loss = ReduceSum<keepdims=0>(b) }")
    gradients = differentiate(found.graph, found.graph.outputs, found.graph.inputs)
    assert gradients.inputs[0] is not None
    found.graph.outputs[:] = [gradients.inputs[0]]
    (dx,) = evaluate(found, {"x": np.array([1, 2, 3], np.float32)})
    np.testing.assert_array_equal(dx, [3, 5, 7])


def test_an_input_that_nothing_depends_on_has_no_gradient() -> None:
    found = _model(
        "(float[3] x, float[3] z, int64[3] i) => (float[3] y) { f = Floor(z) c = Cast<to=1>(i) s = Add(f, c) y = Add(x, s) }"
    )
    seeds = [found.graph.inputs[0]]
    gradients = differentiate(found.graph, found.graph.outputs, found.graph.inputs, seeds)
    assert gradients.inputs[1:] == (None, None)


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        ("(float[1] x) => (float[1] y) { y = Hardmax(x) }", "Hardmax '-> y': there is no gradient rule for ai.onnx::Hardmax"),
        ("(float[3] x, bool c) => (float[3] y) { y = If(c) <then_branch = t () => (float[3] a) { a = Neg(x) }, "
         "else_branch = e () => (float[3] b) { b = Abs(x) }> }", "gradients do not flow through nodes with subgraphs"),
        ("(float[3] x) => (float y) { s = SequenceConstruct(x) c = ConcatFromSequence<axis=0>(s) y = ReduceSum<keepdims=0>(c) }",
         "there is no gradient rule for ai.onnx::ConcatFromSequence"),
        ("(float[3] x) => (float[3] y) { y = Relu(x) }", "expected a single element"),
    ],
)  # fmt: skip
def test_what_has_no_gradient_is_refused_by_name(graph: str, text: str) -> None:
    found = _model(graph)
    with pytest.raises(errors.SardonyxError, match=text.replace("(", "\\(")):
        differentiate(found.graph, found.graph.outputs, found.graph.inputs[:1])


_DROPOUT = """(float[N,64] x) => (float[N,64] y) {
    r = Constant<value=float {0.25}>() t = Constant<value=bool {1}>() y = Dropout(x, r, t)
}"""


def test_the_mask_of_a_dropout_is_the_same_in_backward_and_follows_from_the_seed() -> None:
    program = TrainingProgram(_model(_DROPOUT), GradientRequest(("y",), ("x",)))
    assert program.is_native, program.host_nodes
    x = np.ones((50, 64), np.float32)
    (first,), saved = program.forward([x], seed=1)
    (again,), _ = program.forward([x], seed=1)
    (other,), _ = program.forward([x])
    assert saved.values == ()  # the mask is computed again
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    (dx,) = program.backward(saved, [np.ones_like(first)])
    np.testing.assert_array_equal(dx, first)
    assert set(np.unique(first)) == {0, np.float32(1 / 0.75)}
    assert abs((first == 0).mean() - 0.25) < 0.05


def test_forwards_before_their_backwards_keep_their_own_values() -> None:
    program = TrainingProgram(
        _model("(float[N,4] x, float[4,3] w) => (float[N,3] y) { h = MatMul(x, w) y = Tanh(h) }"), GradientRequest(("y",), ("w",))
    )
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 3)).astype(np.float32)
    inputs = [rng.standard_normal((count, 4)).astype(np.float32) for count in (2, 5, 3)]
    runs = [program.forward([x, w]) for x in inputs]
    for x, ((y,), saved) in reversed(list(zip(inputs, runs))):
        (dw,) = program.backward(saved, [np.ones_like(y)])
        assert dw is not None
        np.testing.assert_allclose(dw, x.T @ (1 - y * y), rtol=1e-4, atol=1e-5)
        (none,) = program.backward(saved, [None])
        assert none is not None
        assert not none.any()
    with pytest.raises(errors.InvalidArgument, match="the gradient of output 'y' is float32"):
        program.backward(runs[0][1], [np.zeros((9, 3), np.float32)])


def test_an_inference_program_takes_weights_as_inputs() -> None:
    program = InferenceProgram(_model("(float[N,4] x, float[4,3] w) => (float[N,3] y) { y = MatMul(x, w) }"))
    x, w = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(program.run([x, w])[0], x @ w)
