"""What is known about the contents of values without running the model.

Two kinds of knowledge:
    known       the elements of a small tensor of whole numbers, each an integer or a symbolic dimension
                Concat(Shape(x)[0], -1, 64)  ->  (N, -1, 64)
    constant    the data of a tensor that depends on nothing but constants; computed when asked for, with the operator's `eval`

A table is filled node by node in execution order (`visit`); a node visited again, as in the body of a Loop whose shapes are
tried twice, replaces what was known about its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.analysis.value_rules import LIMIT, RULES, Known, NodeView, known_array, may_be_negative_zero
from sardonyx.dtypes import DType
from sardonyx.ir import dims
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import TensorType, Type
from sardonyx.ops import registry
from sardonyx.ops.registry import EvalContext, OpDef, Trait

CONSTANT_LIMIT: Final = 1 << 20  # bytes of an input or output of a computation done ahead of time
# Whole numbers up to 2**mantissa are exact in a float type; beyond, arithmetic on integers would not be what the model does.
_EXACT_FLOATS: Final = {dtypes.FLOAT32: 1 << 24, dtypes.FLOAT64: 1 << 53, dtypes.FLOAT16: 1 << 11, dtypes.BFLOAT16: 1 << 8}


class ValueTable:
    """Known contents by value. `variable` holds constants that may be replaced at run time, so nothing is known about them."""

    def __init__(self, type_of: Callable[[Value], Type | None], variable: Container[Value] = frozenset()) -> None:
        self._type_of = type_of
        self._variable = variable
        self._known: dict[Value, Known | None] = {}
        self._arrays: dict[Value, NDArray[Any] | None] = {}
        self._computable: dict[Value, tuple[OpDef, dict[str, Any]]] = {}  # a producer whose inputs are all constants
        self._outside: dict[Value, tuple[ValueTable, Value]] = {}

    def alias(self, value: Value, table: ValueTable, outside: Value) -> None:
        """Take what is known about `value` from another table: a parameter from the caller's, a result from the function's."""
        self._outside[value] = (table, outside)

    def visit(self, node: Node, attrs: dict[str, Any]) -> None:
        """Learn what a node's outputs hold; its inputs have been visited and the types of its outputs are known."""
        self.forget(node)
        rule = RULES.get(node.op_type) if node.domain == "" else None
        if rule is not None:
            self._propagate(node, attrs, rule)
        if all(value is None or self._is_constant(value) for value in node.inputs) and not node.subgraphs():
            definition = registry.lookup(node.domain, node.op_type, node.version)
            if definition is not None and _is_cheap(definition):
                self._computable.update(dict.fromkeys(node.outputs, (definition, attrs)))

    def forget(self, node: Node) -> None:
        """Know nothing about what a node makes."""
        for output in node.outputs:
            self._known.pop(output, None)
            self._arrays.pop(output, None)
            self._computable.pop(output, None)
            self._outside.pop(output, None)

    def _propagate(self, node: Node, attrs: dict[str, Any], rule: Callable[[NodeView], Any]) -> None:
        limits = [_limits(self._type_of(output)) for output in node.outputs]
        if not any(limits):
            return
        view = NodeView(node, attrs, self._type_of, self.known_of)
        try:
            result = rule(view)
        except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError):
            return  # the data does not fit: the shape rule, or the run, says so
        if result is None:
            return
        results = result if isinstance(result, list) else [result]
        if not isinstance(result, list) and may_be_negative_zero(view, result):
            return
        for output, limit, elements in zip(node.outputs, limits, results, strict=False):
            if limit and elements is not None and elements.size <= LIMIT and _fits(elements, *limit):
                self._known[output] = elements

    def _is_constant(self, value: Value) -> bool:
        if value in self._computable or self._arrays.get(value) is not None:
            return True
        if isinstance(value.constant, Tensor):
            return value not in self._variable
        known = self._known.get(value)
        if known is not None:
            return _is_numeric(known)
        outside = self._outside.get(value)
        return outside is not None and outside[0]._is_constant(outside[1])

    def known_of(self, value: Value) -> Known | None:
        """The elements of a small tensor of whole numbers as an array of numbers and expressions; None if not known."""
        if value in self._known:
            return self._known[value]
        known: Known | None = None
        if value in self._outside:
            table, outside = self._outside[value]
            known = table.known_of(outside)
        elif isinstance(value.constant, Tensor):
            if value not in self._variable and value.constant.size <= LIMIT and _limits_of(value.constant.dtype):
                data = _load(value.constant)
                known = None if data is None else known_array(data)
        elif value in self._computable and self._small(value):
            data = self.constant_of(value)
            if data is not None and data.size <= LIMIT and _limits_of(dtypes.from_numpy(data.dtype)):
                known = known_array(data)
        else:
            return None  # not kept: a later visit of the producer may know more
        self._known[value] = known
        return known

    def _small(self, value: Value) -> bool:
        count = _count(self._type_of(value))
        return count is not None and count <= LIMIT

    def constant_of(self, value: Value) -> NDArray[Any] | None:
        """The data of a value that depends on constants only; None if it does not, or if computing it ahead is too much."""
        if isinstance(value.constant, Tensor) and value not in self._variable:
            return _load(value.constant)
        if not self._is_constant(value):
            return None
        stack = [value]
        while stack:
            top = stack[-1]
            if self._resolved(top):
                stack.pop()
                continue
            node = top.producer
            assert node is not None  # only outputs of nodes are computable
            pending = [each for each in node.inputs if each is not None and not self._resolved(each)]
            if pending:
                stack.extend(pending)
            else:
                self._evaluate(node)
                stack.pop()
        return self._data(value)

    def _resolved(self, value: Value) -> bool:
        return value in self._arrays or value not in self._computable or self._numeric(value) is not None

    def _numeric(self, value: Value) -> Known | None:
        known = self._known.get(value)
        return known if known is not None and _is_numeric(known) else None

    def _data(self, value: Value) -> NDArray[Any] | None:
        if value in self._arrays:
            return self._arrays[value]
        if isinstance(value.constant, Tensor):
            return None if value in self._variable else _load(value.constant)
        known, type_ = self._numeric(value), self._type_of(value)
        if known is not None and isinstance(type_, TensorType):
            data = self._arrays[value] = np.asarray(known.tolist(), dtype=type_.dtype.numpy).reshape(known.shape)
            return data
        if value in self._outside:
            table, outside = self._outside[value]
            return table.constant_of(outside)
        return None

    def _evaluate(self, node: Node) -> None:
        """Compute the outputs of a node whose inputs are all resolved; None where that is not possible."""
        definition, attrs = self._computable[node.outputs[0]]
        for output in node.outputs:
            self._arrays[output] = None
        inputs = [None if value is None else self._data(value) for value in node.inputs]
        for value, data in zip(node.inputs, inputs, strict=True):
            if value is not None and (data is None or data.nbytes > CONSTANT_LIMIT):
                return
        if not all(self._result_is_bounded(node, output) for output in node.outputs):
            return
        context = EvalContext(node.version, tuple(bool(output.name) for output in node.outputs), node.label)
        try:
            with np.errstate(all="ignore"):
                taken = {name: attrs.get(name) for name in definition.attr_names}
                results = registry.call(definition, inputs, taken, context)
        except Exception:  # whatever is wrong with the data shows when the node runs, with its name
            return
        for output, result in zip(node.outputs, results, strict=False):
            if isinstance(result, np.ndarray):
                self._arrays[output] = result

    def _result_is_bounded(self, node: Node, output: Value) -> bool:
        if Trait.DATA_SIZED in registry.traits(node):  # no more than the inputs have, by far
            return True
        type_ = self._type_of(output)
        count = _count(type_)
        return count is not None and isinstance(type_, TensorType) and count * type_.dtype.numpy.itemsize <= CONSTANT_LIMIT


