"""A model for another version of ONNX's operators, on the command line: `onnxruntime.tools.update_onnx_opset`."""

from __future__ import annotations

import argparse
from pathlib import Path

from sardonyx.tools.onnx_model_utils import update_onnx_opset


def update_onnx_opset_helper() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Convert a model to another opset.")
    parser.add_argument("--opset", type=int, default=15, help="the version")
    parser.add_argument("input_model", type=Path, help="the model")
    parser.add_argument("output_model", type=Path, help="where the converted model is written")
    args = parser.parse_args()
    update_onnx_opset(args.input_model, args.opset, args.output_model)


if __name__ == "__main__":
    update_onnx_opset_helper()
