"""Train the digit classifier that ships with the project, and write it with its sample picture.

    python tools/train_demo_model.py     writes src/sardonyx/data/{digits.onnx,seven.npy}

Needs torch, scikit-learn (for the data) and onnx (for the file). The data are split by a fixed seed; the sample picture is
taken from the part that was not trained on. The accuracy on that part stands in the model's metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

FOLDER = Path(__file__).parent.parent / "src/sardonyx/data"
LABELS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
EPOCHS = 40
BATCH = 64
HELD_BACK = 360  # pictures kept for the measurement
SAMPLE_DIGIT = 7


def network() -> Any:
    """The layers that are trained; `onnx_model` writes the same ones."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 4 * 4, 10),
    )


def train(model: Any, pictures: Any, digits: Any) -> None:
    """Adam with a falling step size; pictures are shifted by up to a pixel, so that the place of a digit matters less."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(pictures)).split(BATCH):
            down, right = (int(shift) for shift in torch.randint(-1, 2, (2,)))
            shifted = torch.roll(pictures[rows], (down, right), (2, 3))
            loss = torch.nn.functional.cross_entropy(model(shifted), digits[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


def onnx_model(weights: dict[str, Any], accuracy: float) -> Any:
    """The trained network as an ONNX model that takes pictures as the data set has them (0 to 16) and gives probabilities."""
    nodes = [
        helper.make_node("Div", ["image", "brightest"], ["scaled"], name="scale"),
        helper.make_node("Conv", ["scaled", "0.weight", "0.bias"], ["edges"], name="conv1", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["edges"], ["strokes"], name="relu1"),
        helper.make_node("Conv", ["strokes", "2.weight", "2.bias"], ["parts"], name="conv2", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["parts"], ["shapes"], name="relu2"),
        helper.make_node("MaxPool", ["shapes"], ["pooled"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pooled"], ["features"], name="flatten", axis=1),
        helper.make_node("Gemm", ["features", "6.weight", "6.bias"], ["scores"], name="classify", transB=1),
        helper.make_node("Softmax", ["scores"], ["probabilities"], name="softmax", axis=1),
    ]
    constants = {name: tensor.numpy() for name, tensor in weights.items()} | {"brightest": np.array(16, np.float32)}
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
        doc_string="Names the handwritten digit in an 8x8 picture with grey values from 0 (paper) to 16 (ink).",
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "tools/train_demo_model.py"
    model.model_version = 1
    model.doc_string = graph.doc_string
    helper.set_model_props(model, {"labels": json.dumps(LABELS), "accuracy": f"{accuracy:.4f}"})
    return model


def main() -> None:
    """Train, measure, write."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    pictures = data.images[order, None].astype(np.float32)
    digits = data.target[order]
    model = network()
    train(model, torch.from_numpy(pictures[HELD_BACK:]) / 16, torch.from_numpy(digits[HELD_BACK:]))
    with torch.no_grad():
        guesses = model(torch.from_numpy(pictures[:HELD_BACK]) / 16).argmax(1).numpy()
    accuracy = float((guesses == digits[:HELD_BACK]).mean())

    FOLDER.mkdir(exist_ok=True)
    written = onnx_model(model.state_dict(), accuracy)
    onnx.checker.check_model(written)
    (FOLDER / "digits.onnx").write_bytes(written.SerializeToString(deterministic=True))
    sample = int(np.flatnonzero(digits[:HELD_BACK] == SAMPLE_DIGIT)[0])
    np.save(FOLDER / "seven.npy", pictures[sample : sample + 1])
    size = (FOLDER / "digits.onnx").stat().st_size
    print(f"{accuracy:.2%} of {HELD_BACK} unseen pictures named correctly; {size} bytes written")


if __name__ == "__main__":
    main()
