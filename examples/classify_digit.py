"""Run the model that ships with Sardonyx on its picture, and look at a value inside the graph.

python examples/classify_digit.py
"""

from importlib import resources

import numpy as np

import sardonyx

data = resources.files("sardonyx").joinpath("data")
session = sardonyx.InferenceSession(str(data.joinpath("digits.onnx")))
picture = np.load(str(data.joinpath("seven.npy")))

for port in session.get_inputs():
    print(f"input {port.name}: {port.type} {port.shape}")

# "pooled" is no output of the model: any value inside can be asked for by its name.
probabilities, pooled = session.run(["probabilities", "pooled"], {"image": picture})
print(f"the features before the last layer: {pooled.shape}")
print(f"the digit is {probabilities.argmax()} ({probabilities.max():.1%} sure)")
