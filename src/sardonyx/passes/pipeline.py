"""The order of the passes, by level, and how they are run.

A level holds everything the one before holds. Within a level the passes run in order, again and again while one of them changes
something (a few times at most); the passes of the next level start from there. What a name in `disabled_optimizers` means: the
`name` of a pass, or one of the names ONNX Runtime has for the same thing.

The last stage serves one machine (`Stage.portable` is false): its operators are our own. Before it the model is made of operators
that other engines know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Final

from sardonyx import errors
from sardonyx.analysis.shapes import ShapeReport
from sardonyx.compile_options import CompileOptions
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.ir.dims import DimExpr
from sardonyx.ir.graph import Model
from sardonyx.ir.verify import verify
from sardonyx.passes.block_options import BLOCK_KEY, BLOCKS, DEFAULT_LEVEL, LEAST_WASTE, LEVEL_KEY
from sardonyx.passes.fold_constants import FoldConstants
from sardonyx.passes.fold_shape_values import FoldShapeValues, infer_from_inputs
from sardonyx.passes.form_matmuls import AbsorbTransposesInGemm, FormFusedMatMul, FormGemm
from sardonyx.passes.merge_casts import MergeCasts
from sardonyx.passes.merge_reshapes import MergeReshapes, ReshapeInsteadOfTranspose
from sardonyx.passes.merge_siblings import MergeSiblings
from sardonyx.passes.merge_subexpressions import MergeSubexpressions
from sardonyx.passes.merge_transposes import MergeTransposes
from sardonyx.passes.protocol import Optimization, Rule
from sardonyx.passes.remove_no_ops import RemoveCastBeforeShape, RemoveDropout, RemoveIdentity, RemoveNoOps
from sardonyx.passes.remove_unused import RemoveUnused
from sardonyx.passes.rewriter import all_graphs
from sardonyx.passes.rule_to_load import QDQ_PASSES, RuleToLoad, later
from sardonyx.passes.share_constants import ShareConstants
from sardonyx.passes.simplify_arithmetic import FuseDivMul, FuseNotWhere, FuseReluClip, MultiplyByInverse
from sardonyx.passes.size_contract import SizeContract
from sardonyx.records import dataclass
from sardonyx.target.target import Target

FOLDING_LIMIT_KEY: Final = "optimization.constant_folding_max_output_size_in_bytes"
EXACT_KEY: Final = "session.exact_convolution"  # "1": no algorithm that rounds otherwise than the plain sum
EXACT_PRODUCTS_KEY: Final = "session.exact_matmul"  # the same for products of matrices
_SHORT_VECTOR: Final = 8  # float32: of vectors that are no longer bytes are looked up one by one, too
KEEP_QDQ_KEY: Final = "session.disable_quant_qdq"  # "1": what is quantized and dequantized again is computed in floats

_EXPAND: Final[tuple[Optimization, ...]] = (  # before all others: their patterns know the parts
    later("WidenConvolutions"),  # narrow floats are not taken apart
    later("ExpandFused"),
    later("ExpandLayers"),
    later("ExpandHeadNorms"),
    later("BindCacheRoom"),
    later("ExpandOlder"),
    later("ExpandDeformed"),
    later("ExpandQuantized"),
    later("ExpandBlocked"),
    later("ExpandChannelsLast"),
    later("ExpandUpdates"),
    later("SinkIntoBranches"),  # what is behind Ifs of several ranks gets one
)
_PREPARE: Final[tuple[Optimization, ...]] = (
    FoldShapeValues(),  # sets the types all others rely on; they keep them up to date
)
_SIMPLIFY: Final[tuple[Optimization, ...]] = (
    RemoveUnused(),  # no time for what nobody needs
    RemoveIdentity(),  # nodes that hide others from patterns
    RemoveDropout(),
    later("CaptureInvariants"),  # constants that loops carry are literal operands, too
    FoldConstants(),  # literal operands for everything below
    later("HoistInvariants"),  # what is left of those: after CaptureInvariants
    later("FoldSequences"),  # literal indices lead to elements
    later("FormScanOutputs"),  # literal numbers of iterations
    later("UnrollLoops"),  # the same
    later("StackConcats"),  # of loops that are left
    later("PeelLoops"),  # literal conditions; of loops that are left
    later("SinkIntoBranches"),  # what is behind those that may have no iteration
    later("FormCountedGathers"),  # the same
    later("FormRangeWrites"),  # what is left of Slices when all ranks are known
    ShareConstants(),  # equal constants must be one for equal nodes to be found
    MergeSubexpressions(),
    RemoveCastBeforeShape(),
    MergeCasts(),  # may leave a Cast to the same type
    RemoveNoOps(),  # needs literal operands
    later("SplitEinsums"),  # leaves those that patterns of attention know
    FuseDivMul(),
    FuseReluClip(),
    FuseNotWhere(),
    later("FoldPad"),  # before pads meet their neighbours in PushTransposes
    later("TrimKernels"),
    later("FoldMirroredKernels"),  # leaves Transposes behind it
    MergeTransposes(),
    later("FormChannelConv"),  # leaves Transposes behind it
    later("PushTransposes"),  # brings activations and batch norms next to the convolutions they follow
    ReshapeInsteadOfTranspose(),  # what was not cancelled may move nothing
    MergeReshapes(),
    later("FoldBatchNorm"),
    later("FoldScale"),
    later("FoldShift"),  # after the scales: a bias is scaled with its weights
    later("MergeBranches"),  # after all three: branches are convolutions alone by then
    FormGemm(),  # after FoldScale, which needs the MatMul
    AbsorbTransposesInGemm(),
    RemoveUnused(),  # what the folding left behind
)
_FUSE: Final[tuple[Optimization, ...]] = (
    later("FormBlockProducts"),  # before those of integers: activations that are floats stay so
    later("WidenNibbles"),  # after block products, which read weights as they are stored
    later("FormMatMulIntegerToFloat"),
    later("FormIntegerMatMul"),  # before the patterns of float products
    later("PushDequantize"),
    later("PullQuantize"),  # brings a QuantizeLinear next to the convolution it follows
    later("RemoveRequantize"),
    later("FormQuantizedTransposed"),  # leaves convolutions
    later("FormQLinearConv"),
    later("FormQLinearLayer"),
    later("FuseLayerNorm"),  # before FuseRmsNorm, which is a part of it
    later("FuseRmsNorm"),
    later("FuseGelu"),
    later("FuseTanhGelu"),
    later("FuseHardSwish"),  # before FuseHardSigmoid, which is a part of it
    later("FuseHardSigmoid"),
    later("FuseMish"),
    later("FuseQuickGelu"),
    later("FoldInputScale"),  # after the activations: it would take the factor out of a Gelu
    FormFusedMatMul(),  # after it: what a constant cannot take
    MergeSiblings(),
    MultiplyByInverse(),  # late: the patterns above know divisions
    RemoveUnused(),
)
CLASSICAL: Final[tuple[Optimization, ...]] = (
    later("FormEmbeddingBags"),
    later("JoinEmbeddingBags"),
    later("ExpandUnique"),
    later("ExpandWindows"),
    later("CountBySize"),  # after the bags, whose loops slice by data
    later("BindSizes"),  # after them: they know slices by data
    later("CountTokens"),
    later("EncodeTexts"),  # what it leaves are encoders of numbers
    later("ExpandLinearModels"),
    later("GatherOneHots"),  # after the products are there, before encoders become comparisons
    later("ExpandFeatures"),
    later("ExpandSupportVectors"),
    later("FormTreeScores"),
    later("ExpandShortArgMax"),  # which those above leave
    RemoveUnused(),  # scores or labels that nobody asks for
)
_LAYOUT: Final[tuple[Optimization, ...]] = (
    later("FuseAttention"),  # its operator is our own
    later("ExpandLosses"),
    later("ExpandShortSoftmax"),  # of those it leaves
    later("MultiplyShortTransforms"),  # leaves products and convolutions
    later("FormBlockGathers"),  # so is this one's
    later("DequantizeKernels"),  # of convolutions that no pass has made integers of
    later("FormByteTables"),  # before transposes are pushed: a table is elementwise
    later("AssignChannelsLast"),
    later("PushTransposes"),  # what it has put around each node
    MergeTransposes(),
    later("TransposeSoftmax"),  # after PushTransposes, which would take its Transposes out again
    RemoveUnused(),
    later("HalveProducts"),  # of all products there are, those of integers and of attention taken out
    later("ScaleKernels"),
    later("FormConv"),
    later("FitGroups"),
    later("AssignLayout"),  # the patterns above know standard convolutions
    later("SplitBatches"),  # last: of layers in blocks
)

BASIC: Final = (*_EXPAND, *_PREPARE, *_SIMPLIFY, *CLASSICAL)
EXTENDED: Final = (*BASIC, *_FUSE)
LAYOUT: Final = (*EXTENDED, *_LAYOUT)
ALL: Final = LAYOUT


def is_expanded(domain: str, name: str) -> bool:
    """Whether nodes of an operator become nodes of others before anything is compiled."""
    from sardonyx.passes.expand_fused import ExpandingRule  # lazy: a session does not ask

    rules = (each.load() for each in _EXPAND if isinstance(each, RuleToLoad) and name in each.roots)
    return any(isinstance(each, ExpandingRule) and domain in each.domains for each in rules)


@dataclass(frozen=True, slots=True)
class Stage:
    """Passes that run in turn, at most `rounds` times."""

    level: GraphOptimizationLevel  # the lowest that has them
    passes: tuple[Optimization, ...]
    rounds: int
    portable: bool = True  # leaves operators that other engines know; else it serves the target alone


_STAGES: Final = (
    Stage(GraphOptimizationLevel.ORT_ENABLE_BASIC, _EXPAND, 1),
    Stage(GraphOptimizationLevel.ORT_ENABLE_BASIC, _PREPARE, 1),
    Stage(GraphOptimizationLevel.ORT_ENABLE_BASIC, _SIMPLIFY, 4),
    Stage(GraphOptimizationLevel.ORT_ENABLE_BASIC, CLASSICAL, 1, portable=False),
    Stage(GraphOptimizationLevel.ORT_ENABLE_EXTENDED, _FUSE, 3),
    Stage(GraphOptimizationLevel.ORT_ENABLE_LAYOUT, _LAYOUT, 1, portable=False),
)


class InconsistentGraph(errors.EngineError):
    """A pass has broken the graph. Found only if `CompileOptions.verify` asks for it, and then never covered up by NumPy."""


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one run of one pass did."""

    name: str
    level: GraphOptimizationLevel
    round: int
    changes: int
    refusals: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """What all passes did, in the order they ran."""

    passes: tuple[PassReport, ...] = ()
    disabled: frozenset[str] = frozenset()  # names of passes that were left out

    @property
    def modified(self) -> bool:
        """Whether the model is another now."""
        return any(each.changes for each in self.passes)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return sum(each.seconds for each in self.passes)

    def refusals(self) -> dict[str, tuple[str, ...]]:
        """Why passes left something as it is, by pass: what they said when they last ran."""
        return {each.name: each.refusals for each in self.passes}

    def changes(self) -> dict[str, int]:
        """How many changes each pass made in all rounds; those that made none are left out."""
        counts: dict[str, int] = {}
        for each in self.passes:
            if each.changes:
                counts[each.name] = counts.get(each.name, 0) + each.changes
        return counts


