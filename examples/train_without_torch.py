"""Train an ONNX model where PyTorch is not installed: artifacts, a training loop, a checkpoint, and the model for inference.

    python examples/train_without_torch.py [FOLDER]

The data is made here: points in two spirals, which no straight line divides.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import sardonyx
from sardonyx import dtypes
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import Graph, Model
from sardonyx.ir.types import TensorType
from sardonyx.training import artifacts, onnxblock
from sardonyx.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

STEPS = 400
WIDTH = 48


def spirals(count: int, random: np.random.Generator) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Points of two spirals, and which of them each belongs to."""
    labels = random.integers(0, 2, count)
    distance = random.uniform(0.2, 1.0, count)
    angle = 4 * distance + np.pi * labels
    points = np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)
    return (points + random.normal(scale=0.02, size=points.shape)).astype(np.float32), labels


def network(random: np.random.Generator) -> Model:
    """A model to begin with; any ONNX model with float initializers will do."""
    g = GraphBuilder(Graph("spirals"), 17)
    h = g.input("points", TensorType(dtypes.FLOAT32, (symbol("batch"), 2)))
    sizes = (2, WIDTH, WIDTH, 2)
    for layer, (inside, outside) in enumerate(pairwise(sizes)):
        weight = random.normal(scale=np.sqrt(2 / inside), size=(inside, outside)).astype(np.float32)
        h = g.Gemm(h, g.constant(weight, f"weight{layer}"), g.constant(np.zeros(outside, np.float32), f"bias{layer}"))
        h = g.Relu(h) if layer < len(sizes) - 2 else h
    g.output(h, "scores")
    return Model(g.graph, ir_version=8, opset_imports={"": 17})


def main(folder: Path) -> float:
    """Train, and return the share of new points that the trained model gets right."""
    random = np.random.default_rng(0)
    model = network(random)
    artifacts.generate_artifacts(
        model,
        requires_grad=list(model.graph.initializers),
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=onnxblock.optim.AdamW(weight_decay=1e-4, clip_grad=onnxblock.optim.ClipGradNorm(1.0)),
        artifact_directory=folder,
    )
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
    optimizer = Optimizer(folder / "optimizer_model.onnx", module)
    scheduler = LinearLRScheduler(optimizer, warmup_step_count=20, total_step_count=STEPS, initial_lr=0.02)
    for step in range(STEPS):
        loss = module(*spirals(128, random))
        optimizer.step()
        scheduler.step()
        module.lazy_reset_grad()
        if step % 100 == 0 or step == STEPS - 1:
            print(f"step {step:4}: loss {float(loss):.4f}")
    state.properties["steps"] = STEPS
    CheckpointState.save_checkpoint(state, folder / "checkpoint", include_optimizer_state=True)
    module.export_model_for_inferencing(folder / "inference_model.onnx", ["scores"])
    session = sardonyx.InferenceSession(folder / "inference_model.onnx")
    points, labels = spirals(1000, random)
    (scores,) = session.run(["scores"], {"points": points})
    right = float((scores.argmax(axis=1) == labels).mean())
    print(f"{right:.1%} of new points are right")
    return right


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
