"""Keys of blocked kernels: equal for equal code, different for different code."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from sardonyx.kernel.conv.conv import ConvKernel
from sardonyx.kernel.conv.layout import LayoutKernel, ShiftKernel, SurroundKernel
from sardonyx.kernel.conv.window import GlobalPoolKernel, NarrowKernel, Row, WindowKernel
from sardonyx.kernel.epilogue import Epilogue, accumulator
from sardonyx.kernel.expr import clamp
from sardonyx.kernel.loops import Operand
from sardonyx.kernel.sampling.resize import ResizeKernel

STORE = Epilogue((Operand("f32", "unit"),), ((0, accumulator("f32")),))
RELU = Epilogue((Operand("f32", "unit"),), ((0, clamp(accumulator("f32"), 0.0, None)),))
CONV = ConvKernel(16, 1, 1, 16, 14, 0, 1, 16, 16, 0, False, False, True, 0, STORE)


def test_every_field_of_a_convolution_is_part_of_its_key() -> None:
    for field in fields(ConvKernel):
        value = getattr(CONV, field.name)
        other: Any = RELU if field.name == "epilogue" else (not value) if isinstance(value, bool) else value + 1
        assert replace(CONV, **{field.name: other}).key != CONV.key, field.name
    assert replace(CONV).key == CONV.key


def test_every_field_of_a_window_is_part_of_its_key() -> None:
    kernel = WindowKernel("depthwise", 16, 1, 7, 3, 1, 1, Row(14, 14, 1, 16), False, STORE)
    others: dict[str, Any] = {
        "kind": "max", "block": 8, "group": 2, "pixels": 5, "taps": 5, "stride": 2, "spread": 2, "row": None, "padded": True,
        "epilogue": RELU,
    }  # fmt: skip
    assert set(others) == {field.name for field in fields(WindowKernel)}
    keys = {replace(kernel, **{name: other}).key for name, other in others.items()}
    assert len(keys | {kernel.key}) == len(others) + 1


def test_every_field_of_a_narrow_convolution_is_part_of_its_key() -> None:
    kernel = NarrowKernel(16, 1, 0, 7, 3, 1, 1, Row(14, 14, 1, 16), STORE)
    others: dict[str, Any] = {
        "block": 8, "outputs": 2, "tail": 4, "pixels": 5, "taps": 5, "stride": 2, "spread": 2, "row": None, "epilogue": RELU,
    }  # fmt: skip
    assert set(others) == {field.name for field in fields(NarrowKernel)}
    keys = {replace(kernel, **{name: other}).key for name, other in others.items()}
    assert len(keys | {kernel.key}) == len(others) + 1


def test_keys_tell_kinds_apart() -> None:
    keys = {
        GlobalPoolKernel("max", 16, STORE).key,
        GlobalPoolKernel("average", 16, STORE).key,
        ResizeKernel(16, True, None, STORE).key,
        ResizeKernel(16, False, None, STORE).key,
        ResizeKernel(16, False, (2, 2), STORE).key,
        LayoutKernel("to", 16, 16).key,
        LayoutKernel("from", 16, 16).key,
        LayoutKernel("to", 16, 3).key,
        SurroundKernel().key,
        ShiftKernel(16, 8, 16).key,
        ShiftKernel(16, 0, 16).key,
        ShiftKernel(16, 8, 4).key,
    }
    assert len(keys) == 12
