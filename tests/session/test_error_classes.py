"""Where ONNX Runtime raises, `except` clauses written for it catch ours: broken models, feeds and arguments that do not fit."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.errors import SardonyxError

CPU = ["CPUExecutionProvider"]
X = np.ones((3, 2), np.float32)
FLOAT = TensorProto.FLOAT


def info(name: str, kind: int = FLOAT, shape: Any = (2,)) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: Any, inputs: Any = None, outputs: Any = None, weights: Any = (), opsets: Any = (("", 17),)) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs or [info("x")], outputs or [info("y")], list(weights))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in opsets], ir_version=8)
    return bytes(made.SerializeToString())


def external(location: str) -> Any:
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    return tensor


def short() -> Any:
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "w")
    tensor.raw_data = bytes(7)
    return tensor


def broken() -> dict[str, Any]:
    """Models that cannot be opened."""
    node, ok = helper.make_node, model([helper.make_node("Abs", ["x"], ["y"])])
    add = node("Add", ["x", "w"], ["y"])
    unshaped = [info("y", FLOAT, None)]
    microsoft, own = (("", 17), ("com.microsoft", 1)), (("", 17), ("my.own", 1))
    branches = {
        "then_branch": helper.make_graph([node("Abs", ["x"], ["p"])], "then", [], [info("p")]),
        "else_branch": helper.make_graph([node("Foo", ["x"], ["q"])], "else", [], [info("q")]),
    }
    return {
        "a missing file": os.path.join("nowhere", "model.onnx"),
        "text": b"this is not a model",
        "a truncated model": ok[:-5],
        "a number": 3,
        "an unknown operator": model([node("Foo", ["x"], ["y"])]),
        "an unknown operator of com.microsoft": model([node("Foo", ["x"], ["y"], domain="com.microsoft")], opsets=microsoft),
        "an unknown domain": model([node("Foo", ["x"], ["y"], domain="my.own")], opsets=own),
        "an unknown operator in a branch": model(
            [node("If", ["c"], ["y"], **branches)], [info("x"), info("c", TensorProto.BOOL, ())]
        ),
        "an operator newer than the opset": model([node("Gelu", ["x"], ["y"])], opsets=(("", 11),)),
        "no opset": model([node("Abs", ["x"], ["y"])], opsets=()),
        "a cycle": model([node("Add", ["x", "b"], ["a"]), node("Abs", ["a"], ["b"]), node("Abs", ["b"], ["y"])]),
        "two outputs of one name": model([node("Abs", ["x"], ["y"]), node("Neg", ["x"], ["y"])]),
        "two inputs of one name": model([node("Abs", ["x"], ["y"])], [info("x"), info("x")]),
        "an output that nothing makes": model([node("Abs", ["x"], ["z"])]),
        "types that differ": model([node("Add", ["x", "i"], ["y"])], [info("x"), info("i", TensorProto.INT64)]),
        "an output of another type": model([node("Abs", ["x"], ["y"])], None, [info("y", TensorProto.INT64)]),
        "shapes that contradict": model([node("Add", ["x", "z"], ["y"])], [info("x"), info("z", FLOAT, (3,))]),
        "matrices that do not fit": model(
            [node("MatMul", ["x", "z"], ["y"])], [info("x", FLOAT, (2, 3)), info("z", FLOAT, (4, 5))], unshaped
        ),
        "a missing attribute": model([node("Cast", ["x"], ["y"])]),
        "an attribute of another kind": model([node("Concat", ["x", "x"], ["y"], axis=1.5)]),
        "too many inputs": model([node("Abs", ["x", "x"], ["y"])]),
        "too few inputs": model([node("Add", ["x"], ["y"])]),
        "a type that is not allowed": model(
            [node("Abs", ["x"], ["y"])], [info("x", TensorProto.STRING)], [info("y", TensorProto.STRING)]
        ),
        "an axis out of range": model([node("Concat", ["x", "x"], ["y"], axis=5)]),
        "a rank that does not fit": model(
            [node("Conv", ["x", "w"], ["y"])], None, unshaped, [numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")]
        ),
        "weights that are too short": model([add], weights=[short()]),
        "external data that is not there": model([add], weights=[external("nowhere.bin")]),
        "external data outside of the folder": model([add], weights=[external("../../data.bin")]),
        "external data at an absolute path": model([add], weights=[external(os.path.abspath("data.bin"))]),
        "no operator at all": model([node("", ["x"], ["y"])]),
    }


def raised(action: Callable[[], Any]) -> Exception | None:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            action()
        except Exception as error:  # compared below
            return error
    return None


def check(theirs: Exception | None, ours: Exception | None) -> None:
    """Ours is caught by a clause that names theirs."""
    assert theirs is not None
    assert ours is not None
    assert type(theirs).__name__ in {each.__name__ for each in type(ours).__mro__}, f"{theirs!r}\n{ours!r}"


@pytest.mark.parametrize("what", broken())
def test_a_broken_model_raises_what_onnxruntime_raises(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = broken()[what]
    onnxruntime.set_default_logger_severity(4)
    theirs = raised(lambda: onnxruntime.InferenceSession(source, providers=CPU))
    ours = raised(lambda: sardonyx.InferenceSession(source, providers=CPU))
    check(theirs, ours)
    assert isinstance(ours, (SardonyxError, TypeError))


def test_an_input_that_nothing_makes() -> None:
    """The one case where the classes differ: InvalidArgument there."""
    source = model([helper.make_node("Add", ["x", "z"], ["y"])])
    assert type(raised(lambda: onnxruntime.InferenceSession(source))).__name__ == "InvalidArgument"
    assert isinstance(raised(lambda: sardonyx.InferenceSession(source)), sardonyx.InvalidGraph)


class Odd:
    """An object no array can be made of."""


def bound(session: Any, array: Any, output: str) -> None:
    binding = session.io_binding()
    if array is not None:
        binding.bind_cpu_input("X", array)
    binding.bind_output(output)
    session.run_with_iobinding(binding)


def terminated(ort: Any, session: Any) -> None:
    options = ort.RunOptions()
    options.terminate = True
    session.run(None, {"X": X}, options)


Misuse = Callable[[Any, Any], Any]
MISUSES: Final[dict[str, Misuse]] = {
    "a missing input": lambda ort, s: s.run(None, {}),
    "an unknown input": lambda ort, s: s.run(None, {"X": X, "Z": X}),
    "another type": lambda ort, s: s.run(None, {"X": X.astype(np.float64)}),
    "another rank": lambda ort, s: s.run(None, {"X": X[0]}),
    "another size": lambda ort, s: s.run(None, {"X": X[:2]}),
    "an object": lambda ort, s: s.run(None, {"X": Odd()}),
    "text": lambda ort, s: s.run(None, {"X": "abc"}),
    "a dictionary": lambda ort, s: s.run(None, {"X": {1: 2.0}}),
    "an array of objects": lambda ort, s: s.run(None, {"X": np.array([[Odd()] * 2] * 3)}),
    "dates": lambda ort, s: s.run(None, {"X": np.zeros((3, 2), "M8[s]")}),
    "a ragged list": lambda ort, s: s.run(None, {"X": [[1, 2], [3]]}),
    "a name that is no string": lambda ort, s: s.run(None, {3: X, "X": X}),
    "an unknown output": lambda ort, s: s.run(["Q"], {"X": X}),
    "one name for outputs": lambda ort, s: s.run("Y", {"X": X}),
    "numbers for outputs": lambda ort, s: s.run([3], {"X": X}),
    "options of another kind": lambda ort, s: s.run(None, {"X": X}, 3),
    "a value of another type": lambda ort, s: s.run_with_ort_values(
        None, {"X": ort.OrtValue.ortvalue_from_numpy(X.astype(np.float64))}
    ),
    "missing values": lambda ort, s: s.run_with_ort_values(None, {}),
    "a missing input, asynchronously": lambda ort, s: s.run_async(None, {}, print, None),
    "a terminated run": terminated,
    "binding an unknown input": lambda ort, s: s.io_binding().bind_cpu_input("Q", X),
    "binding a list": lambda ort, s: s.io_binding().bind_cpu_input("X", [1]),
    "binding to the moon": lambda ort, s: s.io_binding().bind_output("Y", "moon"),
    "running an empty binding": lambda ort, s: s.run_with_iobinding(s.io_binding()),
    "running a binding without input": lambda ort, s: bound(s, None, "Y"),
    "running a binding of another type": lambda ort, s: bound(s, X.astype(np.float64), "Y"),
    "running a binding of an unknown output": lambda ort, s: bound(s, X, "Q"),
    "another session's binding": lambda ort, s: s.run_with_iobinding(copy_of(ort, s).io_binding()),
    "an unknown provider": lambda ort, s: s.set_providers(["Moon"]),
    "provider options of another kind": lambda ort, s: s.set_providers(CPU, [3]),
    "session options of another kind": lambda ort, s: ort.InferenceSession(s._model_path, 3),
    "a value of a list": lambda ort, s: ort.OrtValue.ortvalue_from_numpy([1, 2]),
    "a value of strings": lambda ort, s: ort.OrtValue.ortvalue_from_numpy(np.array(["a"])),
    "a value of no type": lambda ort, s: ort.OrtValue.ortvalue_from_shape_and_type([2], "nonsense"),
    "a value of no number": lambda ort, s: ort.OrtValue.ortvalue_from_shape_and_type([2], 77),
    "a value of negative size": lambda ort, s: ort.OrtValue.ortvalue_from_shape_and_type([-2], np.float32),
    "a value of any size": lambda ort, s: ort.OrtValue.ortvalue_from_shape_and_type([1 << 40, 1 << 40], np.float32),
    "an option of another type": lambda ort, s: setattr(ort.SessionOptions(), "intra_op_num_threads", "a"),
    "an unknown option": lambda ort, s: setattr(ort.SessionOptions(), "no_such_option", 1),
    "a number for a level": lambda ort, s: setattr(ort.SessionOptions(), "graph_optimization_level", 1),
    "an unknown entry": lambda ort, s: ort.SessionOptions().get_session_config_entry("nothing"),
    "an entry of another type": lambda ort, s: ort.SessionOptions().add_session_config_entry("a", 3),
    "a missing library": lambda ort, s: ort.SessionOptions().register_custom_ops_library("nowhere.so"),
    "a missing provider library": lambda ort, s: ort.register_execution_provider_library("x", "nowhere.so"),
    "a provider library that is not there": lambda ort, s: ort.unregister_execution_provider_library("x"),
    "a missing adapter": lambda ort, s: ort.LoraAdapter().Load("nowhere"),
    "assignments nobody recorded": lambda ort, s: s.get_provider_graph_assignment_info(),
    "adding an unknown provider": lambda ort, s: ort.SessionOptions().add_provider("Moon", {}),
    "names without values": lambda ort, s: ort.SessionOptions().add_external_initializers(["a"], []),
    "a number for an initializer": lambda ort, s: ort.SessionOptions().add_initializer("W", 3),
}


def copy_of(ort: Any, session: Any) -> Any:
    return ort.InferenceSession(copy.copy(session._model_path), providers=CPU)


@pytest.mark.parametrize("what", MISUSES)
def test_a_misuse_raises_what_onnxruntime_raises(what: str, model: Callable[[str], str]) -> None:
    onnxruntime.set_default_logger_severity(4)
    found = []
    for ort in (onnxruntime, sardonyx):
        session = ort.InferenceSession(model("mul_1"), providers=CPU)
        found.append(raised(lambda ort=ort, session=session: MISUSES[what](ort, session)))  # type: ignore[misc]
    check(found[0], found[1])


def test_sequences_of_the_wrong_things_are_runtime_errors(ort: Any, model: Callable[[str], str]) -> None:
    session = ort.InferenceSession(model("sequence_length"), providers=CPU)
    for wrong in ([Odd()], [X.tolist(), None]):
        with pytest.raises(RuntimeError):
            session.run(None, {"X": wrong})


def test_strings_are_refused_when_an_adapter_is_written(ort: Any, model: Callable[[str], str], tmp_path: Path) -> None:
    session = ort.InferenceSession(model("identity_string"), providers=CPU)
    text = np.array([["a", "b"], ["c", "d"]], object)
    [value] = session.run_with_ort_values(None, {"input:0": strings(ort, session, text)})
    adapter = ort.AdapterFormat()
    adapter.set_parameters({"words": value})
    with pytest.raises(Exception, match="STRING"):
        adapter.export_adapter(str(tmp_path / "adapter"))
    assert not (tmp_path / "adapter").exists()


def strings(ort: Any, session: Any, text: Any) -> Any:
    """An OrtValue of strings: only models make them."""
    constant = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(text, "text"))
    graph = helper.make_graph([constant], "g", [], [info("y", TensorProto.STRING, text.shape)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(made)
    return ort.InferenceSession(made.SerializeToString(), providers=CPU).run_with_ort_values(None, {})[0]
