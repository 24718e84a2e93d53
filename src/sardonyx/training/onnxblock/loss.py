"""Losses: blocks that compare an output of the model with a target, which becomes an input of the model if it is none yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.training.onnxblock import blocks
from sardonyx.training.onnxblock.names import fresh_name

_REDUCTIONS: dict[str, Any] = {"mean": blocks.ReduceMean, "sum": blocks.ReduceSum, "none": blocks.PassThrough}


def _checked(reduction: str) -> str:
    if reduction not in _REDUCTIONS:
        raise RuntimeError(f"Reduction {reduction} not supported.")
    return reduction


class _ElementLoss(blocks.Block):
    """A loss for each element, reduced."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self._reduce = _REDUCTIONS[_checked(reduction)](keepdims=False)

    def build(self, loss_input_name: str, target_name: str = "target") -> Any:
        if not self.editor.has_value(target_name):
            target_name = blocks.InputLike(loss_input_name)(target_name)
        return self._reduce(self._elements(loss_input_name, target_name))

    def _elements(self, value: str, target: str) -> str:
        raise NotImplementedError


class MSELoss(_ElementLoss):
    """The mean of the squared differences, or their sum, or the squares themselves."""

    def _elements(self, value: str, target: str) -> str:
        difference = str(blocks.Sub()(value, target))
        return str(blocks.Mul()(difference, difference))


class L1Loss(_ElementLoss):
    """The mean of the absolute differences, or their sum, or these themselves."""

    def _elements(self, value: str, target: str) -> str:
        return str(blocks.Abs()(blocks.Sub()(value, target)))


class BCEWithLogitsLoss(_ElementLoss):
    """Binary cross entropy of sigmoid(input): max(x, 0) - x * target + log(1 + exp(-|x|)), which no input makes overflow.

    `weight` scales the loss of each element; `pos_weight` that of positive examples.
    """

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__(reduction)
        self._weight = weight
        self._pos_weight = pos_weight

    def _constant(self, array: Any, token: str) -> str:
        name = fresh_name(f"bceloss.{token}")
        self.editor.constant(np.asarray(array, np.float32), name)
        return name

    def _softplus(self, name: str) -> str:
        output = fresh_name("bceloss.softplus")
        self.editor.node("Softplus", [name], [output])
        return output

    def _elements(self, value: str, target: str) -> str:
        # -(t * log(sigmoid(x)) + (1 - t) * log(1 - sigmoid(x)))  =  t * softplus(-x) + (1 - t) * softplus(x)
        positive = blocks.Mul()(target, self._softplus(blocks.Neg()(value)))
        if self._pos_weight is not None:
            positive = blocks.Mul()(positive, self._constant(self._pos_weight, "pos_weight"))
        rest = blocks.Sub()(self._constant([1.0], "one"), target)
        loss = blocks.Add()(positive, blocks.Mul()(rest, self._softplus(value)))
        if self._weight is not None:
            loss = blocks.Mul()(self._constant(self._weight, "weight"), loss)
        return str(loss)


class CrossEntropyLoss(blocks.Block):
    """Cross entropy of scores and labels, which are whole numbers.

    The classes are the last axis of the scores; if the labels are there already, and have a type of their own, the second, as in
    ONNX and PyTorch.
    """

    def __init__(self, weight: Any = None, reduction: str = "mean", ignore_index: int | None = None) -> None:
        super().__init__()
        self._weight = weight
        self._reduction = _checked(reduction)
        self._ignore_index = ignore_index

    def build(self, scores_input_name: str, labels_name: str = "labels") -> str:
        if not self.editor.has_value(labels_name):
            self.editor.input_like(labels_name, scores_input_name, dtype=dtypes.INT64, without_last=True)
            rank = self.editor.rank(scores_input_name) or 2
            if rank > 2:  # the operator has them on the second axis
                moved = fresh_name("celoss.scores")
                self.editor.node("Transpose", [scores_input_name], [moved], perm=[0, rank - 1, *range(1, rank - 1)])
                scores_input_name = moved
        inputs = [scores_input_name, labels_name]
        if self._weight is not None:
            inputs.append(fresh_name("celoss.weight"))
            self.editor.constant(np.asarray(self._weight, np.float32), inputs[-1])
        loss, log_prob = fresh_name("loss"), fresh_name("log_prob")
        self.editor.node(
            "SoftmaxCrossEntropyLoss", inputs, [loss, log_prob], reduction=self._reduction, ignore_index=self._ignore_index
        )
        return loss
