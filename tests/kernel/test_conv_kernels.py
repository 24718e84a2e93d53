"""Keys of blocked kernels: equal for equal code, different for different code."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from sardonyx.kernel.conv.conv import ConvKernel, CutTile
from sardonyx.kernel.conv.layout import LayoutKernel, ShiftKernel, SurroundKernel
from sardonyx.kernel.conv.window import GlobalPoolKernel, NarrowKernel, Row, WindowKernel
from sardonyx.kernel.epilogue import Epilogue, accumulator
from sardonyx.kernel.expr import clamp
from sardonyx.kernel.loops import Operand
from sardonyx.kernel.sampling.resize import ResizeKernel

STORE = Epilogue((Operand("f32", "unit"),), ((0, accumulator("f32")),))
RELU = Epilogue((Operand("f32", "unit"),), ((0, clamp(accumulator("f32"), 0.0, None)),))
CONV = ConvKernel(
    block=16,
    vectors=1,
    last_vectors=1,
    last_lanes=16,
    pixels=14,
    last_pixels=0,
    stride=1,
    column=16,
    run=16,
    run_tail=0,
    single_tap=False,
    borders=False,
    reads_past_rows=False,
    dense=True,
    banded=False,
    ahead=0,
    epilogue=STORE,
)


def test_every_field_of_a_convolution_is_part_of_its_key() -> None:
    for field in fields(ConvKernel):
        value = getattr(CONV, field.name)
        others: dict[str, Any] = {"epilogue": RELU, "cut": (CutTile(0, 14, 1, 17),)}
        other: Any = others.get(field.name) or ((not value) if isinstance(value, bool) else value + 1)
        assert replace(CONV, **{field.name: other}).key != CONV.key, field.name
    assert replace(CONV).key == CONV.key
    cut = CutTile(0, 14, 1, 17)
    for part in fields(CutTile):
        other = replace(cut, **{part.name: getattr(cut, part.name) + 1})
        assert replace(CONV, cut=(cut,)).key != replace(CONV, cut=(other,)).key, part.name


def test_every_field_of_a_window_is_part_of_its_key() -> None:
    kernel = WindowKernel(
        kind="depthwise",
        block=16,
        group=1,
        pixels=7,
        taps=3,
        stride=1,
        dilation=1,
        row_dilation=1,
        deep=False,
        row=Row(14, 14, 1, 16),
        padded=False,
        dense=True,
        epilogue=STORE,
    )
    others: dict[str, Any] = {
        "kind": "max", "block": 8, "group": 2, "pixels": 5, "taps": 5, "stride": 2, "dilation": 2, "row_dilation": 2,
        "deep": True, "row": None, "padded": True, "dense": False, "row_sums": True, "lane_by_lane": True, "written": 2,
        "epilogue": RELU,
    }  # fmt: skip
    assert set(others) == {field.name for field in fields(WindowKernel)}
    keys = {replace(kernel, **{name: other}).key for name, other in others.items()}
    assert len(keys | {kernel.key}) == len(others) + 1


def test_every_field_of_a_narrow_convolution_is_part_of_its_key() -> None:
    kernel = NarrowKernel(
        block=16,
        outputs=1,
        tail=0,
        pixels=7,
        taps=3,
        stride=1,
        dilation=1,
        row_dilation=1,
        deep=False,
        row=Row(14, 14, 1, 16),
        epilogue=STORE,
    )
    others: dict[str, Any] = {
        "block": 8, "outputs": 2, "tail": 4, "pixels": 5, "taps": 5, "stride": 2, "dilation": 2, "row_dilation": 2, "deep": True,
        "row": None, "epilogue": RELU,
    }  # fmt: skip
    assert set(others) == {field.name for field in fields(NarrowKernel)}
    keys = {replace(kernel, **{name: other}).key for name, other in others.items()}
    assert len(keys | {kernel.key}) == len(others) + 1


def test_keys_tell_kinds_apart() -> None:
    keys = {
        GlobalPoolKernel(kind="max", block=16, epilogue=STORE).key,
        GlobalPoolKernel(kind="average", block=16, epilogue=STORE).key,
        ResizeKernel(block=16, blend=True, factors=None, epilogue=STORE).key,
        ResizeKernel(block=16, blend=False, factors=None, epilogue=STORE).key,
        ResizeKernel(block=16, blend=False, factors=(2, 2), epilogue=STORE).key,
        LayoutKernel(direction="to", block=16, tail=16).key,
        LayoutKernel(direction="from", block=16, tail=16).key,
        LayoutKernel(direction="to", block=16, tail=3).key,
        SurroundKernel().key,
        ShiftKernel(block=16, shift=8, tail=16).key,
        ShiftKernel(block=16, shift=0, tail=16).key,
        ShiftKernel(block=16, shift=8, tail=4).key,
    }
    assert len(keys) == 12
