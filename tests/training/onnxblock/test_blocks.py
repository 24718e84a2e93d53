"""Blocks on both kinds of bases: losses against PyTorch, what becomes of the graph, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from small_trainings import dense

import sardonyx
from sardonyx.formats import onnx as onnx_format
from sardonyx.training import onnxblock
from sardonyx.training.onnxblock.messages import to_proto

RANDOM = np.random.default_rng(3)
SCORES = RANDOM.normal(size=(6, 4)).astype(np.float32)
TARGET = RANDOM.uniform(size=(6, 4)).astype(np.float32)
LABELS = RANDOM.integers(0, 4, 6)
POSITIVE = np.array([1.0, 2.0, 0.5, 3.0], np.float32)
F = torch.nn.functional


def base_of(kind: str, shape: tuple[Any, ...] = ("N", 4)) -> Any:
    """A model that gives its input out."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "plain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model if kind == "proto" else onnx_format.load(model)


class Built(onnxblock.ForwardBlock):
    def __init__(self, block: Any) -> None:
        super().__init__()
        self._block = block

    def build(self, *names: str) -> Any:
        return self._block(*names)


def run(block: Any, base: Any, *arrays: Any) -> Any:
    """What a block on a base computes; the first input is the base's."""
    built = Built(block)
    with onnxblock.base(base):
        built("y")
    content = built.to_model_proto().SerializeToString()
    session = sardonyx.InferenceSession(content)
    return session.run(None, {port.name: array for port, array in zip(session.get_inputs(), arrays, strict=True)})[0]


LOSSES: list[tuple[Any, Any, Any]] = [
    (onnxblock.loss.MSELoss(), TARGET, F.mse_loss),
    (onnxblock.loss.MSELoss(reduction="sum"), TARGET, lambda x, t: F.mse_loss(x, t, reduction="sum")),
    (onnxblock.loss.MSELoss(reduction="none"), TARGET, lambda x, t: F.mse_loss(x, t, reduction="none")),
    (onnxblock.loss.L1Loss(), TARGET, F.l1_loss),
    (onnxblock.loss.BCEWithLogitsLoss(), TARGET, F.binary_cross_entropy_with_logits),
    (
        onnxblock.loss.BCEWithLogitsLoss(weight=POSITIVE, pos_weight=POSITIVE, reduction="sum"),
        TARGET,
        lambda x, t: F.binary_cross_entropy_with_logits(
            x, t, torch.from_numpy(POSITIVE), reduction="sum", pos_weight=torch.from_numpy(POSITIVE)
        ),
    ),
    (onnxblock.loss.CrossEntropyLoss(), LABELS, F.cross_entropy),
    (
        onnxblock.loss.CrossEntropyLoss(weight=POSITIVE, reduction="sum", ignore_index=2),
        LABELS,
        lambda x, t: F.cross_entropy(x, t, torch.from_numpy(POSITIVE), reduction="sum", ignore_index=2),
    ),
]


@pytest.mark.parametrize("kind", ["proto", "ours"])
@pytest.mark.parametrize("number", range(len(LOSSES)))
def test_losses_are_those_of_pytorch(kind: str, number: int) -> None:
    block, target, reference = LOSSES[number]
    expected = reference(torch.from_numpy(SCORES), torch.from_numpy(target)).numpy()
    np.testing.assert_allclose(run(block, base_of(kind), SCORES, target), expected, rtol=1e-5, atol=1e-6)


def test_large_logits_do_not_overflow() -> None:
    logits, target = np.array([[200.0, -200.0, 0.0, 50.0]], np.float32), np.array([[0.0, 1.0, 1.0, 1.0]], np.float32)
    expected = F.binary_cross_entropy_with_logits(torch.from_numpy(logits), torch.from_numpy(target)).numpy()
    np.testing.assert_allclose(run(onnxblock.loss.BCEWithLogitsLoss(), base_of("ours"), logits, target), expected, rtol=1e-5)


def test_classes_are_the_last_axis_of_sequences() -> None:
    scores, labels = RANDOM.normal(size=(2, 5, 7)).astype(np.float32), RANDOM.integers(0, 7, (2, 5))
    found = run(onnxblock.loss.CrossEntropyLoss(), base_of("ours", ("N", "T", 7)), scores, labels)
    expected = F.cross_entropy(torch.from_numpy(scores).transpose(1, 2), torch.from_numpy(labels)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["proto", "ours"])
