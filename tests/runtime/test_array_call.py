"""Runs that are a single call from Python: the same results as the long way, whatever is fed, and nothing kept or lost."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from model_text import model
from sardonyx import errors
from sardonyx.runtime.executable import Executable

F32 = np.float32
ENOUGH = 12  # runs until there is a call
TWO = "(float[N,4] x, float[M,N] w) => (float[M,4] y, float[N,4] z) { t = Relu(x) y = MatMul(w, t) z = Softmax(x) }"
GATHER = "(float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }"
SUM = "(float[N] x, float[N] b) => (float[N] y) { y = Add(x, b) }"
LABELS = "(float[N,3] x) => (int64[N,1] y, float[N,3] s) { y = ArgMax <axis = 1> (x) s = Softmax(x) }"


def opened(text: str) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 1
    return sardonyx.InferenceSession(model(text, 13), options)


def program_of(session: sardonyx.InferenceSession) -> Executable:
    found = session._opened.program.short_program(session._opened.output_names)
    assert found is not None
    return found


def warm(session: sardonyx.InferenceSession, feeds: dict[str, Any]) -> list[Any]:
    for _ in range(ENOUGH):
        results = session.run(None, feeds)
    assert program_of(session)._call is not None
    return results


def feeds_of(n: int, m: int, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {"x": random.normal(size=(n, 4)).astype(F32), "w": random.normal(size=(m, n)).astype(F32)}


def expected(feeds: dict[str, Any]) -> list[Any]:
    exponentials = np.exp(feeds["x"] - feeds["x"].max(1, keepdims=True))
    return [feeds["w"] @ np.maximum(feeds["x"], 0), exponentials / exponentials.sum(1, keepdims=True)]


def assert_right(results: list[Any], feeds: dict[str, Any]) -> None:
    for result, wanted in zip(results, expected(feeds), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=6), st.integers(1, 20))
def test_any_order_of_shapes_has_the_results_of_the_long_way(sizes: list[tuple[int, int]], repeats: int) -> None:
    session = opened(TWO)
    for n, m in sizes:
        for seed in range(repeats):
            feeds = feeds_of(n, m, seed)
            if n:
                assert_right(session.run(None, feeds), feeds)
            else:
                assert [result.shape for result in session.run(None, feeds)] == [(m, 4), (0, 4)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.uint16, np.bool_])
def test_results_have_the_types_of_the_model(dtype: Any) -> None:
    name = {np.float32: "float", np.float64: "double", np.bool_: "bool"}.get(dtype, np.dtype(dtype).name)
    session = opened(f"({name}[N,M] x) => ({name}[M,N] y) {{ y = Transpose(x) }}")
    x = np.arange(6).reshape(2, 3).astype(dtype)
    [y] = warm(session, {"x": x})
    np.testing.assert_array_equal(y, x.T)
    assert y.dtype == dtype
    assert y.flags.carray


def test_other_arrays_than_before_take_the_long_way() -> None:
    session = opened(TWO)
    feeds = feeds_of(3, 2)
    warm(session, feeds)
    x = feeds["x"]

    class Own(np.ndarray[Any, Any]):
        pass

    others = [
        np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], x.view(Own), x.tolist(), x.astype(x.dtype.newbyteorder(">")),
        sardonyx.OrtValue.ortvalue_from_numpy(x),
    ]  # fmt: skip
    for other in others:
        assert_right(session.run(None, {**feeds, "x": other}), feeds)
    assert_right(session.run(None, feeds), feeds)


def test_arrays_whose_type_is_another_object_take_the_short_way() -> None:
    session = opened(TWO)
    feeds = feeds_of(3, 2)
    warm(session, feeds)
    unpickled = pickle.loads(pickle.dumps(feeds))
    assert unpickled["x"].dtype is not feeds["x"].dtype
    call = program_of(session)._call
    assert call is not None
    found = call.run(unpickled)
    assert found is not None
    assert_right(found, feeds)
    swapped = {**feeds, "x": feeds["x"].astype(">f4")}
    assert call.run(swapped) is None
    assert call.run({**feeds, "x": feeds["x"].view(np.int32)}) is None
    assert call.run({**feeds, "x": feeds["x"].view("V4")}) is None


def test_bad_feeds_are_refused_as_on_the_long_way() -> None:
    session = opened(TWO)
    feeds = feeds_of(3, 2)
    warm(session, feeds)
    with pytest.raises(errors.InvalidArgument, match=r"Required inputs \(\['w'\]\) are missing"):
        session.run(None, {"x": feeds["x"]})
    with pytest.raises(errors.InvalidArgument, match="Invalid input name: v"):
        session.run(None, {**feeds, "v": feeds["x"]})
    with pytest.raises(errors.InvalidArgument, match="are missing"):
        session.run(None, {"x": feeds["x"], "v": feeds["x"]})
    with pytest.raises(errors.InvalidArgument, match="Unexpected input data type"):
        session.run(None, {**feeds, "x": feeds["x"].astype(np.float64)})
    with pytest.raises(errors.InvalidArgument, match="Invalid rank"):
        session.run(None, {**feeds, "x": feeds["x"][0]})
    with pytest.raises(TypeError):
        session.run(None, [feeds["x"]])  # type: ignore[arg-type]
    assert_right(session.run(None, feeds), feeds)


def test_results_are_new_arrays_in_a_new_list() -> None:
    session = opened(TWO)
    feeds = feeds_of(3, 2)
    warm(session, feeds)
    first, second = session.run(None, feeds), session.run(None, feeds)
    assert first is not second
    for one, other in zip(first, second, strict=True):
        assert one.flags.owndata
        assert one.flags.writeable
        assert not np.shares_memory(one, other)


def test_bad_data_is_told_and_later_runs_are_right() -> None:
    session = opened(GATHER)
    x = np.arange(5, dtype=F32)
    good, bad = np.array([4, 0, -1]), np.array([4, 5, 0])
    warm(session, {"x": x, "i": good})
    for _ in range(3):
        with pytest.raises(errors.BadNodeInput, match="5"):
            session.run(None, {"x": x, "i": bad})
        np.testing.assert_array_equal(session.run(None, {"x": x, "i": good})[0], [4, 0, 4])


def test_keys_may_run_any_code_when_they_are_compared() -> None:
    session = opened(SUM)
    feeds: dict[Any, Any] = {"x": np.ones(3, F32), "b": np.ones(3, F32)}
    warm(session, feeds)

    class Key:
        def __init__(self, act: Any) -> None:
            self._act = act

        def __hash__(self) -> int:
            return hash("b")

        def __eq__(self, other: object) -> bool:
            return bool(self._act(other))

    def again(other: object) -> bool:
        session.run(None, {"x": np.ones(3, F32), "b": np.ones(3, F32)})
        gc.collect()
        return other == "b"

    def emptied(other: object) -> bool:
        mapping.clear()
        return False

    mapping: dict[Any, Any] = {"x": np.full(3, 2, F32), Key(again): np.full(3, 5, F32)}
    np.testing.assert_array_equal(program_of(session).run(mapping), [np.full(3, 7)])
    mapping = {"x": np.full(3, 2, F32), Key(emptied): np.full(3, 5, F32)}
    assert program_of(session).run(mapping) is None
    mapping = {"x": np.full(3, 2, F32), Key(lambda other: 1 // 0): np.full(3, 5, F32)}
    with pytest.raises(ZeroDivisionError):
        program_of(session).run(mapping)
    np.testing.assert_array_equal(session.run(None, feeds)[0], np.full(3, 2))


def test_nothing_is_kept_and_nothing_is_lost() -> None:
    session = opened(GATHER)
    x, good, bad = np.arange(5, dtype=F32), np.array([1, 2]), np.array([1, 9])
    warm(session, {"x": x, "i": good})
    call = program_of(session)._call
    assert call is not None
    counted = [x, good, bad, x.dtype, good.dtype, np.ndarray, "x"]
    missing, other = {"x": x, "j": good}, {"x": x, "i": x}
    before = [sys.getrefcount(each) for each in counted]
    for _ in range(200):
        assert call.run({"x": x, "i": good}) is not None
        assert call.run({"x": x, "i": bad}) is None  # bad data
        assert call.run(missing) is None
        assert call.run(other) is None
        assert call.run({"x": x}) is None
        assert call.run([]) is None
        assert call.run() is None
        assert call.run({}, x) is None
    after = [sys.getrefcount(each) for each in counted]
    assert all(abs(one - two) < 20 for one, two in zip(before, after)), (before, after)
    [y] = session.run(None, {"x": x, "i": good})
    assert sys.getrefcount(y) == 2


def test_a_program_ends_with_its_session() -> None:
    session = opened(SUM)
    warm(session, {"x": np.ones(3, F32), "b": np.ones(3, F32)})
    call = program_of(session)._call
    assert call is not None
    gc.collect()
    gc.disable()
    try:
        counted = sys.getrefcount(call)
        del session
        assert sys.getrefcount(call) == counted - 1  # no cycle keeps the program
    finally:
        gc.enable()


def test_threads_that_meet_have_their_own_results() -> None:
    session = opened(TWO)
    sets = [feeds_of(30, 20, seed) for seed in range(4)]
    warm(session, sets[0])
    wanted = [session.run(None, feeds) for feeds in sets]
    wrong: list[Any] = []

    def work(number: int) -> None:
        for _ in range(300):
            results = session.run(None, sets[number])
            if not all(np.array_equal(one, two) for one, two in zip(results, wanted[number], strict=True)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("names", [["y", "s"], ["s", "y"], ["s"], ["y"], ("s",), ["s", "s"]])
def test_named_outputs_are_what_was_asked_for(names: Any) -> None:
    session = opened(LABELS)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(F32)
    by_name = dict(zip("ys", session.run(None, {"x": x})))
    for _ in range(ENOUGH):
        results = session.run(names, {"x": x})
        assert len(results) == len(names)
        for name, result in zip(names, results):
            np.testing.assert_allclose(result, by_name[name], rtol=1e-6)
    for bad, error in ((["q"], errors.InvalidArgument), ("y", TypeError), ([1], TypeError)):
        with pytest.raises(error):
            session.run(bad, {"x": x})  # type: ignore[arg-type]


def test_values_in_are_values_out() -> None:
    session = opened(TWO)
    feeds = feeds_of(3, 2)
    values = {name: sardonyx.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
    for names in (None, ["y", "z"], ["z", "y"]):
        for _ in range(ENOUGH):
            results = session.run_with_ort_values(names, values)
            arrays = [value.numpy() for value in results]
            assert_right(arrays if names != ["z", "y"] else arrays[::-1], feeds)
            assert results[0].data_type() == "tensor(float)"
    with pytest.raises(TypeError, match="expected an OrtValue"):
        session.run_with_ort_values(None, {**values, "x": feeds["x"]})


def bound(session: sardonyx.InferenceSession, feeds: dict[str, Any]) -> tuple[sardonyx.IOBinding, list[Any]]:
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    targets = [np.full_like(each, 99) for each in expected(feeds)]
    for name, target in zip("yz", targets):
        binding.bind_ortvalue_output(name, sardonyx.OrtValue.ortvalue_from_numpy(target))
    return binding, targets


def test_bound_runs_read_and_write_what_is_bound() -> None:
    session = opened(TWO)
    feeds = feeds_of(3, 2)
    binding, targets = bound(session, feeds)
    for seed in range(ENOUGH):
        feeds["x"][...] = feeds_of(3, 2, seed)["x"]
        for target in targets:
            target[...] = 99
        session.run_with_iobinding(binding)
        assert_right(targets, feeds)
        assert all(value.numpy() is target for value, target in zip(binding.get_outputs(), targets, strict=True))
    assert binding._again is not None


def test_bound_runs_whose_outputs_are_made_give_new_ones() -> None:
    session = opened(TWO)
    feeds = feeds_of(3, 2)
    binding, _ = bound(session, feeds)
    binding.bind_output("y")
    binding.bind_output("z")
    kept = []
    for seed in range(ENOUGH):
        feeds["x"][...] = feeds_of(3, 2, seed)["x"]
        session.run_with_iobinding(binding)
        kept.append(binding.copy_outputs_to_cpu())
        assert_right([value.numpy() for value in binding.get_outputs()], feeds)
    assert binding._again is not None
    assert_right(kept[0], {**feeds, "x": feeds_of(3, 2, 0)["x"]})


def test_what_is_bound_later_counts() -> None:
    session = opened(TWO)
    feeds = feeds_of(3, 2)
    binding, targets = bound(session, feeds)
    for _ in range(ENOUGH):
        session.run_with_iobinding(binding)
    other = feeds_of(5, 2, 9)
    for name, array in other.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("z")
    for _ in range(ENOUGH):
        session.run_with_iobinding(binding)
        assert_right([value.numpy() for value in binding.get_outputs()], other)
    binding.clear_binding_inputs()
    with pytest.raises(errors.Fail, match="are missing"):
        session.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    with pytest.raises(errors.Fail, match="At least one output"):
        session.run_with_iobinding(binding)
    assert targets[0].shape == (2, 4)


def test_arrays_that_change_under_a_binding_are_looked_at_again() -> None:
    session = opened(TWO)
    feeds = feeds_of(4, 2)
    binding, targets = bound(session, feeds)
    for _ in range(ENOUGH):
        session.run_with_iobinding(binding)
    assert binding._again is not None
    targets[0].flags.writeable = False
    with pytest.raises(errors.Fail, match="read-only"):
        session.run_with_iobinding(binding)
    targets[0].flags.writeable = True
    for _ in range(ENOUGH):
        session.run_with_iobinding(binding)
    assert binding._again is not None
    feeds["x"].resize((400, 4), refcheck=False)  # it lies elsewhere now
    with pytest.raises(errors.Fail):
        session.run_with_iobinding(binding)
    feeds["x"].resize((4, 4), refcheck=False)
    session.run_with_iobinding(binding)
    assert_right(targets, feeds)


def test_targets_in_the_memory_of_inputs_are_written_when_those_were_read() -> None:
    session = opened(
        "(float[N] x) => (float[N] y, float[N] z) { y = Neg(x) axis = Constant <value_int = 0> () z = CumSum(x, axis) }"
    )
    x = np.arange(6, dtype=F32)
    binding = session.io_binding()
    value = sardonyx.OrtValue.ortvalue_from_numpy(x)
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", value)
    binding.bind_output("z")
    for run in range(ENOUGH):
        before = x.copy()
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(x, -before)
        np.testing.assert_allclose(binding.get_outputs()[1].numpy(), np.cumsum(before), err_msg=str(run))
