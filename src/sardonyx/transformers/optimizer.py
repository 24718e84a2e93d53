"""Transformers with their layers fused: `onnxruntime.transformers.optimizer`.

    optimized = optimize_model("bert.onnx", "bert", num_heads=12, hidden_size=768)
    optimized.save_model_to_file("bert_fused.onnx")
    optimized.get_fused_operator_statistics()

The result runs on ONNX Runtime, too. python -m sardonyx.transformers.optimizer --input IN --output OUT [--model_type bert].
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from sardonyx.enums import GraphOptimizationLevel
from sardonyx.options import SessionOptions
from sardonyx.session.inference_session import InferenceSession
from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.messages import load_message
from sardonyx.transformers.model_kinds import (
    BartOnnxModel,
    BertOnnxModelKeras,
    BertOnnxModelTF,
    ClipOnnxModel,
    ConformerOnnxModel,
    Gpt2OnnxModel,
    MmditOnnxModel,
    PhiOnnxModel,
    Sam2OnnxModel,
    T5OnnxModel,
    TnlrOnnxModel,
    UnetOnnxModel,
    VaeOnnxModel,
)
from sardonyx.transformers.onnx_model_bert import BertOnnxModel

_log = logging.getLogger("sardonyx")

# Kind of model -> its class, who wrote it, and the level of a session's passes before the fusions. All are fused by the same
# passes, which look at the graph, not at the name; the level is for who reads it.
_PYTORCH: Final = {
    "bart": (BartOnnxModel, 1), "bert": (BertOnnxModel, 1), "clip": (ClipOnnxModel, 1), "conformer": (ConformerOnnxModel, 1),
    "gpt2": (Gpt2OnnxModel, 1), "gpt_neox": (BertOnnxModel, 0), "phi": (PhiOnnxModel, 0), "qwen3": (Gpt2OnnxModel, 0),
    "sam2": (Sam2OnnxModel, 1), "swin": (BertOnnxModel, 1), "tnlr": (TnlrOnnxModel, 1), "t5": (T5OnnxModel, 2),
    "unet": (UnetOnnxModel, 1), "vae": (VaeOnnxModel, 1), "vit": (BertOnnxModel, 1), "mmdit": (MmditOnnxModel, 1),
}  # fmt: skip
MODEL_TYPES: Final[dict[str, tuple[type[BertOnnxModel], str, int]]] = {
    **{name: (kind, "pytorch", level) for name, (kind, level) in _PYTORCH.items()},
    "bert_tf": (BertOnnxModelTF, "tf2onnx", 0),
    "bert_keras": (BertOnnxModelKeras, "keras2onnx", 0),
    "gpt2_tf": (Gpt2OnnxModel, "tf2onnx", 0),
}
_LEVELS: Final = {
    0: GraphOptimizationLevel.ORT_DISABLE_ALL,
    1: GraphOptimizationLevel.ORT_ENABLE_BASIC,
    2: GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    99: GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
}


def optimize_by_onnxruntime(
    onnx_model: Any = None,
    use_gpu: bool = False,
    optimized_model_path: str | None = None,
    opt_level: int | None = 99,
    disabled_optimizers: Sequence[str] = (),
    verbose: bool = False,
    save_as_external_data: bool = False,
    external_data_filename: str = "",
    external_data_file_threshold: int = 1024,
    *,
    provider: str | None = None,
    **deprecated_kwargs: Any,
) -> str:
    """Write a model as a session's passes leave it; the path. Passes that serve this machine alone are left out."""
    source = deprecated_kwargs.get("onnx_model_path", onnx_model)
    if opt_level not in (1, 2, 99):
        raise ValueError(f"opt_level is {opt_level}: expected 1, 2 or 99")
    options = SessionOptions()
    options.graph_optimization_level = _LEVELS[opt_level]
    is_path = isinstance(source, (str, os.PathLike))
    if optimized_model_path is None:
        stem = os.path.splitext(os.fspath(source))[0] if is_path else "optimized_model"
        optimized_model_path = f"{stem}_o{opt_level}_cpu.onnx"
    options.optimized_model_filepath = optimized_model_path
    if save_as_external_data:
        name = external_data_filename or f"{os.path.basename(optimized_model_path)}.data"
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", name)
        key = "session.optimized_model_external_initializers_min_size_in_bytes"
        options.add_session_config_entry(key, str(external_data_file_threshold))
    InferenceSession(
        os.fspath(source) if is_path else source.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=list(disabled_optimizers),
    )
    return optimized_model_path


