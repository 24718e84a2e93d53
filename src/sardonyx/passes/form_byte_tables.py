"""Functions of one byte as tables of 256 results.

    s = com.microsoft::QLinearSigmoid(x, ...);  y = com.microsoft::QLinearMul(x, ..., s, ...)     =>   y = sardonyx::ByteTable(x)
    y = QuantizeLinear(HardSwish(DequantizeLinear(x, ...)), ...)                                  =>   y = sardonyx::ByteTable(x)

Whatever elementwise nodes make bytes of one tensor of bytes and of single constants has only 256 results: they are computed
here, by the operators' definitions, and looked up in a few instructions where the machine permutes bytes
(`Target.has_byte_permute`), or one by one where vectors are short. Values in between that others read are computed for them as
before. Refuses nodes that are quicker than a table: bounds, and quantization alone; and all but exponentials and what is made of
them where bytes are looked up one by one.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.ops import registry
from sardonyx.ops.registry import EvalContext, Trait, traits
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.quantized_values import BYTES
from sardonyx.passes.rewriter import MICROSOFT, Rewriter, dtype_of
from sardonyx.records import dataclass

_DOMAIN: Final = "sardonyx"
_MOST_NODES: Final = 24
_QUANTIZING: Final = frozenset(("QuantizeLinear", "DequantizeLinear"))
_QUICK: Final = frozenset(("QuantizeLinear", "DequantizeLinear", "Max", "Min", "Clip", "Relu", "Cast", "Identity"))
_EXPONENTIAL: Final = "Celu Elu Erf Exp FastGelu Gelu Log Mish Pow QLinearSigmoid QuickGelu Selu Sigmoid Softplus Swish Tanh"
_SLOW: Final = frozenset((*_EXPONENTIAL.split(), "ByteTable"))
_ALL_BYTES: Final = np.arange(256, dtype=np.uint8)


@dataclass(frozen=True)
class _Function:
    source: Value  # the bytes it is a function of
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class FormByteTables(Rule[_Function]):
    """Elementwise nodes between one tensor of bytes and another."""

    name: ClassVar[str] = "FormByteTables"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(
        ("QuantizeLinear", "QLinearMul", "QLinearAdd", "QLinearSigmoid", "QLinearLeakyRelu")
    )
    domains: ClassVar[frozenset[str]] = frozenset(("", MICROSOFT))
    is_used: bool = True  # the pipeline asks the target
    permutes: bool = True  # whether many bytes are looked up at once

    def match(self, g: Rewriter, node: Node) -> _Function | Reject | None:
        value = node.outputs[0]
        if not self.is_used or dtype_of(value) not in BYTES or not value.shape:
            return None
        found = _function(g, value)
        if found is None:
            return None
        return found if any(self._is_slow(each.op_type) for each in found.nodes) else None

    def _is_slow(self, operator: str) -> bool:
        return operator not in _QUICK if self.permutes else operator in _SLOW

    def check(self, g: Rewriter, found: _Function) -> Array | Reject:
        """The table."""
        results: dict[Value, Array] = {found.source: _ALL_BYTES.view(_numpy(found.source))}
        for node in reversed(found.nodes):
            reason = _evaluate(g, node, results)
            if reason:
                return Reject(reason)
        return results[g.anchor.outputs[0]]

    def rewrite(self, g: Rewriter, found: _Function, facts: Array) -> None:
        attrs = {"table": facts.view(np.uint8).tolist(), "signed": int(facts.dtype == np.int8)}
        g.replace(g.anchor.outputs[0], g.op("ByteTable", found.source, domain=_DOMAIN, **attrs))


def _numpy(value: Value) -> np.dtype[np.generic]:
    dtype = dtype_of(value)
    assert dtype is not None
    return np.dtype(dtype.numpy)


def _function(g: Rewriter, value: Value) -> _Function | None:
    """The nodes that make a value of one tensor of bytes, those that read others first; the earliest such tensor."""
    expanded: dict[Value, Node] = {}
    frontier = [value]
    found: _Function | None = None
    while len(expanded) < _MOST_NODES:
        following = next((each for each in frontier if _is_tabulated(g, each, value)), None)
        if following is None:
            break
        node = following.producer
        assert node is not None
        frontier.remove(following)
        expanded[following] = node
        read = [each for each in node.inputs if each is not None and g.constant_of(each) is None]
        frontier += [each for each in dict.fromkeys(read) if each not in expanded and each not in frontier]
        if len(frontier) == 1 and dtype_of(frontier[0]) in BYTES and frontier[0].shape == value.shape:
            found = _Function(frontier[0], _in_order(value, expanded))
    return found


def _in_order(value: Value, made: dict[Value, Node]) -> tuple[Node, ...]:
    """Nodes such that every one comes before those that it reads from."""
    order: list[Node] = []
    left, seen = [(value, False)], set[Value]()
    while left:
        each, is_done = left.pop()
        node = made.get(each)
        if node is None or (each in seen and not is_done):
            continue
        if is_done:
            order.append(node)
            continue
        seen.add(each)
        left.append((each, True))
        left += [(given, False) for given in node.inputs if given is not None]
    return tuple(reversed(order))


def _is_tabulated(g: Rewriter, value: Value, like: Value) -> bool:
    """Whether a value is made element by element, of values of its shape and single constants."""
    node = value.producer
    if node is None or value.shape != like.shape or len([each for each in node.outputs if each.name]) != 1 or node.subgraphs():
        return False
    is_elementwise = Trait.ELEMENTWISE in traits(node) and not traits(node) & Trait.RANDOM
    if not is_elementwise and not (node.op_type in _QUANTIZING and is_standard(node)):
        return False
    if dtype_of(value) not in (*BYTES, dtypes.FLOAT32):
        return False
    for each in node.inputs:
        held = None if each is None else g.constant_of(each)
        if each is not None and (held.size != 1 if held is not None else each.shape != like.shape):
            return False
    return True


def _evaluate(g: Rewriter, node: Node, results: dict[Value, Array]) -> str:
    """Compute a node for all bytes; why that cannot be done, or ""."""
    definition = registry.lookup(node.domain, node.op_type, node.version)
    if definition is None:
        return f"{node.op_type} has no definition"
    inputs: list[Array | None] = []
    for value in node.inputs:
        data = None if value is None else results.get(value)
        if value is not None and data is None:
            data = g.array(value)
            if data is None:
                return "the data of an input cannot be read"
            data = data.reshape(())
        inputs.append(data)
    attrs = attribute_values(node)
    taken = {name: attrs.get(name) for name in definition.attr_names}
    context = EvalContext(node.version, (True,), node.label)
    try:
        with np.errstate(all="ignore"):
            made = registry.call(definition, inputs, taken, context)[0]
    except Exception as error:  # whatever is wrong with it shows when the node runs, with its name
        return f"computing it fails: {error}"
    if not isinstance(made, np.ndarray) or made.shape != _ALL_BYTES.shape:
        return "it is not computed element by element"
    results[node.outputs[0]] = made
    return ""
