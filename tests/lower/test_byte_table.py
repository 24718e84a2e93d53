"""Tables of bytes: looked up as the definition says, on every target, and used for functions of one byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import guarded
from native_support import host_nodes, in_order, run_native
from sardonyx.compile.assemble import NativeSettings, compile_graph
from sardonyx.explanation import explain_model
from sardonyx.formats.onnx import to_bytes
from sardonyx.ir.graph import Model
from sardonyx.ir.tensor import Array
from sardonyx.ir.text import parse_graph
from sardonyx.ops.quant.byte_table import BYTE_TABLE
from session_agreement import NATIVE, REFERENCE, session
from targets import here_and_less, of_sessions

TARGETS = [target.name for target in here_and_less()]


def looked_up(x: Array, table: Array, target: str = "") -> Array:
    """What the native step gives for a table."""
    kind, result = ("i8" if array.dtype == np.int8 else "u8" for array in (x, table))
    numbers = ", ".join(map(str, table.view(np.uint8).tolist()))
    shape = ",".join(map(str, x.shape))
    text = f"""
graph main(x: {kind}[{shape}]) -> (y: {result}[{shape}]) {{
  y = sardonyx::ByteTable(x) {{signed = {int(result == "i8")}, table = [{numbers}]}} @1
}}
"""
    graph = parse_graph(text)
    compiled = compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=1, target=target))
    assert not host_nodes(compiled), list(compiled.grouping.refusals.values())
    return np.asarray(run_native(graph, compiled, {"x": guarded(x)})[0])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "result"), [("uint8", "int8"), ("int8", "uint8")])
def test_every_byte_is_found_on_every_target(target: str, kind: str, result: str) -> None:
    table: Array = np.random.default_rng(0).permutation(256).astype(np.uint8).view(result)
    x: Array = np.arange(256, dtype=np.uint8).view(kind)
    np.testing.assert_array_equal(looked_up(x, table, target), table)


@settings(max_examples=20)
@given(count=st.integers(0, 300), seed=st.integers(0, 1000))
def test_any_number_of_bytes_is_looked_up(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, x = (rng.integers(0, 256, size).astype(np.uint8) for size in (256, count))
    np.testing.assert_array_equal(looked_up(x, table), table[x])


def test_a_table_that_is_not_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="table has 3 numbers from 1 to 300, expected 256 bytes"):
        BYTE_TABLE.eval(np.zeros(1, np.uint8), table=[1, 2, 300], signed=0)


MODEL = """
graph main(x: u8[{size}]) -> (q: u8[{size}], r: i8[{size}], s: u8[{size}]) {{
  const xs: f32[] = 0.05
  const xz: u8[] = 128
  const ys: f32[] = 0.0039
  const yz: u8[] = 0
  const rs: f32[] = 0.1
  const rz: i8[] = 3
  s = com.microsoft::QLinearSigmoid(x, xs, xz, ys, yz) @1
  q = com.microsoft::QLinearMul(x, xs, xz, s, ys, yz, xs, xz) @1
  a = DequantizeLinear(x, xs, xz) @22
  b = HardSwish(a) @22
  r = QuantizeLinear(b, rs, rz) @22
}}
"""


def test_functions_of_bytes_are_exactly_what_numpy_makes_of_them() -> None:
    content = to_bytes(Model(parse_graph(MODEL.format(size=256)), opset_imports={"": 22, "com.microsoft": 1}))
    x = np.arange(256, dtype=np.uint8)
    found, expected = (session(content, providers=kind).run(None, {"x": x}) for kind in (NATIVE, REFERENCE))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    tables = [node for node in explain_model(content).nodes if node.operator.endswith("ByteTable")]
    one_by_one = 2 if of_sessions().lanes <= 8 else 0  # all but HardSwish, which takes a few instructions
    assert len(tables) == (3 if of_sessions().has_byte_permute else one_by_one)
