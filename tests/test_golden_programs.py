"""Small graphs through all stages, as text: groups, steps, plan and kernels' IR, for a described machine of 8 lanes.

tests/golden_programs/<case>.txt holds a graph, `=>`, and what becomes of it; `pytest tests --update-golden`
writes the second part anew, and the IR into <case>.ll. What changed is then for a reader to judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pass_support import model_of
from sardonyx.codegen.emit import kernel_ir
from sardonyx.compile_options import CompileOptions
from sardonyx.lower.groups import Grouping, form_groups
from sardonyx.lower.lower_graph import lower_graph
from sardonyx.lower.shape_values import KnownValues
from sardonyx.passes.pipeline import run_passes
from sardonyx.plan.native import NativePlan, plan_native
from sardonyx.program.steps import Address, KernelStep, Lowered
from targets import described

CASES = sorted((Path(__file__).parent / "golden_programs").glob("*.txt"))
TARGET = described(8)


def _entry(value: Any) -> str:
    if isinstance(value, Address):
        buffer = value.buffer
        return f"{buffer.storage.value}:{buffer.label or '-'}" + (f"+{value.offset}" if value.offset != 0 else "")
    return str(value)


def _groups(grouping: Grouping) -> Iterator[str]:
    for group in grouping.groups:
        yield f"  {group.index} {group.kind}: {', '.join(node.outputs[0].name for node in group.nodes)} ({group.label})"


def _steps(lowered: Lowered) -> Iterator[str]:
    for number, step in enumerate(lowered.steps):
        assert isinstance(step, KernelStep)
        yield f"  {number} {step.label}, {step.units} units: {type(step.kernel).__name__}"
        record, at = step.kernel.arguments, 0  # type: ignore[attr-defined]
        for field in record.fields:
            entries = step.arguments[at : at + field.entries]
            at += field.entries
            yield f"      {field.name} = {', '.join(map(_entry, entries))}"


def _plan(plan: NativePlan) -> Iterator[str]:
    yield f"  {len(plan.steps)} kernel steps in {len(plan.segments)} segment(s), {plan.table_size} entries in the table"
    for number, (buffer, (first, last)) in enumerate(zip(plan.buffers, plan.lifetimes)):
        shared = f", in the memory of {plan.shared[number]}" if number in plan.shared else ""
        size = plan.dims[plan.sizes[number]]
        yield f"  {number} {buffer.storage.value} {buffer.label or '-'}: {size} bytes, steps {first} to {last}{shared}"


def texts(source: str) -> tuple[str, str]:
    """What becomes of a graph, and the IR of its kernels."""
    model = model_of(source)
    run_passes(model, CompileOptions(verify=True), TARGET)
    graph = model.graph
    known = KnownValues(graph.inputs, list(graph.nodes))
    grouping = form_groups(known.needed(list(graph.nodes), graph.outputs), graph.inputs, contents=known)
    lowered = lower_graph(graph, graph.outputs, grouping, TARGET, known)
    parts = {"groups": _groups(grouping), "steps": _steps(lowered), "plan": _plan(plan_native(lowered))}
    text = "".join(f"{name}\n" + "".join(f"{line}\n" for line in lines) for name, lines in parts.items())
    kernels = {step.kernel.key: step.kernel for step in lowered.steps if isinstance(step, KernelStep)}
    return text, "\n".join(f"; {key}\n{kernel_ir(kernel, TARGET)}" for key, kernel in kernels.items())


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_graph_becomes_what_the_golden_files_say(path: Path, request: pytest.FixtureRequest) -> None:
    source = path.read_text("utf-8").partition("\n=>\n")[0]
    text, code = texts(source)
    beside = path.with_suffix(".ll")
    if request.config.getoption("--update-golden"):
        path.write_text(f"{source}\n=>\n{text}", "utf-8")
        beside.write_text(code, "utf-8")
    assert path.read_text("utf-8") == f"{source}\n=>\n{text}"
    assert beside.read_text("utf-8") == code