def optimize_by_fusion(
    model: Any,
    model_type: str = "bert",
    num_heads: int = 0,
    hidden_size: int = 0,
    optimization_options: FusionOptions | None = None,
) -> BertOnnxModel:
    """Fuse the layers of a ModelProto."""
    if model_type not in MODEL_TYPES:
        _log.warning("unsupported model type %s: it is taken for bert", model_type)
        model_type = "bert"
    if num_heads and hidden_size % num_heads:
        num_heads = hidden_size = 0  # what the graph says is taken in any case
    result = MODEL_TYPES[model_type][0](model, *((num_heads, hidden_size) if num_heads and hidden_size else (0, 0)))
    result.optimize(optimization_options or FusionOptions(model_type))
    result.model.producer_name = "sardonyx.transformers"
    return result


def optimize_model(
    input: Any,
    model_type: str = "bert",
    num_heads: int = 0,
    hidden_size: int = 0,
    optimization_options: FusionOptions | None = None,
    opt_level: int | None = None,
    use_gpu: bool = False,
    only_onnxruntime: bool = False,
    verbose: bool = False,
    *,
    provider: str | None = None,
) -> BertOnnxModel:
    """Optimize a model: a path or a ModelProto.

    Layers are fused; with `only_onnxruntime` a session's passes run instead, at `opt_level` 1, 2 or 99 (0: none). Before the
    fusions they would only hide layers: every session makes them later. Numbers of heads and sizes are found in the graph;
    `num_heads` and `hidden_size` need not be given.
    """
    if opt_level not in (None, 0, 1, 2, 99):
        raise ValueError(f"opt_level is {opt_level}: expected 0, 1, 2 or 99")
    level = (1 if opt_level is None else opt_level) if only_onnxruntime else 0
    is_path = isinstance(input, (str, os.PathLike))
    if level:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            optimize_by_onnxruntime(input, use_gpu, path, level, verbose=verbose)
            model = load_message(path)
    else:
        model = load_message(input) if is_path else input
    if only_onnxruntime:
        return BertOnnxModel(model)
    return optimize_by_fusion(model, model_type, num_heads, hidden_size, optimization_options)


def get_fusion_statistics(optimized_model_path: str) -> dict[str, int]:
    """How many nodes of each fused operator the model in a file has."""
    return BertOnnxModel(load_message(optimized_model_path)).get_fused_operator_statistics()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fuse the layers of a transformer.")
    parser.add_argument("--input", required=True, help="an .onnx file")
    parser.add_argument("--output", required=True, help="where the optimized model goes")
    parser.add_argument("--model_type", default="bert", type=str.lower, choices=list(MODEL_TYPES))
    parser.add_argument("--num_heads", type=int, default=0)
    parser.add_argument("--hidden_size", type=int, default=0)
    parser.add_argument("--float16", action="store_true", help="convert to float16; inputs and outputs stay")
    parser.add_argument("--use_gpu", action="store_true")
    parser.add_argument("--only_onnxruntime", action="store_true", help="a session's passes only")
    parser.add_argument("--opt_level", type=int, choices=[0, 1, 2, 99])
    parser.add_argument("--use_external_data_format", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    FusionOptions.add_arguments(parser)
    args = parser.parse_args(arguments)
    optimized = optimize_model(
        args.input,
        args.model_type,
        args.num_heads,
        args.hidden_size,
        FusionOptions.parse(args),
        args.opt_level,
        args.use_gpu,
        args.only_onnxruntime,
        args.verbose,
    )
    if args.float16:
        optimized.convert_float_to_float16(keep_io_types=True)
    optimized.save_model_to_file(args.output, args.use_external_data_format)
    print({name: count for name, count in optimized.get_fused_operator_statistics().items() if count})


if __name__ == "__main__":
    main()
