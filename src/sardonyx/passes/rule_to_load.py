"""Passes that are imported when a graph has the operators they begin with: most graphs have few of these operators."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from sardonyx.ir.graph import Model
from sardonyx.passes.protocol import Optimization, PassResult
from sardonyx.records import dataclass

QDQ_PASSES: Final = "QDQSelectorActionTransformer"  # ONNX Runtime's name for all passes that make integers of such pairs

# By the name of the pass, which is that of its class: module, roots, and what ONNX Runtime calls it.
_RULES: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "WidenConvolutions": ("widen_half", "Conv ConvTranspose FusedConv NhwcConv NhwcFusedConv", ("InsertCastTransformer",)),
    "BindCacheRoom": ("bind_cache_room", "GroupQueryAttention", ()),
    "ExpandWindows": ("expand_windows", "BlackmanWindow HammingWindow HannWindow", ()),
    "BindSizes": ("bind_sizes", "Expand OneHot Pad Reshape Resize Slice Split Tile", ()),
    "SinkIntoBranches": ("sink_into_branches", "If", ()),
    "CaptureInvariants": ("capture_invariants", "Loop Scan", ()),
    "PushTransposes": ("push_transposes", "Transpose", ("TransposeOptimizer",)),
    "FoldBatchNorm": ("fold_affine", "BatchNormalization", ("ConvBNFusion", "MatmulBNFusion", "MatMulBNFusion")),
    "FoldScale": ("fold_affine", "Div Mul Neg", ("ConvMulFusion",)),
    "FoldShift": ("fold_affine", "Add Sub", ("ConvAddFusion",)),
    "FoldInputScale": ("fold_affine", "Conv ConvTranspose Gemm MatMul", ()),
    "FormBlockProducts": ("form_block_products", "Gemm MatMul", (QDQ_PASSES,)),
    "AssignLayout": (
        "assign_layout",
        "Conv ConvGradData ConvGradWeights ConvTranspose MaxPoolGrad",
        ("NchwcTransformer",),
    ),
    "ExpandFused": ("expand_fused", "BiasSoftmax FusedConv FusedMatMulActivation GemmFastGelu", ()),
    "ExpandLayers": ("expand_layers", "EmbedLayerNormalization QAttention QEmbedLayerNormalization", ()),
    "ExpandHeadNorms": ("expand_head_norms", "GroupQueryAttention", ()),
    "ExpandOlder": ("expand_older", "CDist ExpandDims GatherND GridSample Pad SampleOp Trilu", ()),
    "ExpandDeformed": ("expand_deformed", "DeformConv", ()),
    "ExpandQuantized": (
        "expand_quantized",
        "DequantizeLinear QLinearAveragePool QLinearReduceMean QLinearSoftmax QLinearWhere QuantizeLinear",
        (),
    ),
    "ExpandBlocked": (
        "expand_layouts",
        "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput Upsample",
        (),
    ),
    "ExpandChannelsLast": (
        "expand_layouts",
        "AveragePool BatchNormalization Conv ConvTranspose DepthToSpace GlobalAveragePool GlobalLpPool GlobalMaxPool "
        "InstanceNormalization LRN LpPool MaxPool NhwcConv NhwcFusedConv SpaceToDepth",
        (),
    ),
    "ExpandUpdates": ("expand_updates", "Adagrad Adam InPlaceAccumulatorV2 Momentum", ()),
    "FormCountedGathers": ("form_counted_gathers", "Loop", ()),
    "CountBySize": ("count_by_size", "Loop", ()),
    "FormRangeWrites": ("form_range_writes", "ScatterElements", ()),
    "FoldSequences": ("fold_sequences", "ConcatFromSequence SequenceAt SequenceLength", ()),
    "FormScanOutputs": ("form_scan_outputs", "ConcatFromSequence", ()),
    "StackConcats": ("stack_concats", "Loop", ()),
    "HoistInvariants": ("hoist_invariants", "Loop Scan", ()),
    "PeelLoops": ("peel_loops", "Loop", ()),
    "UnrollLoops": ("unroll_loops", "Loop Scan", ()),
    "SplitEinsums": ("split_einsums", "Einsum", ()),
    "FoldPad": ("fold_pad", "AveragePool Conv MaxPool", ("Pad_Fusion", "PadFusion")),
    "TrimKernels": ("trim_kernels", "Conv", ()),
    "FoldMirroredKernels": ("fold_mirrored_kernels", "Conv", ()),
    "MergeBranches": ("merge_branches", "Add Sub Sum", ()),
    "FormMatMulIntegerToFloat": ("form_integer_matmuls", "Mul", ("MatMulIntegerToFloatFusion",)),
    "WidenNibbles": ("widen_nibbles", "DequantizeLinear", (QDQ_PASSES,)),
    "FormIntegerMatMul": ("form_integer_matmuls", "Gemm MatMul", (QDQ_PASSES,)),
    "PushDequantize": ("push_dequantize", "Gather", ("QDQPropagationTransformer",)),
    "PullQuantize": ("form_integer_convs", "QuantizeLinear", (QDQ_PASSES, "ReluQuantFusion", "ClipQuantFusion")),
    "RemoveRequantize": ("form_integer_convs", "QuantizeLinear", (QDQ_PASSES,)),
    "FormQLinearConv": ("form_integer_convs", "QuantizeLinear", (QDQ_PASSES,)),
    "FormQLinearLayer": ("form_integer_convs", "QuantizeLinear", (QDQ_PASSES,)),
    "FormQuantizedTransposed": ("form_quantized_transposed", "QuantizeLinear", (QDQ_PASSES,)),
    "FuseLayerNorm": ("fuse_norms", "Div Mul", ("LayerNormFusion", "LayerNormFusionL1", "LayerNormFusionL2")),
    "FuseRmsNorm": ("fuse_norms", "Div Mul", ("SimplifiedLayerNormFusion",)),
    "FuseGelu": ("fuse_activations", "Div Mul", ("GeluFusion", "GeluFusionL1", "GeluFusionL2")),
    "FuseTanhGelu": ("fuse_activations", "Div Mul", ("FastGeluFusion",)),
    "FuseHardSwish": ("fuse_activations", "Div Mul", ("HardSwishFusion",)),
    "FuseHardSigmoid": ("fuse_activations", "Clip Div Mul", ("HardSigmoidFusion",)),
    "FuseMish": ("fuse_activations", "Mul", ("MishFusion",)),
    "FuseQuickGelu": ("fuse_activations", "Mul", ("QuickGeluFusion",)),
    "CountTokens": ("count_tokens", "TfIdfVectorizer", ()),
    "EncodeTexts": ("encode_texts", "CategoryMapper LabelEncoder OneHotEncoder", ()),
    "GatherOneHots": ("gather_one_hots", "OneHotEncoder", ()),
    "ExpandFeatures": (
        "expand_features",
        "ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer LabelEncoder Normalizer OneHotEncoder Scaler",
        (),
    ),
    "ExpandLinearModels": ("expand_linear_models", "LinearClassifier LinearRegressor", ()),
    "ExpandSupportVectors": ("expand_linear_models", "SVMClassifier SVMRegressor", ()),
    "FormTreeScores": ("form_tree_scores", "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor", ()),
    "ExpandUnique": ("expand_unique", "Unique", ()),
    "ExpandShortArgMax": ("expand_short_argmax", "ArgMax", ()),
    "FuseAttention": ("fuse_attention", "Einsum FusedMatMul MatMul", ("AttentionFusion",)),
    "ExpandLosses": ("expand_losses", "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", ()),
    "ExpandShortSoftmax": ("expand_short_softmax", "Softmax", ()),
    "FormEmbeddingBags": ("form_embedding_bags", "Loop", ()),
    "JoinEmbeddingBags": ("form_embedding_bags", "ConcatFromSequence", ()),
    "MultiplyShortTransforms": ("multiply_short_transforms", "DFT STFT", ()),
    "FormBlockGathers": ("form_block_gathers", "GatherBlockQuantized", ()),
    "DequantizeKernels": ("dequantize_kernels", "DequantizeLinear", ()),
    "FormByteTables": ("form_byte_tables", "QLinearAdd QLinearLeakyRelu QLinearMul QLinearSigmoid QuantizeLinear", ()),
    "AssignChannelsLast": ("assign_channels_last", "MaxPool QLinearConv", ("NhwcTransformer",)),
    "FormChannelConv": ("form_channel_convs", "MatMul", ()),
    "TransposeSoftmax": ("transpose_softmax", "LogSoftmax Softmax", ()),
    "ScaleKernels": ("scale_kernels", "Conv", ()),
    "FormConv": ("form_convs", "ConvTranspose", ()),
    "FitGroups": ("fit_groups", "Conv ConvTranspose", ()),
    "HalveProducts": ("halve_products", "FusedMatMul Gemm MatMul", ()),
    "SplitBatches": ("split_batches", "BlockedConv BlockedConvTranspose BlockedPool BlockedResize", ()),
}
_PRODUCTS: Final = "Conv ConvTranspose Gemm MatMul"
# Operators of which a pattern has one besides.
_NEEDS: Final[dict[str, str]] = {
    "StackConcats": "Concat",
    "FoldBatchNorm": _PRODUCTS,
    "FoldScale": _PRODUCTS,
    "FoldShift": _PRODUCTS,
    "FoldInputScale": "Div Mul",
    "MergeBranches": "Conv",
    "FormBlockProducts": "DequantizeLinear",
    "FormIntegerMatMul": "DequantizeLinear",
    "FormMatMulIntegerToFloat": "MatMulInteger",
    "FuseLayerNorm": "ReduceMean",
    "FuseRmsNorm": "ReduceMean",
    "FuseGelu": "Erf",
    "FuseTanhGelu": "Tanh",
    "FuseHardSwish": "Clip HardSigmoid",
    "FuseHardSigmoid": "Clip",
    "FuseMish": "Tanh",
    "FuseQuickGelu": "Sigmoid",
    "FormChannelConv": "Transpose",
    "ScaleKernels": "Mul",
    "FuseAttention": "Softmax",
    "FormRangeWrites": "Range",
    "FormCountedGathers": "Slice",
    "CountBySize": "ConstantOfShape Expand Pad Range Slice Tile TopK",
}


@dataclass(frozen=True, slots=True)
class RuleToLoad:
    """A pass, with what must be known of it to see that a graph has nothing for it: its names, its roots, and what it needs."""

    name: str
    ort_names: tuple[str, ...]
    roots: frozenset[str]
    needs: frozenset[str]
    module: str  # of this folder
    settings: tuple[tuple[str, Any], ...] = ()  # fields of the pass that are not as by default

    def with_settings(self, **settings: Any) -> RuleToLoad:
        """The rule with fields of the pass set."""
        return replace(self, settings=tuple(settings.items()))

    def load(self) -> Optimization:
        """The pass itself."""
        found: Optimization = getattr(import_module(f"sardonyx.passes.{self.module}"), self.name)(**dict(self.settings))
        return found

    def run(self, model: Model) -> PassResult:
        """As the pass does."""
        return self.load().run(model)


def later(name: str) -> RuleToLoad:
    """The pass of a name."""
    module, roots, ort_names = _RULES[name]
    return RuleToLoad(name, ort_names, frozenset(roots.split()), frozenset(_NEEDS.get(name, "").split()), module)
