"""Conversion to the ORT format with the names and options of `onnxruntime.tools.convert_onnx_models_to_ort`."""

from __future__ import annotations

import argparse
import enum
import os
from pathlib import Path

from sardonyx import errors
from sardonyx.conversion import convert_models

_LEVEL = "ORT_CONVERT_ONNX_MODELS_TO_ORT_OPTIMIZATION_LEVEL"


class OptimizationStyle(enum.Enum):
    """Whether all optimisations are made, or some are left for whoever loads the model."""

    Fixed = 0
    Runtime = 1


def convert_onnx_models_to_ort(
    model_path_or_dir: Path,
    output_dir: Path | None = None,
    optimization_styles: list[OptimizationStyle] | None = None,
    custom_op_library_path: Path | None = None,
    target_platform: str | None = None,
    save_optimized_onnx_model: bool = False,
    allow_conversion_failures: bool = False,
    enable_type_reduction: bool = False,
) -> None:
    """Convert a model or a folder of them, and write the configuration of the operators they need."""
    source = Path(model_path_or_dir)
    if not source.exists():
        raise FileNotFoundError(f"Model path '{source}' is not a file or directory.")
    if custom_op_library_path is not None:
        raise errors.NotImplemented(
            "libraries of custom operators need ONNX Runtime's C interface", hint="use onnxruntime itself"
        )
    done = convert_models(
        source,
        output_dir,
        styles=[style.name.lower() for style in optimization_styles or []],
        level=os.environ.get(_LEVEL, "all"),
        enable_type_reduction=enable_type_reduction,
        target_platform=target_platform,
        save_optimized_onnx=save_optimized_onnx_model,
        allow_failures=allow_conversion_failures,
        on_model=lambda model, target: print(f"Converting {model} to ORT format model {target}"),
    )
    for each in done:
        for path, text in each.failures.items():
            print(f"Error converting {path}: {text}")
        print(f"Converted {len(each.models)}/{len(each.models) + len(each.failures)} models successfully.")
        print(f"Created config in {each.config}")


def parse_args() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Convert ONNX models to the ORT format.")
    parser.add_argument("--output_dir", type=Path, help="where files go; default: beside the models")
    parser.add_argument(
        "--optimization_style",
        nargs="+",
        type=lambda name: OptimizationStyle[name],
        default=[OptimizationStyle.Fixed, OptimizationStyle.Runtime],
        choices=list(OptimizationStyle),
        help="Fixed: make all optimizations; Runtime: leave some for whoever loads the model",
    )
    parser.add_argument("--enable_type_reduction", action="store_true", help="add the types that operators are used with")
    parser.add_argument("--custom_op_library", type=Path, help="refused: it needs ONNX Runtime's C interface")
    parser.add_argument("--save_optimized_onnx_model", action="store_true", help="write the optimized model as ONNX, too")
    parser.add_argument("--allow_conversion_failures", action="store_true", help="go on after a model that cannot be converted")
    parser.add_argument("--target_platform", choices=["arm", "amd64"], help="where the models will run")
    parser.add_argument("model_path_or_dir", type=Path, help="an .onnx file, or a folder with such files")
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    convert_onnx_models_to_ort(
        args.model_path_or_dir,
        output_dir=args.output_dir,
        optimization_styles=args.optimization_style,
        custom_op_library_path=args.custom_op_library,
        target_platform=args.target_platform,
        save_optimized_onnx_model=args.save_optimized_onnx_model,
        allow_conversion_failures=args.allow_conversion_failures,
        enable_type_reduction=args.enable_type_reduction,
    )
