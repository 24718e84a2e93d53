"""Compiled programs as program files hold them: image, machine code, and what they do in Python, bodies included."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from sardonyx.codegen.library import KernelLibrary
from sardonyx.compile.assemble import ProgramOrigin
from sardonyx.formats.program.read import ProgramCode
from sardonyx.formats.program.write import NestedCode
from sardonyx.plan.host_plan import constant_array
from sardonyx.program.calls import (
    NATIVE_LOOP,
    NO_LOOP,
    SLOW_LOOP,
    UNSETTLED_LOOP,
    BodyCode,
    CallCode,
    LoopCode,
    SegmentCode,
)
from sardonyx.program.constants import Derived
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.host_calls import HostCall, LoopCall, calls_of
from sardonyx.runtime.segment_runner import SegmentRunner

Array = np.ndarray[Any, Any]


def program_code(program: Executable, kernels: KernelLibrary) -> ProgramCode:
    """A program with the driver it runs on."""
    return _code(program, kernels, kernels.driver_object())


def _code(program: Executable, kernels: KernelLibrary, driver: bytes) -> ProgramCode:
    source: ProgramOrigin = program.source
    objects = {step.kernel.key: kernels.object_of(step.kernel) for step in source.plan.steps}
    positions = {key: number for number, key in enumerate(objects)}
    numbers = [positions[step.kernel.key] for step in source.plan.steps]
    segments = None
    if not (program.is_one_call and program.takes_arrays):
        runner = program.segments
        assert isinstance(runner, SegmentRunner)
        calls = [_call(call, kernels) for call in runner.calls if isinstance(call, HostCall)]
        segments = SegmentCode(runner.plan, calls, [constant_array(value) for value in source.constants])
    return ProgramCode(program.core.image, list(objects.values()), numbers, driver, segments)


def _nested(program: Executable | None, kernels: KernelLibrary) -> Any:
    """The program of a body; None if it has not run yet."""
    return None if program is None else NestedCode(_code(program, kernels, b""), program.constants)


def _call(call: HostCall, kernels: KernelLibrary) -> CallCode:
    bodies = {name: BodyCode(body.node, _nested(body.made, kernels)) for name, body in call.bodies.items()}
    if not isinstance(call, LoopCall):
        return CallCode(call.node, bodies, NO_LOOP)
    if call.loop is None:
        return CallCode(call.node, bodies, SLOW_LOOP if call.is_settled else UNSETTLED_LOOP)
    loop = LoopCode(call.loop.signature, call.loop.captures, _nested(call.loop.program, kernels))
    return CallCode(call.node, bodies, NATIVE_LOOP, loop)


def packed_constants(program: Executable) -> dict[Derived, Callable[[], Array]]:
    """The packed constants of a program and of all its bodies that have programs, and how their arrays are found."""
    found: dict[Derived, Callable[[], Array]] = {}
    source: ProgramOrigin = program.source
    for number, buffer in enumerate(source.plan.buffers):
        if isinstance(buffer.constant, Derived) and buffer.constant.sources:
            found.setdefault(buffer.constant, partial(_array_of, program, number))
    for call in calls_of(program):
        if isinstance(call, HostCall):
            inner = [body.made for body in call.bodies.values()]
            if isinstance(call, LoopCall) and call.loop is not None:
                inner.append(call.loop.program)
            for each in inner:
                if each is not None:
                    found = {**packed_constants(each), **found}
    return found


def _array_of(program: Executable, number: int) -> Array:
    return program.constants[number]


def constant_bytes(code: ProgramCode) -> int:
    """How many bytes of constants a program has beside those of native code."""
    if code.segments is None:
        return 0
    total: int = sum(array.nbytes for array in code.segments.constants)
    for call in code.segments.calls:
        for nested in (*(body.program for body in call.bodies.values()), call.loop and call.loop.program):
            if nested is not None:
                total += sum(array.nbytes for array in nested.arrays.values()) + constant_bytes(nested.code)
    return total
