"""Floats as integers the way processors convert them: every width of vectors, with lanes that fit no integer among others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop_runner import Array, evaluate
from sardonyx.codegen.emit import kernel_ir
from sardonyx.codegen.llvm import assembly
from sardonyx.kernel.expr import Expr, load, truncated
from sardonyx.kernel.loops import LoopKernel, Operand
from sardonyx.target.target import Target
from targets import described, here_and_less

FLOATS = {"f32": np.float32, "f64": np.float64}
INTEGERS = {"i32": np.int32, "i64": np.int64, "u32": np.uint32, "u64": np.uint64}


def as_processor(x: Array, type: str) -> Array:
    """By the definition: exact whole numbers, one by one."""
    bits = 32 if type == "i32" else 64
    made = np.empty(x.size, INTEGERS[type])
    for at, value in enumerate(x.tolist()):
        whole = int(value) if np.isfinite(value) else None
        if type == "u64" and whole is not None and whole >= 1 << 63:
            made[at] = whole if whole < 1 << 64 else 0
            continue
        if type == "u64" and value == np.inf:
            made[at] = 0
            continue
        if whole is None or not -(1 << (bits - 1)) <= whole < 1 << (bits - 1):
            whole = -(1 << (bits - 1))
        made[at] = np.array(whole & 0xFFFFFFFFFFFFFFFF, np.uint64).astype(INTEGERS[type])
    return made


@pytest.mark.parametrize("target", here_and_less())
@pytest.mark.parametrize("type", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 30), rare=st.floats(0, 0.3))
def test_what_fits_is_cut_off_and_what_does_not_is_the_smallest(
    target: Target, type: str, source: str, seed: int, rare: float
) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 100))
    x = random.standard_normal(count) * 1000
    powers = np.ldexp(random.choice([-1.0, 1.0], count), random.integers(20, 70, count)) + random.integers(-2, 3, count) / 2
    special = random.choice([np.nan, np.inf, -np.inf, -(2.0**31), 2.0**31, -(2.0**31) - 0.5, 2.0**63, -(2.0**63)], count)
    x = np.where(random.random(count) < rare, np.where(random.random(count) < 0.5, powers, special), x).astype(FLOATS[source])

    def function(value: Expr) -> Expr:
        return truncated(value, type)

    found = evaluate(function, x, types=[source], out=type, target=target)
    np.testing.assert_array_equal(found, as_processor(x, type))


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("source", FLOATS)
def test_every_width_of_x86_has_an_instruction(lanes: int, source: str) -> None:
    operands = Operand(source, "unit"), Operand("i32", "unit")
    kernel = LoopKernel(axes=1, operands=operands, stores=((1, truncated(load(0, source), "i32")),))
    target = described(lanes)
    text = assembly(kernel_ir(kernel, target), target)
    assert f"cvtt{'ps' if source == 'f32' else 'pd'}2dq" in text
