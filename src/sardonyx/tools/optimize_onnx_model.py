"""A model as the passes of a level leave it, on the command line: `onnxruntime.tools.optimize_onnx_model`."""

from __future__ import annotations

import argparse
from pathlib import Path

from sardonyx.tools.onnx_model_utils import get_optimization_level, optimize_model


def optimize_model_helper() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Optimize a model and write the result.")
    levels = ["disable", "basic", "extended", "layout", "all"]
    parser.add_argument("--opt_level", default="basic", choices=levels, help="how far it is optimized")
    parser.add_argument("--log_level", type=int, default=3, help="what is logged: 0 everything, 4 fatal errors only")
    parser.add_argument("--use_external_initializers", action="store_true", help="write large weights to a file of their own")
    parser.add_argument("input_model", type=Path, help="the model")
    parser.add_argument("output_model", type=Path, help="where the optimized model is written")
    args = parser.parse_args()
    level = get_optimization_level(args.opt_level)
    optimize_model(args.input_model, args.output_model, level, args.log_level, args.use_external_initializers)


if __name__ == "__main__":
    optimize_model_helper()