def stages_for(options: CompileOptions, target: Target | None = None) -> tuple[Stage, ...]:
    """The stages that the options ask for, configured: for a target, or for no machine in particular."""
    stages = []
    for stage in _STAGES:
        if stage.level > options.optimization_level:
            break
        if target is None and not stage.portable:
            continue
        disabled = options.disabled_optimizers
        if options.config.get(KEEP_QDQ_KEY) == "1":
            disabled = disabled | {QDQ_PASSES}
        chosen = [each for each in stage.passes if not disabled.intersection((each.name, *each.ort_names))]
        stages.append(replace(stage, passes=tuple(_configured(each, options, target) for each in chosen)))
    return tuple(stages)


def _configured(pass_: Optimization, options: CompileOptions, target: Target | None) -> Optimization:
    """The pass with those of its fields set that options or target decide."""
    if isinstance(pass_, RuleToLoad):
        return _configured_later(pass_, options, target)
    limit = options.config.get(FOLDING_LIMIT_KEY)
    if isinstance(pass_, FoldConstants) and limit is not None:
        if not limit.strip().isdigit():
            raise errors.InvalidArgument(f"{FOLDING_LIMIT_KEY} is {limit!r}: expected a number of bytes, 0 for no limit")
        return replace(pass_, limit=int(limit))
    return pass_


