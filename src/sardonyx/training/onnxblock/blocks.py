"""Blocks: pieces of a graph that stack on one another, by the names of values.

    class Distance(onnxblock.Block):
        def __init__(self):
            super().__init__()
            self._sub, self._abs = onnxblock.blocks.Sub(), onnxblock.blocks.Abs()

        def build(self, a, b):
            return self._abs(self._sub(a, b))

`build` is called inside `onnxblock.base(model)` and returns the names of what it computes. `self.base` is the model itself, for
blocks that change it by their own means; `self.editor` changes it whichever form it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.training.onnxblock.editor import GraphEditor
from sardonyx.training.onnxblock.model_accessor import current
from sardonyx.training.onnxblock.names import fresh_name


class Block(ABC):
    """Base class of all blocks."""

    base: Any = None

    def __init__(self) -> None:
        self.base = None

    @property
    def editor(self) -> GraphEditor:
        """By which the model is changed."""
        return current().editor

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Add what the block is made of; the name of its output, or a tuple of names."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Build the block on the current model."""
        self.base = current().model
        return self.build(*args, **kwargs)


class _Op(Block):
    """A single node with one output."""

    op_type = ""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self._attributes = attributes

    def build(self, *inputs: str) -> str:
        output = fresh_name(f"{self.op_type.lower()}_output")
        self.editor.node(self.op_type, inputs, [output], **self._attributes)
        return output


class Add(_Op):
    """The sum of two values."""

    op_type = "Add"


class Sub(_Op):
    """The difference of two values."""

    op_type = "Sub"


class Mul(_Op):
    """The product of two values."""

    op_type = "Mul"


class Div(_Op):
    """The quotient of two values."""

    op_type = "Div"


class Sigmoid(_Op):
    """1 / (1 + exp(-x))."""

    op_type = "Sigmoid"


class Log(_Op):
    """The natural logarithm."""

    op_type = "Log"


class Neg(_Op):
    """The negative."""

    op_type = "Neg"


class Abs(_Op):
    """The absolute value."""

    op_type = "Abs"


class ReduceMean(_Op):
    """The mean of all elements."""

    op_type = "ReduceMean"

    def __init__(self, keepdims: bool = True) -> None:
        super().__init__(keepdims=int(keepdims))


class ReduceSum(_Op):
    """The sum of all elements."""

    op_type = "ReduceSum"

    def __init__(self, keepdims: bool = True) -> None:
        super().__init__(keepdims=int(keepdims))


class Cast(_Op):
    """The value in another element type, `to` as ONNX numbers them."""

    op_type = "Cast"

    def __init__(self, to: int) -> None:
        super().__init__(to=int(to))


class SequenceConstruct(_Op):
    """A sequence of values."""

    op_type = "SequenceConstruct"


class ReduceAllL2(Block):
    """The norm of all elements of all values."""

    def build(self, *inputs: str) -> str:
        output = fresh_name("reduce_all_l2_output")
        self.editor.node("ReduceAllL2", inputs, [output], domain="com.microsoft")
        return output


class Pow(Block):
    """A value to the power of a number."""

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self._exponent = exponent

    def build(self, name: str) -> str:
        exponent, output = fresh_name("pow_exponent"), fresh_name("pow_output")
        self.editor.constant(np.array([self._exponent], np.float32), exponent)
        self.editor.node("Pow", [name, exponent], [output])
        return output


class ConstantBlock(Block):
    """A number as an initializer."""

    def __init__(self, value_float: float) -> None:
        super().__init__()
        self._value = value_float

    def build(self) -> str:
        name = fresh_name("initializer")
        self.editor.constant(np.array([self._value], np.float32), name)
        return name


Constant = ConstantBlock  # ONNX Runtime's name


class Clip(Block):
    """A value within bounds, either of which may be None."""

    def __init__(self, clip_min: float | None = None, clip_max: float | None = None) -> None:
        super().__init__()
        self._bounds = clip_min, clip_max

    def build(self, name: str) -> str:
        inputs = [name]
        for bound in self._bounds:
            inputs.append("" if bound is None else fresh_name("clip_bound"))
            if bound is not None:
                self.editor.constant(np.array(bound, np.float32), inputs[-1])
        output = fresh_name("clip_output")
        self.editor.node("Clip", inputs if inputs[2] else inputs[:2] if inputs[1] else inputs[:1], [output])
        return output


class PassThrough(Block):
    """Nothing at all: the inputs are the outputs."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def build(self, *names: str) -> Any:
        return names[0] if len(names) == 1 else names


class InputLike(Block):
    """A new graph input of the type of another value."""

    def __init__(self, like: str) -> None:
        super().__init__()
        self._like = like

    def build(self, input_name: str | None = None) -> str:
        name = input_name or fresh_name("input")
        self.editor.input_like(name, self._like)
        return name


class LabelEncoder(Block):
    """Labels mapped to others (ai.onnx.ml)."""

    def __init__(
        self,
        default_float: float | None = None,
        default_int64: int | None = None,
        default_string: str | None = None,
        keys_floats: Sequence[float] | None = None,
        keys_int64s: Sequence[int] | None = None,
        keys_strings: Sequence[str] | None = None,
        values_floats: Sequence[float] | None = None,
        values_int64s: Sequence[int] | None = None,
        values_strings: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._attributes = {
            "default_float": default_float, "default_int64": default_int64, "default_string": default_string,
            "keys_floats": keys_floats, "keys_int64s": keys_int64s, "keys_strings": keys_strings,
            "values_floats": values_floats, "values_int64s": values_int64s, "values_strings": values_strings,
        }  # fmt: skip

    def build(self, name: str) -> str:
        output = fresh_name("label_encoder_output")
        self.editor.node("LabelEncoder", [name], [output], domain="ai.onnx.ml", **self._attributes)
        return output


class Linear(Block):
    """A dense layer with new weights: x @ weight + bias, uniform within 1 / sqrt(in_features) as PyTorch begins."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, alpha: float = 1.0, beta: float = 1.0) -> None:
        super().__init__()
        self._sizes = in_features, out_features
        self._bias = bias
        self._scales = alpha, beta

    def build(self, name: str) -> str:
        bound = 1 / np.sqrt(self._sizes[0])
        random = np.random.default_rng()
        inputs = [name, fresh_name("linear.weight")]
        self.editor.constant(random.uniform(-bound, bound, self._sizes).astype(dtypes.FLOAT32.numpy), inputs[1])
        if self._bias:
            inputs.append(fresh_name("linear.bias"))
            self.editor.constant(random.uniform(-bound, bound, self._sizes[1]).astype(dtypes.FLOAT32.numpy), inputs[2])
        output = fresh_name("linear.output")
        self.editor.node("Gemm", inputs, [output], alpha=self._scales[0], beta=self._scales[1])
        return output
