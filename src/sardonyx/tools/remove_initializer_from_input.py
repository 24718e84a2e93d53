"""Initializers that are listed as inputs, too, are inputs no more: `onnxruntime.tools.remove_initializer_from_input`."""

from __future__ import annotations

import argparse
from typing import Any

_FREE_INITIALIZERS = 4  # the IR version since which an initializer need not be an input


def remove_initializer_from_input(model: Any) -> bool:
    """Change a model so that feeds cannot replace its weights; whether there was anything to change."""
    if model.ir_version < _FREE_INITIALIZERS:
        print("Model with ir_version below 4 requires to include initializer in graph input")
        return False
    held = {each.name for each in model.graph.initializer}
    kept = [each for each in model.graph.input if each.name not in held]
    changed = len(kept) < len(model.graph.input)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return changed


def main() -> None:
    """Run the command line."""
    import onnx

    parser = argparse.ArgumentParser(description="Make initializers plain constants.")
    parser.add_argument("--input", required=True, help="the model")
    parser.add_argument("--output", required=True, help="where the changed model is written")
    args = parser.parse_args()
    model = onnx.load(args.input)
    remove_initializer_from_input(model)
    onnx.save(model, args.output)


if __name__ == "__main__":
    main()
