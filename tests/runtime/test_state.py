"""State buffers: read and written in place, kept from run to run, shared by programs."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sardonyx import dtypes, errors
from sardonyx.compile.assemble import library
from sardonyx.dtypes import DType
from sardonyx.formats.program.read import ProgramCode, ProgramFile
from sardonyx.formats.program.write import Record, write
from sardonyx.ir.dims import Dim, symbol
from sardonyx.kernel.expr import load
from sardonyx.lower.loop_builder import loop_step
from sardonyx.plan.native import image_of, plan_native
from sardonyx.program.steps import Buffer, Growth, KernelStep, Lowered, State, Storage, View, whole
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.native_core import NativeCore
from sardonyx.runtime.pool import shared_pool
from sardonyx.runtime.state import StatefulProgram, StateSet

F32 = np.float32


def state(identity: str, size: Dim, growth: Growth = Growth.FIXED, dtype: DType = dtypes.FLOAT32) -> Buffer:
    return Buffer(Storage.STATE, dtype, size, identity, state=State(identity, growth))


def fed(name: str, shape: Sequence[Dim]) -> View:
    size: Dim = 1
    for each in shape:
        size = size * each
    return whole(Buffer(Storage.INPUT, dtypes.FLOAT32, size, name), shape)


def given(name: str, shape: Sequence[Dim]) -> View:
    made = fed(name, shape)
    made.buffer.storage = Storage.OUTPUT
    return made


def loop(views: Sequence[View], target: View, expression: Any) -> KernelStep:
    """A step that computes an expression of views, all of one shape."""
    types = [view.buffer.dtype.name for view in (*views, target)]
    machine = library(None).target
    return loop_step(target.shape, [*views, target], types, [(len(views), expression)], target=machine, label="loop", nodes=())


def core_of(steps: Sequence[KernelStep], inputs: Sequence[View], outputs: Sequence[View], workers: int = 1) -> NativeCore:
    plan = plan_native(Lowered(list(steps), inputs=list(inputs), outputs=list(outputs)))
    kernels = library(None)
    addresses = [kernels.address(step.kernel) for step in plan.steps]
    return NativeCore(image_of(plan), addresses, shared_pool(kernels.driver, workers, True, kernels.target.runtime), dict)


def accumulating(identity: str = "total", size: int = 40, workers: int = 1) -> StatefulProgram:
    """state += x; y = state"""
    x, y, held = fed("x", (size,)), given("y", (size,)), whole(state(identity, size), (size,))
    sums = load(0, "f32") + load(1, "f32")
    return StatefulProgram(core_of([loop([held, x], held, sums), loop([held], y, load(0, "f32"))], [x], [y], workers))


def scaling(identity: str = "total", size: int = 40) -> StatefulProgram:
    """state *= x; y = state"""
    x, y, held = fed("x", (size,)), given("y", (size,)), whole(state(identity, size), (size,))
    return StatefulProgram(
        core_of([loop([held, x], held, load(0, "f32") * load(1, "f32")), loop([held], y, load(0, "f32"))], [x], [y])
    )


def appending(width: int = 8) -> StatefulProgram:
    """cache[t] = token; y = the whole cache, where t + 1 is the length of `steps`: as keys and values are kept."""
    total = symbol("t")
    token, steps, y = fed("token", (width,)), fed("steps", (total,)), given("y", (total, width))
    cache = state("cache", total * width, Growth.GEOMETRIC)
    last = View(cache, (width,), (1,), (total - 1) * width)
    return StatefulProgram(
        core_of(
            [loop([token], last, load(0, "f32")), loop([whole(cache, (total, width))], y, load(0, "f32"))], [token, steps], [y]
        )
    )


def test_runs_go_on_where_the_last_one_stopped() -> None:
    program, states = accumulating(), StateSet()
    x = np.arange(40, dtype=F32)
    for iteration in range(1, 5):
        np.testing.assert_array_equal(program.run([x], states)[0], x * iteration)
    np.testing.assert_array_equal(states.array("total", (40,)), x * 4)


def test_two_programs_share_a_state() -> None:
    adding, multiplying, states = accumulating(), scaling(), StateSet()
    ones = np.ones(40, F32)
    adding.run([ones * 3], states)
    np.testing.assert_array_equal(multiplying.run([ones * 5], states)[0], ones * 15)
    np.testing.assert_array_equal(adding.run([ones], states)[0], ones * 16)


def test_one_program_runs_on_several_sets_of_states() -> None:
    program, first, second = accumulating(), StateSet(), StateSet()
    ones = np.ones(40, F32)
    program.run([ones], first)
    np.testing.assert_array_equal(program.run([ones * 7], second)[0], ones * 7)
    np.testing.assert_array_equal(program.run([ones], first)[0], ones * 2)


def test_a_state_begins_with_zeros_or_with_what_was_written() -> None:
    program, states = accumulating(), StateSet()
    states.write("total", np.full((5, 8), 2, F32))
    np.testing.assert_array_equal(program.run([np.ones(40, F32)], states)[0], np.full(40, 3, F32))
    states.drop("total")
    np.testing.assert_array_equal(program.run([np.ones(40, F32)], states)[0], np.ones(40, F32))
    states.array("total", (40,))[...] = 9  # the memory itself
    np.testing.assert_array_equal(program.run([np.ones(40, F32)], states)[0], np.full(40, 10, F32))


def test_appending_keeps_what_is_there_and_moves_it_seldom() -> None:
    program, states = appending(), StateSet()
    expected: list[Any] = []
    places = set()
    for step in range(200):
        token = np.full(8, step, F32)
        expected.append(token)
        (found,) = program.run([token, np.zeros(step + 1, F32)], states)
        np.testing.assert_array_equal(found, np.array(expected))
        places.add(states.array("cache", (1,)).ctypes.data)
    assert len(places) <= 16
    assert states.nbytes("cache") <= 200 * 8 * 4 * 1.5 + 64


def test_a_program_finds_a_state_that_another_has_moved() -> None:
    """Same shapes as in its last run, but the memory is elsewhere now."""
    program, states = appending(), StateSet()
    program.run([np.ones(8, F32), np.zeros(1, F32)], states)
    other = appending()
    for step in range(1, 50):
        other.run([np.full(8, step, F32), np.zeros(step + 1, F32)], states)
    (found,) = program.run([np.full(8, 7, F32), np.zeros(1, F32)], states)
    assert found.tolist() == [[7.0] * 8]
    np.testing.assert_array_equal(states.array("cache", (50, 8))[:, 0], [7, *range(1, 50)])


def test_a_fixed_state_does_not_grow() -> None:
    total = symbol("t")
    x, y, held = fed("x", (total,)), given("y", (total,)), state("total", total)
    program = StatefulProgram(
        core_of([loop([x], whole(held, (total,)), load(0, "f32")), loop([whole(held, (total,))], y, load(0, "f32"))], [x], [y])
    )
    states = StateSet()
    program.run([np.ones(8, F32)], states)
    with pytest.raises(errors.InvalidArgument, match=r"state 'total' has 32 bytes, this run needs 36"):
        program.run([np.ones(9, F32)], states)
    assert program.run([np.ones(4, F32)], states)[0].tolist() == [1] * 4


def test_bad_uses_are_named() -> None:
    states = StateSet()
    states.write("total", np.zeros(40, np.int32))
    with pytest.raises(errors.InvalidArgument, match="state 'total' holds i32, the program works on f32"):
        accumulating().run([np.ones(40, F32)], states)
    with pytest.raises(errors.InvalidArgument, match="there is no state 'other'"):
        states.array("other", (1,))
    with pytest.raises(errors.InvalidArgument, match="has 160 bytes"):
        states.array("total", (41,))
    with pytest.raises(errors.EngineError, match="keeps 'total' from run to run"):
        Executable(accumulating()._core).run_arrays([np.ones(40, F32)])


def test_runs_on_one_set_follow_one_another() -> None:
    """Many threads add; nothing is lost, on any number of workers."""
    size = 20_000
    program, states = accumulating(size=size, workers=2), StateSet()
    ones = np.ones(size, F32)

    def add() -> None:
        for _ in range(25):
            program.run([ones], states)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(states.array("total", (size,)), ones * 100)


def test_states_and_programs_do_not_keep_each_other() -> None:
    kept_states, kept_program = StateSet(), accumulating()
    states, program = StateSet(), accumulating()
    program.run([np.ones(40, F32)], kept_states)
    kept_program.run([np.ones(40, F32)], states)
    ended = weakref.ref(program._core), weakref.ref(states)
    del program, states
    gc.collect()
    assert [each() for each in ended] == [None, None]


def test_an_image_names_its_states() -> None:
    image = appending()._core.image
    code = ProgramCode(image, [b"code"], [0] * len(image.steps), b"driver")
    program = ProgramFile(memoryview(b"".join(map(bytes, write("key", Record(code, 1), {}))))).program
    assert program is not None
    for each in (image, program.image):
        assert each.states == (("cache", "f32"),)
        assert each.state[0, 2] == Growth.GEOMETRIC.value
        assert each.sizes(6)[each.state[0, 1]] == 6 * 8 * 4