def test_blocks_compute_what_they_are_called(kind: str) -> None:
    blocks = onnxblock.blocks

    class Formula(onnxblock.Block):
        def build(self, x: str) -> Any:
            half = blocks.Mul()(x, blocks.Constant(0.5)())
            bounded = blocks.Clip(-1.0, 1.0)(blocks.Sub()(half, blocks.Div()(x, blocks.Constant(4.0)())))
            return blocks.ReduceSum(keepdims=False)(blocks.Add()(blocks.Pow(2.0)(bounded), blocks.Sigmoid()(x)))

    expected = (np.clip(SCORES / 4, -1, 1) ** 2 + 1 / (1 + np.exp(-SCORES))).sum()
    np.testing.assert_allclose(run(Formula(), base_of(kind), SCORES), expected, rtol=1e-5)


def test_a_callers_block_changes_messages() -> None:
    class Doubled(onnxblock.Block):
        def build(self, x: str) -> str:
            self.base.graph.node.append(helper.make_node("Add", [x, x], ["doubled"]))
            return "doubled"

    np.testing.assert_array_equal(run(Doubled(), base_of("proto"), SCORES), 2 * SCORES)


def test_training_models_have_the_form_of_onnxruntimes() -> None:
    class Trained(onnxblock.TrainingBlock):
        def build(self, name: str) -> Any:
            return onnxblock.loss.CrossEntropyLoss()(name)

    block = Trained()
    block.requires_grad("w1")
    block.requires_grad("b2", False)
    model = to_proto(dense())
    with onnxblock.base(model) as accessor:
        block("y")
        assert "w1_grad.accumulation.out" in [output.name for output in accessor.model.graph.output]
    training, evaluation = block.to_model_proto()
    inputs = ["x", "labels", "w1", "b2", "w1_grad.accumulation.buffer", "lazy_reset_grad"]
    assert [each.name for each in training.graph.input] == inputs
    assert [each.name for each in evaluation.graph.input] == inputs[:4]
    assert [each.name for each in training.graph.output][1:] == ["w1_grad.accumulation.out"]
    assert [node.op_type for node in training.graph.node if node.domain == "com.microsoft"] == ["InPlaceAccumulatorV2"]
    trainable, frozen = block.parameters()
    assert ([each.name for each in trainable], [each.name for each in frozen]) == (["w1"], ["b2"])
    onnx.checker.check_model(evaluation)


def test_parameters_go_into_a_checkpoint_and_back(tmp_path: Path) -> None:
    class Trained(onnxblock.TrainingBlock):
        def build(self, name: str) -> Any:
            return onnxblock.loss.MSELoss()(name)

    block = Trained()
    with pytest.raises(RuntimeError, match="Please build the training model first"):
        block.parameters()
    block.requires_grad("w1")
    model = dense()
    with onnxblock.base(model):
        block("y")
    onnxblock.save_checkpoint(block.parameters(), tmp_path / "checkpoint")
    other = to_proto(dense())
    next(each for each in other.graph.initializer if each.name == "w1").raw_data = bytes(4 * 16 * 4)
    onnxblock.load_checkpoint_to_model(tmp_path / "checkpoint", other)
    found = onnx_format.load(other).graph.initializers["w1"].constant
    expected = model.graph.initializers["w1"].constant
    assert found is not None
    assert expected is not None
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="The onnx model was not set"):
        onnxblock.blocks.Add()("a", "b")
    with pytest.raises(RuntimeError, match="Reduction median not supported"):
        onnxblock.loss.MSELoss(reduction="median")
    with pytest.raises(RuntimeError, match="Base onnx model already exists"), onnxblock.base(dense()), onnxblock.empty_base():
        pass
    with pytest.raises(RuntimeError, match="Base onnx model cannot be None"), onnxblock.base(None):
        pass
    with pytest.raises(RuntimeError, match="does not exist"), onnxblock.custom_op_library(tmp_path / "nowhere.so"):
        pass
    with pytest.raises(LookupError, match="nowhere"), onnxblock.base(dense()):
        onnxblock.loss.MSELoss()("nowhere")
    with pytest.raises(RuntimeError, match="There is no parameter to optimize"), onnxblock.empty_base():
        onnxblock.optim.AdamW()(([], []))
