"""A script written for ONNX Runtime: only the import differs.

python examples/drop_in.py
"""

from importlib import resources

import numpy as np

import sardonyx as ort

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
options.intra_op_num_threads = 1

model = str(resources.files("sardonyx").joinpath("data").joinpath("digits.onnx"))
session = ort.InferenceSession(model, sess_options=options, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
batch = np.random.default_rng(0).uniform(0, 16, (4, 1, 8, 8)).astype(np.float32)
print(session.get_providers())
print(session.run(None, {name: batch})[0].argmax(axis=1))
