"""Sizes that a program for all leaves to programs of their own: few pixels in nets whose images may have any size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import sardonyx
from sardonyx.runtime.sizes_apart import SizesApart, SpecialisationPays
from sardonyx.runtime.specialisations import MOST_SPECIALISATIONS

F32 = np.float32
CHANNELS = 256


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three convolutions whose transformed weights are larger than the caches that a core has for itself."""
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    weights = (rng.normal(size=(CHANNELS, CHANNELS, 3, 3)) / 48).astype(F32)
    nodes = []
    for number in range(3):
        source = "x" if number == 0 else f"y{number - 1}"
        nodes.append(helper.make_node("Conv", [source, "w"], [f"c{number}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"y{number}"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", CHANNELS, "height", "width"])]
    outputs = [helper.make_tensor_value_info("y2", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(weights, "w")])
    path = tmp_path / "m.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def image(*shape: int) -> dict[str, Any]:
    batch, height, width = shape
    return {"x": np.random.default_rng(sum(shape)).normal(size=(batch, CHANNELS, height, width)).astype(F32)}


@pytest.fixture
def reference(model: Path) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(model, providers=["SardonyxReferenceExecutionProvider"])


def check(session: sardonyx.InferenceSession, reference: sardonyx.InferenceSession, *shapes: tuple[int, int, int]) -> list[Any]:
    found = []
    for shape in shapes:
        feeds = image(*shape)
        (y,) = session.run(None, feeds)
        (wanted,) = reference.run(None, feeds)
        np.testing.assert_allclose(y, wanted, atol=1e-4 * max(float(np.abs(wanted).max(initial=0)), 1e-3))
        found.append(y)
    return found


SMALL = [(1, 1, 1), (1, 2, 2), (2, 1, 1), (1, 1, 2)]
LATER = [(1, 2, 1), (3, 1, 1)]
USUAL = [(1, 40, 40), (1, 64, 33)]


def test_few_pixels_get_programs_of_their_own(model: Path, reference: sardonyx.InferenceSession) -> None:
    session = sardonyx.InferenceSession(model)
    program: Any = session._opened.program
    check(session, reference, *USUAL)
    assert not program._compiled_specialisations
    first = check(session, reference, *SMALL, *LATER, *USUAL)
    assert len(program._compiled_specialisations) == MOST_SPECIALISATIONS
    again = check(session, reference, *SMALL, *LATER, *USUAL)
    backwards = check(session, reference, *reversed([*SMALL, *LATER, *USUAL]))[::-1]
    for one, *others in zip(first, again, backwards):
        assert all(np.array_equal(one, other) for other in others)  # to the bit


def test_the_next_session_finds_them(model: Path, reference: sardonyx.InferenceSession) -> None:
    first = check(sardonyx.InferenceSession(model), reference, *SMALL[:2], *USUAL)
    session = sardonyx.InferenceSession(model)
    program: Any = session._opened.program
    for _ in range(2):
        found = check(session, reference, *SMALL[:2], *USUAL)
        assert all(np.array_equal(one, other) for one, other in zip(first, found))
    assert program._full is None  # nothing had to be compiled
    check(session, reference, *SMALL, *LATER)
    assert program._full is not None
    third = sardonyx.InferenceSession(model)
    assert all(np.array_equal(one, other) for one, other in zip(first, check(third, reference, *SMALL[:2], *USUAL)))
    found = check(third, reference, *SMALL, *LATER, *USUAL)  # all of the first few are there: others run on the program for all
    again = check(third, reference, *LATER, *SMALL)
    assert all(np.array_equal(one, other) for one, other in zip([*found[4:6], *found[:4]], again))
    program = third._opened.program
    assert program._full is None


def test_empty_batches_and_other_sizes_that_take_no_time_are_not_apart(model: Path, reference: sardonyx.InferenceSession) -> None:
    session = sardonyx.InferenceSession(model)
    check(session, reference, (0, 1, 1), (0, 5, 5), (1, 40, 40))
    program: Any = session._opened.program
    assert not program._compiled_specialisations


def test_several_threads_get_the_same_bits(model: Path, reference: sardonyx.InferenceSession) -> None:
    session = sardonyx.InferenceSession(model)
    shapes = [*SMALL, *LATER, *USUAL] * 3

    def run(shape: tuple[int, int, int]) -> Any:
        return session.run(None, image(*shape))[0]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(run, shapes))
    count = len(SMALL) + len(LATER) + len(USUAL)
    for number, shape in enumerate(shapes[:count]):
        (expected,) = check(session, reference, shape)
        assert all(np.array_equal(expected, other) for other in found[number::count])


def test_bindings_views_and_other_fetches_are_served_too(model: Path, reference: sardonyx.InferenceSession) -> None:
    session = sardonyx.InferenceSession(model)
    feeds = image(1, 2, 2)
    (expected,) = session.run(None, feeds)
    turned = {"x": np.ascontiguousarray(feeds["x"].transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)}
    assert np.array_equal(session.run(None, turned)[0], expected)
    binding = session.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_output("y2")
    for _ in range(12):
        session.run_with_iobinding(binding)
        assert np.array_equal(binding.copy_outputs_to_cpu()[0], expected)
    value = sardonyx.OrtValue.ortvalue_from_numpy(feeds["x"])
    assert np.array_equal(session.run_with_ort_values(None, {"x": value})[0].numpy(), expected)
    (middle,) = session.run(["y0"], feeds)
    np.testing.assert_allclose(middle, reference.run(["y0"], feeds)[0], atol=1e-4)


def test_a_decision_is_not_changed() -> None:
    class Image:
        savings = np.array([[0, 1]])

    apart = SizesApart(Image())  # type: ignore[arg-type]
    work = np.array([100_000])
    large, little = np.array([100_000, 190_000]), np.array([100_000, 10_000])
    apart.check((1,), little, work)
    with pytest.raises(SpecialisationPays) as found:
        apart.check((2,), large, work)
    assert found.value.symbols == (2,)
    apart.take((2,))
    apart.check((2,), large, work)
    apart.leave((3,))
    for number in range(1000):
        apart.take((number + 10,))
    apart.check((2,), large, work)
    with pytest.raises(SpecialisationPays):
        apart.check((3,), little, work)