def _is_cheap(definition: OpDef) -> bool:
    """Whether it may be computed ahead of time: a product of matrices or an Einsum could keep a session from ever opening."""
    if definition.traits & Trait.RANDOM:
        return False
    return bool(definition.traits & (Trait.ELEMENTWISE | Trait.VIEW | Trait.AHEAD))


def _load(tensor: Tensor) -> NDArray[Any] | None:
    """The data of a constant; None if it cannot be had: a file that is gone, a text that left it out."""
    try:
        return tensor.numpy()
    except (ValueError, OSError):
        return None


def _count(type_: Type | None) -> int | None:
    """The number of elements of a tensor whose shape is known in numbers."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        return None
    count = dims.product(type_.shape)
    return count if isinstance(count, int) and all(isinstance(dim, int) for dim in type_.shape) else None


def _is_numeric(known: Known) -> bool:
    return all(isinstance(item, int) for item in known.reshape(-1))


def _limits(type_: Type | None) -> tuple[int, int] | None:
    return _limits_of(type_.dtype) if isinstance(type_, TensorType) else None


def _limits_of(dtype: DType) -> tuple[int, int] | None:
    """The least and the greatest whole number that arithmetic on integers treats as this type does."""
    if dtype is dtypes.BOOL:
        return 0, 1
    if dtype in (dtypes.INT64, dtypes.INT32, dtypes.INT16, dtypes.INT8):
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    if dtype in (dtypes.UINT64, dtypes.UINT32, dtypes.UINT16, dtypes.UINT8):
        return 0, (1 << dtype.bits) - 1
    exact = _EXACT_FLOATS.get(dtype)
    return None if exact is None else (-exact, exact)


def _fits(elements: Known, least: int, greatest: int) -> bool:
    sizes_fit = greatest >= 1 << 24  # a symbol stands for a size, which a narrower type need not hold
    return all(least <= item <= greatest if isinstance(item, int) else sizes_fit for item in elements.reshape(-1))