def _configured_later(pass_: RuleToLoad, options: CompileOptions, target: Target | None) -> RuleToLoad:
    if pass_.name == "FormBlockProducts":
        level = _number(options, LEVEL_KEY, str(DEFAULT_LEVEL), range(5), "0 to 4")
        block = _number(
            options, BLOCK_KEY, "0", (LEAST_WASTE, 0, *BLOCKS), "a power of two from 16 to 256, 0 (32) or -1 (least padding)"
        )
        return pass_.with_settings(level=level, block_size=block)
    if target is None:
        return pass_
    if pass_.name == "AssignLayout":
        return pass_.with_settings(target=target, exact=options.flag(EXACT_KEY))
    if pass_.name == "HalveProducts":
        return pass_.with_settings(exact=options.flag(EXACT_PRODUCTS_KEY))
    if pass_.name == "FormByteTables":
        permutes = target.has_byte_permute
        return pass_.with_settings(is_used=permutes or target.lanes <= _SHORT_VECTOR, permutes=permutes)
    for_target = ("FormConv", "FitGroups", "SplitBatches", "TransposeSoftmax")
    return pass_.with_settings(target=target) if pass_.name in for_target else pass_


def _number(options: CompileOptions, key: str, default: str, allowed: Collection[int], text: str) -> int:
    """A number among the options of a session."""
    given = options.config.get(key, default).strip()
    if given.lstrip("-").isdigit() and int(given) in allowed:
        return int(given)
    raise errors.InvalidArgument(f"{key} is {given!r}: expected {text}")


