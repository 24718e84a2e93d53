"""Say what is wrong with the models given on the command line; without any, with the one that ships with Sardonyx.

python examples/check_models.py [MODEL ...]
"""

import sys
from importlib import resources

import sardonyx

paths = sys.argv[1:] or [str(resources.files("sardonyx").joinpath("data").joinpath("digits.onnx"))]
for path in paths:
    summary = sardonyx.summarize_model(path)
    print(f"{path}: {summary.nodes} nodes, {summary.parameters:,} parameters, opsets {summary.opsets}")
    for problem in sardonyx.check_model(path):
        print(f"  {problem.severity}: {problem}")
