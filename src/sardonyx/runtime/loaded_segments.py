"""Programs out of files that come back to Python. Nothing of the compiler is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.codegen.loader import ENTRY, load_all
from sardonyx.formats.program.container import FormatError
from sardonyx.formats.program.read import ProgramFile
from sardonyx.program.segments import BoundSegments
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.native_core import NativeCore
from sardonyx.runtime.pool import Pool
from sardonyx.runtime.segment_runner import SegmentRunner, executable_of


def segmented_program(file: ProgramFile, pool: Pool, kind: str) -> Executable:
    """The program of a file, ready to run; FormatError if something in it does not fit together."""
    code = file.program
    assert code is not None
    if file.references:
        raise FormatError("constants that lie elsewhere")
    loaded = load_all(code.objects, kind)
    entries = [loaded[number].functions[ENTRY] for number in code.object_of_step]
    core = NativeCore(code.image, entries, pool, lambda: file.arrays)
    if code.segments is None:
        made = Executable(core)
    else:
        plan = code.segments.plan
        calls: Sequence[Any] = ()
        if code.segments.calls:
            from sardonyx.runtime.loaded_calls import loaded_call  # lazy: sizes alone need no operator

            calls = [loaded_call(each, lambda nested: segmented_program(nested, pool, kind)) for each in code.segments.calls]
        bound = BoundSegments(code.image, plan)
        made = executable_of(SegmentRunner(core, plan, calls, code.segments.constants.__getitem__, bound))
    made.keeps = loaded  # code that lies in memory of its own
    return made
