"""The pipeline: levels, names that switch passes off, limits, reports, and that it is quick and harmless."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import onnx.parser
import pytest

from operation_counts import fastest_growing
from pass_support import assert_same, copy_of, evaluate, model_of, operators
from sardonyx import dtypes
from sardonyx.compile.compiler import compile_model
from sardonyx.compile_options import CompileOptions
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.errors import EngineError, InvalidArgument
from sardonyx.formats.onnx import load
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import Graph, Model
from sardonyx.ir.text import format_graph, parse_graph
from sardonyx.ir.types import TensorType
from sardonyx.lower import registry as lowering
from sardonyx.passes import pipeline
from sardonyx.passes.fold_constants import FoldConstants
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.pipeline import ALL, BASIC, EXTENDED, FOLDING_LIMIT_KEY, LAYOUT, Stage, run_passes, stages_for
from sardonyx.passes.protocol import Optimization, PassResult
from sardonyx.passes.rule_to_load import RuleToLoad
from targets import described

OFF = GraphOptimizationLevel.ORT_DISABLE_ALL
SILU = """graph main(x: f32[N,4]) -> (y: f32[N,4]) {
  const one: f32[] = 1.0
  a = Mul(x, one) @22
  s = Sigmoid(a) @22
  y = Mul(a, s) @22
}"""
CONSTANT = """graph main(x: f32[200,200]) -> (y: f32[200,200]) {
  const s: i64[2] = [200, 200]
  c = ConstantOfShape(s) @22
  y = Sub(x, c) @22
}"""


def options(level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL, *disabled: str) -> CompileOptions:
    return CompileOptions(optimization_level=level, disabled_optimizers=frozenset(disabled), verify=True)


def test_levels_are_cumulative() -> None:
    assert EXTENDED[: len(BASIC)] == BASIC
    assert LAYOUT[: len(EXTENDED)] == EXTENDED
    assert ALL[: len(LAYOUT)] == LAYOUT
    assert len(EXTENDED) > len(BASIC)


def test_nothing_happens_without_optimization() -> None:
    model = model_of(SILU)
    before = format_graph(model.graph)
    report = run_passes(model, options(OFF))
    assert not report.modified
    assert report.passes == ()
    assert format_graph(model.graph) == before


def test_basic_simplifies_and_extended_fuses() -> None:
    basic, extended = model_of(SILU), model_of(SILU)
    run_passes(basic, options(GraphOptimizationLevel.ORT_ENABLE_BASIC))
    report = run_passes(extended, options(GraphOptimizationLevel.ORT_ENABLE_EXTENDED))
    assert operators(basic) == ["Sigmoid", "Mul"]
    assert operators(extended) == ["QuickGelu"]
    assert extended.opset_imports["com.microsoft"] == 1
    assert report.modified
    assert report.changes() == {"RemoveNoOps": 1, "FuseQuickGelu": 1}
    assert report.seconds > 0


@pytest.mark.parametrize("name", ["FuseQuickGelu", "QuickGeluFusion"])
def test_a_pass_is_switched_off_by_its_name_or_the_one_of_onnxruntime(name: str) -> None:
    model = model_of(SILU)
    report = run_passes(model, options(GraphOptimizationLevel.ORT_ENABLE_ALL, name))
    assert operators(model) == ["Sigmoid", "Mul"]
    assert "FuseQuickGelu" in report.disabled


@pytest.mark.parametrize(
    "name",
    [
        "ConstantFolding", "EliminateIdentity", "EliminateDropout", "EliminateSlice", "CastElimination", "ExpandElimination",
        "NoopElimination", "UnsqueezeElimination", "PreShapeNodeElimination", "CastChainElimination", "DivMulFusion",
        "FuseReluClip", "NotWhereFusion", "ConvAddFusion", "ConvMulFusion", "ConvBNFusion", "Pad_Fusion", "MatmulBNFusion",
        "ConstantSharing", "CommonSubexpressionElimination", "MatMulAddFusion", "ReshapeFusion", "GeluFusion", "LayerNormFusion",
        "TransposeOptimizer", "SimplifiedLayerNormFusion", "FastGeluFusion", "QuickGeluFusion", "MatMulScaleFusion",
        "MatmulTransposeFusion", "GemmTransposeFusion",
    ],
)  # fmt: skip
def test_the_names_of_onnxruntime_are_known(name: str) -> None:
    assert any(name in each.ort_names for each in ALL)


def test_types_hold_even_if_the_pass_that_sets_them_is_off() -> None:
    model = model_of(SILU)
    for node in model.graph.nodes:
        node.outputs[0].type = None
    run_passes(model, options(GraphOptimizationLevel.ORT_ENABLE_BASIC, "FoldShapeValues"))
    assert all(str(node.outputs[0].type) == "f32[N,4]" for node in model.graph.nodes)


def test_what_a_model_claims_about_its_values_is_not_believed() -> None:
    text = """graph main(x: f32[N]) -> (y: f32[...]) {
      const s: i64[1] = [4]
      z: i64[1,?3] = NonZero(x) @22
      r: i64[1,4] = Identity(z) @22
      e: i64[1,4] = Expand(r, s) @22
      y = Neg(e) @22
    }"""
    model = Model(parse_graph(text), opset_imports={"": 22})
    run_passes(model, options())
    assert operators(model) == ["NonZero", "Expand", "Neg"]


def test_the_folding_limit_comes_from_the_configuration() -> None:
    small = CompileOptions(config=MappingProxyType({FOLDING_LIMIT_KEY: "1000"}))
    model = model_of(CONSTANT)
    report = run_passes(model, small)
    assert "ConstantOfShape" in operators(model)
    assert report.refusals()["FoldConstants"] == ("ConstantOfShape '-> c': the result has 160,000 bytes, the limit is 1,000",)
    unlimited = CompileOptions(config=MappingProxyType({FOLDING_LIMIT_KEY: "0"}))
    model = model_of(CONSTANT)
    run_passes(model, unlimited)
    assert operators(model) == ["Sub"]
    with pytest.raises(InvalidArgument, match="is '1 MB': expected a number of bytes"):
        stages_for(CompileOptions(config=MappingProxyType({FOLDING_LIMIT_KEY: "1 MB"})))


def test_verify_names_the_pass_that_broke_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    class Break:
        name: ClassVar[str] = "Break"
        ort_names: ClassVar[tuple[str, ...]] = ()

        def run(self, model: Model) -> PassResult:
            model.graph.outputs[0].name = "x"
            return PassResult(True, (), 1)

    broken: Optimization = Break()
    monkeypatch.setattr(pipeline, "_STAGES", (Stage(GraphOptimizationLevel.ORT_ENABLE_BASIC, (broken,), 1),))
    with pytest.raises(EngineError, match="pass Break left the graph inconsistent"):
        run_passes(model_of(SILU), options())


def test_nodes_keep_names_of_their_own() -> None:
    text = """graph main(x: f32[N,4], z: f32[N,4]) -> (y: f32[N,4]) {
      const three: f32[] = 3.0
      const zero: f32[] = 0.0
      const six: f32[] = 6.0
      a = Add(x, three) @13 "shift"
      c = Clip(a, zero, six) @13 "clip"
      m = Mul(x, c) @13 "gate"
      s = Div(m, six) @13 "scale"
      y = Add(s, z) @13 "sum"
    }"""
    model = model_of(text)
    run_passes(model, options())
    assert [(node.op_type, node.name) for node in model.graph.nodes] == [
        ("HardSigmoid", "scale"),
        ("Mul", "scale_1"),
        ("Add", "sum"),
    ]


def test_sizes_that_nobody_named_are_called_the_same_by_all_readers() -> None:
    text = """graph main(n: f32[], x: f32[...]) -> (y: f32[...], z: f32[...]) {
      const zero: f32[] = 0.0
      const one: f32[] = 1.0
      a = Range(zero, n, one) @22
      b = Range(zero, n, one) @22
      y = Neg(a) @22
      z = Abs(b) @22
    }"""
    model = model_of(text)
    run_passes(model, options())
    assert operators(model) == ["Range", "Neg", "Abs"]
    assert len({str(node.outputs[0].shape) for node in model.graph.nodes}) == 1


def test_what_changes_in_a_loop_is_not_taken_for_known() -> None:
    text = """graph main(x: f32[2], trips: i64[]) -> (y: f32[...], n: i64[...]) {
      const go: bool[] = true
      y, n = Loop(trips, go, x) {body = graph body(i: i64[], c: bool[], h: f32[...]) -> (d: bool[], g: f32[...], s: i64[1]) {
        d = Identity(c) @22
        s = Shape(h) @22
        g = Concat(h, h) {axis = 0} @22
      }} @22
    }"""
    model, original = model_of(text), model_of(text)
    run_passes(model, options())
    feeds = {"x": np.array([1.0, 2.0], np.float32), "trips": np.asarray(3)}
    assert_same(evaluate(model, feeds), evaluate(original, feeds))
    assert evaluate(model, feeds)[1].tolist() == [[2], [4], [8]]


def test_constants_that_are_inputs_are_defaults_only() -> None:
    text = """graph main(x: f32[2], w: f32[]) -> (y: f32[2]) {
      const w: f32[] = 1.0
      n = Neg(w) @22
      a = Mul(x, w) @22
      y = Add(a, n) @22
    }"""
    model = model_of(text)
    run_passes(model, options())
    assert operators(model) == ["Neg", "Mul", "Add"]
    old = Model(parse_graph(text), ir_version=3, opset_imports={"": 22})
    run_passes(old, options())
    assert operators(old) == ["Add"]


def test_subgraphs_are_rewritten_too() -> None:
    text = """graph main(x: f32[2], c: bool[]) -> (y: f32[2]) {
      const one: f32[] = 1.0
      y = If(c) {then_branch = graph t() -> (a: f32[2]) {
        p = Mul(x, one) @22
        q = Sigmoid(p) @22
        a = Mul(p, q) @22
      }, else_branch = graph e() -> (b: f32[2]) {
        r = Identity(x) @22
        b = Neg(r) @22
      }} @22
    }"""
    model = model_of(text)
    run_passes(model, options())
    branches = [[node.op_type for node in graph.nodes] for node in model.graph.nodes for graph in node.subgraphs()]
    assert branches == [["QuickGelu"], ["Neg"]]
    feeds = {"x": np.array([1.0, -2.0], np.float32)}
    for choice in (True, False):
        given = {**feeds, "c": np.asarray(choice)}
        assert_same(evaluate(model, given), evaluate(model_of(text), given))


def resnet(blocks: int, channels: int = 8) -> Model:
    """A residual network of five nodes a block."""
    g = GraphBuilder(Graph("main"), 17)
    h = g.input("x", TensorType(dtypes.FLOAT32, (symbol("N"), channels, 14, 14)))
    generator = np.random.default_rng(0)
    for _ in range(blocks):
        weights = generator.standard_normal((channels, channels, 3, 3)).astype(np.float32) / 20
        c = g.op("Conv", h, weights, pads=[1, 1, 1, 1])
        parameters = [np.abs(generator.standard_normal(channels)).astype(np.float32) + 0.5 for _ in range(4)]
        r = g.Relu(g.op("BatchNormalization", c, *parameters))
        h = g.Mul(g.Add(r, h), np.float32(0.5).reshape(()))
    g.output(h, "y")
    return model_of(g.graph)


def test_passes_take_work_in_proportion_to_the_graph() -> None:
    def work(blocks: int) -> Callable[[], object]:
        model = resnet(blocks)
        return lambda: run_passes(model, CompileOptions())

    growth, where = fastest_growing(work, 12)
    assert growth < 3, where
    model = resnet(36)
    run_passes(model, CompileOptions())
    assert len(model.graph) == 4 * 36


def test_a_residual_network_means_the_same_afterwards() -> None:
    model = resnet(6)
    changed = copy_of(model)
    run_passes(changed, options())
    assert "BatchNormalization" not in operators(changed)
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 8, 14, 14)).astype(np.float32)}
    assert_same(evaluate(changed, feeds), evaluate(model, feeds))


@pytest.mark.parametrize("operand", ["itself", "a number", "a vector"])
def test_a_long_chain_of_products_is_no_trap(operand: str) -> None:
    def chain(length: int) -> Model:
        g = GraphBuilder(Graph("main"), 22)
        h = g.input("x", TensorType(dtypes.FLOAT32, (4,)))
        other = {"a number": g.constant(np.float32(1.5)), "a vector": g.constant(np.ones(4, np.float32) * 2)}.get(operand)
        for _ in range(length):
            h = g.Mul(h, h if other is None else other)
        g.output(h, "y")
        return model_of(g.graph)

    def work(length: int) -> Callable[[], object]:
        model = chain(length)
        return lambda: run_passes(model, CompileOptions())

    growth, where = fastest_growing(work, 100)
    assert growth < 3, where
    model = chain(3000)
    run_passes(model, CompileOptions())
    assert len(model.graph) == 3000


def test_folding_respects_its_own_bounds() -> None:
    text = """graph main(x: f32[4]) -> (y: f32[...]) {
      const s: i64[3] = [1024, 1024, 1024]
      z = ConstantOfShape(s) @22
      y = ReduceSum(z) @22
    }"""
    model = model_of(text)
    result = FoldConstants().run(model)
    assert not result.modified
    assert result.reasons == ("ConstantOfShape '-> z': the result has 4,294,967,296 bytes, the limit is 1,073,741,824",)


INTRODUCED = (
    ("", "Gelu", 20), ("com.microsoft", "Gelu", 1), ("com.microsoft", "FastGelu", 1), ("com.microsoft", "QuickGelu", 1),
    ("", "HardSigmoid", 22), ("", "HardSwish", 14), ("", "Mish", 18), ("", "LayerNormalization", 13),
    ("", "LayerNormalization", 17), ("", "RMSNormalization", 23), ("", "SimplifiedLayerNormalization", 13),
    ("com.microsoft", "FusedMatMul", 1), ("", "Gemm", 13), ("", "Reshape", 13),
    ("", "Transpose", 13), ("", "Split", 13), ("", "Clip", 13), ("", "Mul", 13), ("", "Add", 13),
)  # fmt: skip


@pytest.mark.parametrize(("domain", "name", "version"), INTRODUCED)
def test_operators_that_passes_introduce_run_natively(domain: str, name: str, version: int) -> None:
    g = GraphBuilder(Graph("main"), version)
    node = g.op(name, g.input("x", None), domain=domain, version=version).producer
    assert node is not None
    found = (lowering.elementwise_rule(node), lowering.template_rule(node), lowering.view_rule(node))
    assert any(rule is not None for rule in found)


CONVOLUTION = """graph main(x: f32[N,3,8,8]) -> (y: f32[N,8,7,7]) {
  const w: f32[8,3,2,2] = <384 bytes, sha256 0000000000000000>
  c = Conv(x, w) @22
  y = Relu(c) @22
}"""


def test_the_layout_is_assigned_last_but_for_the_division_of_batches_and_after_the_model_was_portable() -> None:
    model = model_of(CONVOLUTION)
    seen: list[list[str]] = []
    report = run_passes(model, options(), described(16), on_portable=lambda portable: seen.append(operators(portable)))
    assert [each.name for each in ALL[-2:]] == ["AssignLayout", "SplitBatches"]
    assert [each.name for each in report.passes[-2:]] == ["AssignLayout", "SplitBatches"]
    assert report.changes()["AssignLayout"] == 2
    assert seen == [["Conv", "Relu"]]
    assert operators(model) == ["BlockedConv", "Relu", "FromBlocked"]
    assert next(iter(model.graph.nodes)).attr("block") == 16


def test_the_layout_stays_as_it_is_below_its_level_without_a_machine_or_if_it_is_switched_off() -> None:
    for chosen, target in (
        (options(GraphOptimizationLevel.ORT_ENABLE_EXTENDED), described(8)),
        (options(), None),
        (options(GraphOptimizationLevel.ORT_ENABLE_ALL, "NchwcTransformer"), described(8)),
    ):
        model = model_of(CONVOLUTION)
        report = run_passes(model, chosen, target)
        assert operators(model) == ["Conv", "Relu"]
        assert "AssignLayout" in report.disabled


def test_layout_assignment_is_verified_like_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sardonyx.passes.layout_region.Region.give_back", lambda region: None)
    with pytest.raises(EngineError, match="pass AssignLayout left the graph inconsistent"):
        run_passes(model_of(CONVOLUTION), options(), described(8))


def test_rules_that_are_loaded_later_are_what_the_pipeline_takes_them_for() -> None:
    later = [each for each in ALL if isinstance(each, RuleToLoad)]
    assert later
    for each in later:
        rule: Any = each.load()
        found: tuple[Any, ...] = (rule.name, rule.ort_names, rule.roots, getattr(rule, "needs", frozenset()))
        assert found == (each.name, each.ort_names, each.roots, each.needs)


def test_a_graph_without_their_operators_loads_no_rules(tmp_path: Path) -> None:
    code = (
        "import sys, sardonyx\n"
        "sardonyx.InferenceSession(sys.argv[1])\n"
        "print([name for name in sys.modules if name.startswith('sardonyx.passes.expand_')])"
    )
    content = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> m (float[4] x) => (float[4] y) { y = Relu (x) }')
    path = tmp_path / "relu.onnx"
    path.write_bytes(content.SerializeToString())
    environment = {**os.environ, "SARDONYX_CACHE_DIR": ""}
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"


def inferences(content: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often all types of a model are inferred from its inputs alone, besides when it is checked."""
    counted = []

    def infer(model: Any) -> Any:
        counted.append(model)
        return infer_from_inputs(model)

    monkeypatch.setattr("sardonyx.passes.pipeline.infer_from_inputs", infer)
    compile_model(load(content), CompileOptions())
    return len(counted)


CLAIMS = {
    "": 0,
    "float[2,3] h": 0,  # what is inferred
    "float[2,K] h": 0,  # less than that
    "float[2,4] h": 1,  # something wrong
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_types_that_follow_from_the_inputs_are_inferred_once(claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"m (float[2,3] x) => (float[2,3] y) <{claim}> {{ h = Relu (x)  y = Neg (h) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    assert inferences(model.SerializeToString(), monkeypatch) == CLAIMS[claim]


def test_names_of_sizes_that_the_model_claims_are_not_relied_on(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "m (float[N] x) => (float[M] y) { h = NonZero (x)  k = Cast <to: int = 1> (h)  y = Squeeze (k) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    assert inferences(model.SerializeToString(), monkeypatch) == 1
