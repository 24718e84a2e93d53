"""What programs out of files compute in Python: nodes by their operators' definitions, bodies and loops read when they run.

Nothing of the compiler is imported here: of the operators those that a program computes in Python, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from sardonyx import errors
from sardonyx.formats.program.container import FormatError
from sardonyx.formats.program.read import ProgramFile
from sardonyx.formats.program.read_segments import Nested, check_loop
from sardonyx.program.calls import NO_LOOP, BodyCode, CallCode, LoopCode
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.host_calls import Body, HostCall, NotInProgram, call_of
from sardonyx.runtime.native_loop import NativeLoop
from sardonyx.runtime.runs import RunControl

Load = Callable[[ProgramFile], Executable]


def loaded_call(code: CallCode, load: Load) -> HostCall:
    """A call, ready to run; `load` makes programs of those of its bodies."""
    bodies = {name: _body(body, load) for name, body in code.bodies.items()}
    try:
        return call_of(code.node, bodies, loop=None if code.loop_state == NO_LOOP else lambda: _loop(code, load))
    except errors.NotImplemented as error:
        raise FormatError(str(error)) from error


def _body(code: BodyCode, load: Load) -> Body:
    def refuse(captured: Sequence[Any], args: Sequence[Any], control: RunControl) -> NoReturn:
        raise NotInProgram(f"the sizes of body {code.node.name!r} do not fit its saved program")

    return Body(code.node, lambda: _nested(code.program, code.node.name, load), refuse)


def _nested(nested: Nested | None, name: str, load: Load) -> Executable:
    if nested is None:
        raise NotInProgram(f"body {name!r} had not run when the program was saved")
    try:
        return load(nested.read())
    except FormatError as error:
        raise NotInProgram(f"body {name!r} cannot be read: {error}") from error


def _loop(code: CallCode, load: Load) -> NativeLoop | None:
    loop: LoopCode | None = code.loop
    if loop is None:
        return None
    program = _nested(loop.program, code.node.label, load)
    try:
        check_loop(loop, program.core.image)
    except FormatError as error:
        raise NotInProgram(str(error)) from error
    return NativeLoop(program, loop.signature, loop.captures, code.node.label)
