"""RNN, GRU and LSTM as native steps, against the NumPy meaning of the operators."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from guarded import guarded
from native_support import assert_native_agrees, compile_native, host_nodes, run_native
from sardonyx import errors
from sardonyx.compile import assemble
from sardonyx.ir.tensor import Array
from sardonyx.kernel.matmul.matmul import MatMulKernel
from sardonyx.kernel.rnn.rnn import RecurrentKernel, halves_gates
from sardonyx.lower.rnn import rnn as lowering
from sardonyx.program.steps import KernelStep
from targets import described, here, library_for

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
TOLERANCE = {"float32": 2e-5, "float64": 1e-10, "float16": 4e-3}


@dataclass(frozen=True)
class Layer:
    """A recurrent layer with random weights."""

    op: str
    steps: int = 4
    batch: int = 3
    inputs: int = 5
    hidden: int = 7
    direction: str = "forward"
    constant: bool = True  # weights are part of the model
    bias: bool = True
    lengths: bool = False
    initial: bool = False
    peepholes: bool = False
    dtype: str = "float32"
    symbolic: bool = False
    open_length: bool = False  # the number of steps is known only when the model runs
    outputs: tuple[str, ...] = ("Y", "Y_h", "Y_c")
    attrs: dict[str, Any] = field(default_factory=dict)

    def model(self) -> tuple[bytes, dict[str, Array]]:
        """The model and feeds for it, in guarded memory."""
        rng = np.random.default_rng(7)
        gates, directions = GATES[self.op], 2 if self.direction == "bidirectional" else 1
        layout = self.attrs.get("layout", 0)
        scale_of_weights = 1.2 / max(self.hidden, 9) ** 0.5  # large weights would make small differences grow from step to step
        feeds: dict[str, Array] = {}
        constants: dict[str, Array] = {}

        def put(name: str, array: Array, constant: bool = False) -> str:
            (constants if constant else feeds)[name] = array
            return name

        def numbers(*shape: int, scale: float = 1.0) -> Array:
            return (rng.standard_normal(shape) * scale).astype(self.dtype)

        state = (self.batch, directions, self.hidden) if layout else (directions, self.batch, self.hidden)
        names = [
            put("X", numbers(*((self.batch, self.steps) if layout else (self.steps, self.batch)), self.inputs)),
            put("W", numbers(directions, gates * self.hidden, self.inputs, scale=scale_of_weights), self.constant),
            put("R", numbers(directions, gates * self.hidden, self.hidden, scale=scale_of_weights), self.constant),
            put("B", numbers(directions, 2 * gates * self.hidden), self.constant) if self.bias else "",
            put("lengths", rng.integers(0, self.steps + 1, self.batch).astype(np.int32)) if self.lengths else "",
            put("h", numbers(*state)) if self.initial else "",
        ]
        if self.op == "LSTM":
            names.append(put("c", numbers(*state)) if self.initial else "")
            names.append(put("P", numbers(directions, 3 * self.hidden), self.constant) if self.peepholes else "")
        while not names[-1]:
            names.pop()
        outputs = list(self.outputs[: 3 if self.op == "LSTM" else 2])
        node = helper.make_node(self.op, names, outputs, hidden_size=self.hidden, direction=self.direction, **self.attrs)
        code = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        shapes: dict[str, list[Any]] = {name: list(array.shape) for name, array in feeds.items()}
        if self.symbolic:
            shapes["X"][:2] = ["batch", "steps"] if layout else ["steps", "batch"]
        if self.open_length:
            shapes["X"][1 if layout else 0] = "steps"
        graph = helper.make_graph(
            [node],
            "layer",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shapes[name])
                for name, array in feeds.items()
            ],
            [helper.make_tensor_value_info(name, code, None) for name in outputs if name],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9).SerializeToString()
        return content, {name: guarded(array) for name, array in feeds.items()}

    def check(self) -> None:
        content, feeds = self.model()
        tolerance = TOLERANCE[self.dtype]
        assert_native_agrees(content, feeds, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"direction": "reverse", "lengths": True, "bias": False},
        {"direction": "bidirectional", "lengths": True, "initial": True, "attrs": {"layout": 1}},
        {"constant": False, "symbolic": True, "attrs": {"clip": 0.5}},
    ],
    ids=["plain", "reverse", "bidirectional", "weights fed"],
)
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 5), st.integers(1, 15), st.integers(1, 20), st.integers(1, 50))
def test_layers_of_any_size_agree(op: str, options: dict[str, Any], steps: int, batch: int, inputs: int, hidden: int) -> None:
    Layer(op, steps, batch, inputs, hidden, **options).check()


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_agree(op: str, dtype: str) -> None:
    Layer(op, dtype=dtype, initial=True, batch=5, hidden=21).check()


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_gru_that_is_linear_before_its_reset_agrees(constant: bool, bias: bool, batch: int) -> None:
    Layer("GRU", batch=batch, hidden=19, bias=bias, constant=constant, attrs={"linear_before_reset": 1}).check()


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("coupled", [0, 1])
def test_an_lstm_with_peepholes_agrees(constant: bool, coupled: int) -> None:
    Layer("LSTM", hidden=18, peepholes=True, initial=True, constant=constant, attrs={"input_forget": coupled}).check()


ACTIVATIONS = [
    "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
    "Softsign", "Softplus",
]  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_agrees(name: str) -> None:
    Layer("RNN", batch=1, attrs={"activations": [name]}).check()
    Layer("RNN", batch=1, attrs={"activations": [name.lower()], "activation_alpha": [0.3], "activation_beta": [0.7]}).check()


def test_directions_with_different_activations_agree() -> None:
    names = ["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Softsign", "Relu"]
    layer = Layer("LSTM", direction="bidirectional", lengths=True, initial=True, hidden=20, attrs={"activations": names})
    layer.check()


@pytest.mark.parametrize("outputs", [("Y", "", ""), ("", "Y_h", ""), ("", "", "Y_c")])
def test_outputs_nobody_wants_are_left_out(outputs: tuple[str, ...]) -> None:
    Layer("LSTM", outputs=outputs).check()


def test_a_batch_without_sequences_gives_empty_results() -> None:
    Layer("LSTM", batch=0).check()


@pytest.mark.parametrize("op", GATES)
def test_results_do_not_depend_on_the_number_of_threads(op: str) -> None:
    content, feeds = Layer(op, steps=8, batch=13, inputs=64, hidden=130, direction="bidirectional", lengths=True).model()
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(content, workers)
        results.append(run_native(graph, compiled, feeds))
    for other in results[1:]:
        for first, second in zip(results[0], other):
            np.testing.assert_array_equal(first, second)


def test_nan_in_one_sequence_leaves_the_others_alone() -> None:
    content, feeds = Layer("GRU", batch=6).model()
    feeds["X"][1, 2] = np.nan
    assert_native_agrees(content, feeds, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("length", [-1, 5])
def test_a_length_outside_the_sequence_is_an_error(length: int) -> None:
    content, feeds = Layer("LSTM", lengths=True).model()
    feeds["lengths"][1] = length
    graph, compiled = compile_native(content)
    with pytest.raises(errors.InvalidArgument, match=f"sequence_lens holds {length}: expected lengths from 0 to 4"):
        run_native(graph, compiled, feeds)


def test_an_activation_that_is_not_known_is_left_to_the_host() -> None:
    content, _ = Layer("RNN", attrs={"activations": ["Tanhh"]}).model()
    _, compiled = compile_native(content)
    assert host_nodes(compiled) == ["RNN"]


@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("op", GATES)
def test_machines_with_narrower_vectors_agree(op: str, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = library_for(here(lanes))
    monkeypatch.setattr(assemble, "library", lambda *_: library)
    Layer(op, batch=7, hidden=21, lengths=True, initial=True, direction="bidirectional").check()


@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(("batch", "hidden"), [(1, 9), (1, 40), (2, 24), (3, 17), (5, 64), (9, 33)])
def test_an_odd_number_of_places_of_a_tile_agrees(
    op: str, lanes: int, batch: int, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last place is computed twice, from states that it replaces."""
    library = library_for(here(lanes))
    monkeypatch.setattr(assemble, "library", lambda *_: library)
    Layer(op, steps=5, batch=batch, hidden=hidden, initial=True).check()


