"""What decides the code of attention kernels besides their specification: facts of the machine."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sardonyx.codegen.emit import kernel_ir
from sardonyx.kernel.attention.attention import AttentionKernel
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import load
from sardonyx.kernel.loops import Operand
from targets import described

MASKED = AttentionKernel(
    type="f32",
    packed=True,
    score=accumulator("f32") + load(0, "f32"),
    operands=(Operand("f32", "unit"),),
    banded=False,
    lengths="",
    more=0,
    has_first_positions=False,
    queries=None,
    columns=None,
    keys=None,
)


@pytest.mark.parametrize(("lanes", "whole", "cache"), [(16, False, 2), (16, True, 1), (8, True, 2)])
def test_rows_of_masks_are_fetched_to_the_first_cache_where_tiles_take_half_the_time(lanes: int, whole: bool, cache: int) -> None:
    ir = kernel_ir(MASKED, replace(described(lanes), has_whole_vectors=whole))
    fetched = re.findall(r"call void @llvm\.prefetch\.p0\(ptr %\S+, i32 0, i32 (\d), i32 1\)", ir)
    assert set(fetched) == {str(4 - cache)}
