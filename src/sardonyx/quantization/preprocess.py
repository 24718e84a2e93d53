"""Prepare a model for quantization, from the command line.

python -m onnxruntime.quantization.preprocess --input model.onnx --output prepared.onnx
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sardonyx.quantization.shape_inference import quant_pre_process


def _truth(text: str) -> bool:
    return text.lower() not in ("", "0", "false", "no")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="Prepare a model for quantization: find shapes, fold constants.")
    parser.add_argument("--input", required=True, help="the model")
    parser.add_argument("--output", required=True, help="where the prepared model goes")
    for name in ("skip_optimization", "skip_onnx_shape", "skip_symbolic_shape"):
        parser.add_argument(f"--{name}", type=_truth, default=False, help="leave this step out")
    parser.add_argument("--auto_merge", action="store_true", help="no effect: sizes that must be the same are merged")
    parser.add_argument("--int_max", type=int, default=2**31 - 1, help="no effect: sizes have no limit")
    parser.add_argument("--guess_output_rank", action="store_true", help="no effect: what is not known stays unknown")
    parser.add_argument("--verbose", type=int, default=0, help="1 or more: say what is wrong with the model's types")
    parser.add_argument("--save_as_external_data", action="store_true", help="write weights to a file beside the model")
    parser.add_argument("--all_tensors_to_one_file", action="store_true", help="no effect: they go to one file")
    parser.add_argument("--external_data_location", help="the name of that file")
    parser.add_argument("--external_data_size_threshold", type=int, default=1024, help="weights from this size on go there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare a model; the exit code."""
    given = vars(parse_arguments(arguments))
    quant_pre_process(given.pop("input"), given.pop("output"), **given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
