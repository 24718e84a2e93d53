"""Sizes for the named dimensions of a model, on the command line: `onnxruntime.tools.make_dynamic_shape_fixed`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from sardonyx.tools.onnx_model_utils import fix_output_shapes, make_dim_param_fixed, make_input_shape_fixed


def make_dynamic_shape_fixed_helper() -> None:
    """Run the command line."""
    import onnx

    parser = argparse.ArgumentParser(description="Give a named dimension a size, or an input a shape.")
    parser.add_argument("--dim_param", help="the dimension; needs --dim_value")
    parser.add_argument("--dim_value", type=int, help="its size")
    parser.add_argument("--input_name", help="the input; needs --input_shape")
    parser.add_argument(
        "--input_shape", type=lambda text: [int(part) for part in text.split(",")], help="its shape, as 1,3,256,256"
    )
    parser.add_argument("input_model", type=Path, help="the model")
    parser.add_argument("output_model", type=Path, help="where the changed model is written")
    args = parser.parse_args()
    by_name, by_input = (args.dim_param, args.dim_value), (args.input_name, args.input_shape)
    if any(each is None for each in by_name) and any(each is None for each in by_input):
        parser.print_help()
        sys.exit(-1)
    model = onnx.load(os.fspath(args.input_model.resolve(strict=True)))
    if args.dim_param:
        make_dim_param_fixed(model.graph, args.dim_param, args.dim_value)
    else:
        make_input_shape_fixed(model.graph, args.input_name, args.input_shape)
    fix_output_shapes(model)
    onnx.save(model, os.fspath(args.output_model.resolve()))


if __name__ == "__main__":
    make_dynamic_shape_fixed_helper()