def run_passes(
    model: Model,
    options: CompileOptions,
    target: Target | None = None,
    on_portable: Callable[[Model], None] | None = None,
    on_pass: Callable[[PassReport], None] | None = None,
    inferred: ShapeReport | None = None,
) -> PipelineReport:
    """Rewrite a model, in place, as far as the optimization level allows.

    Functions must have been inlined, and the model must have been checked. Afterwards all values have types that follow from the
    inputs alone. At ORT_DISABLE_ALL nothing but types is changed. Stages that serve one machine need the `target`, and are left
    out without. `on_portable` sees the model before them, `on_pass` what each pass did, and the model as it is then. `inferred`
    is what is known of the model as it is; only what follows from the inputs is used.
    """
    stages = stages_for(options, target)
    chosen = {each.name for stage in stages for each in stage.passes}
    disabled = frozenset(each.name for each in ALL if each.name not in chosen) if stages else frozenset()
    if inferred is None or not inferred.follows_from_inputs:
        inferred = infer_from_inputs(model)
    contract = SizeContract.of(model, inferred)
    first = FoldShapeValues(inferred)
    stages = tuple(replace(stage, passes=tuple(first if each == first else each for each in stage.passes)) for stage in stages)
    reports: list[PassReport] = []
    for graph in all_graphs(model):
        for position, node in enumerate(graph.nodes):
            node.position = position

    def run(portable: bool) -> None:
        for stage in stages:
            if stage.portable is portable:
                for report in run_stage(stage, model, options.verify):
                    reports.append(report)
                    if on_pass is not None:
                        on_pass(report)

    run(portable=True)
    if any(each.changes for each in reports) and _has_anonymous_sizes(model):
        # Two values that became one had a name each for a size nobody named; readers may know it by the lost one.
        infer_from_inputs(model)
    if on_portable is not None:
        on_portable(model)
    run(portable=False)
    contract.leave_checks()
    return PipelineReport(tuple(reports), disabled)


def _has_anonymous_sizes(model: Model) -> bool:
    values = (value for graph in all_graphs(model) for node in graph.nodes for value in node.outputs)
    return any(isinstance(dim, DimExpr) and dim.is_anonymous for value in values for dim in value.shape or ())


def _operators(model: Model) -> set[str]:
    return {node.op_type for graph in all_graphs(model) for node in graph.nodes}


def run_stage(stage: Stage, model: Model, check: bool) -> Iterator[PassReport]:
    """Run passes in turn until none of them finds anything to do; one that has seen the model as it is does not run again."""
    changes = 0
    seen: dict[int, int] = {}  # by position in the stage: the number of changes when it last ran and found nothing
    present, counted_at = _operators(model), 0
    for number in range(stage.rounds):
        before = changes
        for index, each in enumerate(stage.passes):
            if seen.get(index) == changes:
                continue
            if isinstance(each, (Rule, RuleToLoad)):
                if counted_at != changes:
                    present, counted_at = _operators(model), changes
                if each.roots.isdisjoint(present) or (each.needs and each.needs.isdisjoint(present)):  # nothing to begin with
                    seen[index] = changes
                    yield PassReport(each.name, stage.level, number, 0, (), 0.0)
                    continue
            report = _run(each, model, stage.level, number, check)
            changes += report.changes
            if not report.changes:
                seen[index] = changes
            yield report
        if changes == before:
            break


def _run(pass_: Optimization, model: Model, level: GraphOptimizationLevel, number: int, check: bool) -> PassReport:
    start = time.perf_counter()
    result = pass_.run(model)
    seconds = time.perf_counter() - start
    if check:
        problems = verify(model)
        if problems:
            raise InconsistentGraph(f"pass {pass_.name} left the graph inconsistent:\n" + "\n".join(problems))
    return PassReport(pass_.name, level, number, result.changes, result.reasons, seconds)