@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize(("batch", "hidden"), [(4, 24), (7, 40), (13, 9), (25, 20), (50, 33)])
def test_gates_that_are_multiplied_in_halves_agree(
    batch: int, hidden: int, lengths: bool, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = library_for(here(lanes))
    monkeypatch.setattr(assemble, "library", lambda *_: library)
    layer = Layer("LSTM", batch=batch, hidden=hidden, lengths=lengths, initial=True, direction="bidirectional", peepholes=True)
    layer.check()
    assert {kernel.halved for kernel in recurrent_kernels(layer.model()[0])} == {True}


@pytest.mark.parametrize("batch", [1, 2, 5, 30])
def test_gates_in_halves_serve_any_number_of_sequences(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number is known at run time only; the results are those of a layer that takes all gates together."""
    library = library_for(here(8))
    monkeypatch.setattr(assemble, "library", lambda *_: library)
    content, feeds = Layer("LSTM", batch=batch, hidden=75, symbolic=True, initial=True).model()
    results = []
    for workers in (1, 3):
        graph, compiled = compile_native(content, workers)
        results.append(run_native(graph, compiled, feeds))
    monkeypatch.setattr(lowering, "halves_gates", lambda *_: False)
    graph, compiled = compile_native(content)
    results.append(run_native(graph, compiled, feeds))
    for other in results[1:]:
        for first, second in zip(results[0], other):
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_only_gates_of_batches_without_registers_are_multiplied_in_halves(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = library_for(here(8))
    monkeypatch.setattr(assemble, "library", lambda *_: library)
    for batch in (1, 3, 4):
        kernels = recurrent_kernels(Layer(op, batch=batch).model()[0])
        assert {kernel.halved for kernel in kernels} == {op == "LSTM" and batch == 4}
    assert not halves_gates(4, described(16))


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("op", GATES)
def test_workers_share_the_hidden_units_of_one_sequence(op: str, direction: str, steps: int) -> None:
    layer = Layer(op, steps=steps, batch=1, inputs=9, hidden=440, direction=direction, lengths=True, initial=True)
    layer.check()
    content, feeds = layer.model()
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(content, workers)
        results.append(run_native(graph, compiled, feeds))
    passes = 2 if op == "GRU" else 1
    kernels = [step.kernel for step in compiled.lowered.steps if isinstance(step, KernelStep)]
    assert sum(isinstance(kernel, RecurrentKernel) for kernel in kernels) == 2 + passes
    for other in results[1:]:
        for first, second in zip(results[0], other):
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(("op", "linear", "direction"), [("GRU", 0, "reverse"), ("GRU", 1, "forward"), ("LSTM", 0, "reverse")])
def test_workers_share_the_hidden_units_of_a_sequence_of_any_length(op: str, linear: int, direction: str) -> None:
    attrs = {"linear_before_reset": linear} if op == "GRU" else {}
    layer = Layer(op, 9, 1, 130, 440, direction=direction, initial=True, open_length=True, attrs=attrs)
    content, _ = layer.model()
    alone, shared = (compile_native(content, workers) for workers in (1, 3))
    for steps in (0, 1, 2, 9, 128, 129, 150):
        _, feeds = replace(layer, steps=steps).model()
        for first, second in zip(run_native(*alone, feeds), run_native(*shared, feeds), strict=True):
            np.testing.assert_array_equal(first, second)
    for steps in (1, 9, 129):
        replace(layer, steps=steps).check()
    assert {kernel.part for kernel in recurrent_kernels(content)} - {"window", "1"} == {"enter", "0", "leave"}


@pytest.mark.parametrize("op", GATES)
@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 7),
    st.integers(0, 9),
    st.sampled_from(["forward", "reverse", "bidirectional"]),
    st.fixed_dictionaries({name: st.booleans() for name in ("lengths", "initial", "symbolic", "constant")}),
    st.sampled_from([("Y", "Y_h", "Y_c"), ("Y",), ("", "Y_h")]),
    st.integers(0, 1),
)
def test_workers_share_the_hidden_units_of_batches(
    op: str, steps: int, batch: int, direction: str, options: dict[str, bool], outputs: tuple[str, ...], layout: int
) -> None:
    hidden = 440 if op != "LSTM" or direction == "bidirectional" else 90
    attrs = {"layout": layout}
    layer = Layer(op, steps, batch, 9, hidden, direction=direction, outputs=outputs, attrs=attrs, **options)  # type: ignore[arg-type]
    layer.check()
    content, feeds = layer.model()
    results = [run_native(*compile_native(content, workers), feeds) for workers in (1, 2, 3)]
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(first, second)
    if steps or options["symbolic"]:
        assert "0" in {kernel.part for kernel in recurrent_kernels(content)}


def test_inputs_whose_rows_lie_apart_are_one_product() -> None:
    rng = np.random.default_rng(2)
    weights = {"W": rng.standard_normal((1, 80, 24)) / 5, "R": rng.standard_normal((1, 80, 20)) / 5}
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[B,24,T] x) => (float[T,1,B,20] y) '
    layer = onnx.parser.parse_model(head + "{ t = Transpose<perm = [2, 0, 1]>(x) y = LSTM<hidden_size = 20>(t, W, R) }")
    layer.graph.initializer.extend(numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items())
    content = layer.SerializeToString()
    for batch, steps in ((1, 7), (3, 5), (0, 2), (2, 0), (5, 1)):
        feeds = {"x": guarded(rng.standard_normal((batch, 24, steps)).astype(np.float32))}
        assert_native_agrees(content, feeds, rtol=2e-5, atol=2e-5)
    _, compiled = compile_native(content)
    kernels = [step.kernel for step in compiled.lowered.steps if isinstance(step, KernelStep)]
    assert [kernel.batch for kernel in kernels if isinstance(kernel, MatMulKernel)] == [0]


def test_one_program_serves_batches_and_lengths_of_any_size() -> None:
    layer = Layer("LSTM", 3, 1, 12, 100, symbolic=True)
    content, _ = layer.model()
    programs = [compile_native(content, workers) for workers in (1, 2)]
    for steps, batch in ((3, 1), (0, 2), (300, 1), (2, 0), (5, 3), (1, 30), (2, 1)):
        sized = replace(layer, steps=steps, batch=batch)
        _, feeds = sized.model()
        alone, shared = (run_native(*program, feeds) for program in programs)
        for first, second in zip(alone, shared, strict=True):
            np.testing.assert_array_equal(first, second)
        if steps <= 5:
            sized.check()


def recurrent_kernels(content: bytes) -> list[RecurrentKernel]:
    _, compiled = compile_native(content)
    kernels = [step.kernel for step in compiled.lowered.steps if isinstance(step, KernelStep)]
    return [kernel for kernel in kernels if isinstance(kernel, RecurrentKernel)]


def multiplies_ahead() -> bool:
    """Whether a vector of this machine is a line of its caches."""
    return here().vector_bits == 512


@pytest.fixture
def halved_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that computes vectors of 512 bits in halves."""
    found = here()
    library = library_for(replace(found, has_whole_vectors=not multiplies_ahead()))
    monkeypatch.setattr(assemble, "library", lambda *_: library)


@pytest.fixture
def tiny_first_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, and small weights come from the second cache, too."""
    found = here()
    caches = found.caches._replace(l1d=64)
    library = library_for(replace(found, caches=caches, has_whole_vectors=not multiplies_ahead()))
    monkeypatch.setattr(assemble, "library", lambda *_: library)


@pytest.mark.usefixtures("tiny_first_cache")
@pytest.mark.parametrize("op", ["GRU", "LSTM"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([(3, 4), (5, 9), (16, 16), (20, 36), (33, 50), (40, 20), (70, 72)]),
    st.integers(0, 40),
    st.sampled_from(["forward", "reverse", "bidirectional"]),
    st.fixed_dictionaries({name: st.booleans() for name in ("bias", "constant", "initial", "open_length")}),
    st.sampled_from(["float32", "float64"]),
    st.integers(0, 1),
)
def test_inputs_that_are_multiplied_ahead_agree(
    op: str, sizes: tuple[int, int], steps: int, direction: str, options: dict[str, bool], dtype: str, layout: int
) -> None:
    attrs = {"layout": layout, **({"linear_before_reset": 1} if op == "GRU" else {})}
    layer = Layer(op, steps, 1, *sizes, direction=direction, dtype=dtype, attrs=attrs, **options)  # type: ignore[arg-type]
    layer.check()
    times = 6 if op == "GRU" else 8
    expected = 1 if options["open_length"] else times if steps >= 2 * times else 0
    expected = expected if multiplies_ahead() else 0
    assert {kernel.ahead for kernel in recurrent_kernels(layer.model()[0])} == {expected}


@pytest.mark.usefixtures("halved_vectors")
@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_workers_multiply_inputs_ahead_with_the_hidden_units_they_share(op: str) -> None:
    if not multiplies_ahead():
        pytest.skip("vectors are half a line of the caches")
    attrs = {"linear_before_reset": 1} if op == "GRU" else {}
    layer = Layer(op, steps=21, batch=1, inputs=130, hidden=280, initial=True, attrs=attrs)
    layer.check()
    content, feeds = layer.model()
    results = []
    for workers in (1, 2, 3, 5):
        graph, compiled = compile_native(content, workers)
        results.append(run_native(graph, compiled, feeds))
    assert [kernel.part for kernel in recurrent_kernels(content)] == ["enter", "window", "0", "leave"]
    for other in results[1:]:
        for first, second in zip(results[0], other):
            np.testing.assert_array_equal(first, second)


@pytest.mark.usefixtures("tiny_first_cache")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_inputs_do_not_reach_earlier_times(value: float) -> None:
    content, feeds = Layer("LSTM", steps=30, batch=1, inputs=16, hidden=20).model()
    feeds["X"][13, 0, 3] = value
    assert_native_agrees(content, feeds, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("whole", [False, True])
def test_inputs_are_one_product_where_vectors_are_computed_as_fast_as_they_are_loaded(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = library_for(replace(here(), has_whole_vectors=whole or not multiplies_ahead()))
    monkeypatch.setattr(assemble, "library", lambda *_: library)
    kernels = recurrent_kernels(Layer("LSTM", steps=32, batch=1, inputs=128, hidden=128).model()[0])
    assert {kernel.ahead > 0 for kernel in kernels} == {multiplies_ahead() and not whole}


@pytest.mark.usefixtures("halved_vectors")
@pytest.mark.parametrize(
    "options",
    [{"batch": 2}, {"lengths": True}, {"inputs": 300}, {"inputs": 8}, {"hidden": 40}, {"dtype": "float16"}, {"steps": 12}],
    ids=" ".join,
)
def test_inputs_are_one_product_where_multipliers_are_busy(options: dict[str, Any]) -> None:
    layer = Layer("LSTM", **{"steps": 32, "batch": 1, "inputs": 128, "hidden": 128, **options})
    assert {kernel.ahead for kernel in recurrent_kernels(layer.model()[0])} == {0}


def test_an_initial_state_that_is_one_number_repeated_is_spread_out() -> None:
    hidden, rng = 24, np.random.default_rng(0)
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["batch"]),
        helper.make_node("Concat", ["one", "batch", "hidden"], ["state"], axis=0),
        helper.make_node("ConstantOfShape", ["state"], ["h"]),
        helper.make_node("GRU", ["x", "w", "r", "", "", "h"], ["y"], hidden_size=hidden),
    ]
    weights = {
        "one": np.array([1]),
        "hidden": np.array([hidden]),
        "w": rng.normal(size=(1, 3 * hidden, 5)).astype(np.float32),
        "r": rng.normal(size=(1, 3 * hidden, hidden)).astype(np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "N", 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert_native_agrees(model, {"x": rng.normal(size=(4, 3, 5)).astype(np.float32)})


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("sizes", [("b", "s"), ("b", "6"), ("3", "s")])
def test_sequences_that_come_one_after_the_other_are_one_product(op: str, sizes: tuple[str, str]) -> None:
    """Inputs [batch, steps, inputs], transposed, with open sizes: their rows are multiplied as they lie in memory."""
    rng = np.random.default_rng(3)
    rows = GATES[op] * 7
    weights = {"W": (1, rows, 5), "R": (1, rows, 7), "B": (1, 2 * rows)}
    held = [numpy_helper.from_array((rng.standard_normal(shape) / 3).astype(np.float32), name) for name, shape in weights.items()]
    open_or_not = [int(size) if size.isdigit() else size for size in sizes]
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0, 2]),
            helper.make_node(op, ["turned", "W", "R", "B"], ["y"], hidden_size=7),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*open_or_not, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        held,
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for batch, steps in ((3, 6), (1, 6), (3, 1)):
        if sizes[0] in ("b", str(batch)) and sizes[1] in ("s", str(steps)):
            assert_native_agrees(content, {"x": rng.standard_normal((batch, steps, 5)).astype(np.float32)})
