"""Nodes that say together what one operator says, made one: so that it is quantized as one.

    Div, Erf, Add, Mul, Mul                                        ->  Gelu (com.microsoft)
    ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add     ->  LayerNormalization
    ReduceL2, Clip, Expand, Div                                    ->  LpNormalization
    Reshape and Transpose, alternating, seven in all               ->  SpaceToDepth

Each function changes a model and says how many nodes it has made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Attr, Graph, Model, Node, Value
from sardonyx.quantization.models import CONTRIB_OPERATORS, opset_version, remove_unused_initializers
from sardonyx.quantization.operators.constants import constant_array


def _reader(graph: Graph, value: Value, op_type: str) -> Node | None:
    """The only node that reads a value, if it is of this operator and nothing else sees the value."""
    readers = value.consumers
    if len(readers) != 1 or value in graph.outputs or readers[0].op_type != op_type or readers[0].graph is not graph:
        return None
    return readers[0]


def _number(value: Value | None) -> float | None:
    """The number that a constant of one element is."""
    array = constant_array(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _is_near(value: Value | None, expected: float, delta: float = 1e-6) -> bool:
    found = _number(value)
    return found is not None and abs(found - expected) < delta


def _other(node: Node, value: Value) -> Value | None:
    """The second operand of a node that reads a value once."""
    left, right = node.inputs[:2]
    return right if left is value else left


def _replace(graph: Graph, nodes: Sequence[Node], made: Node) -> bool:
    """Put a node where the last of these stands; False if one of the others is read elsewhere."""
    last = nodes[-1]
    inside = set(nodes)
    for node in nodes[:-1]:
        for value in node.outputs:
            if value in graph.outputs or any(reader not in inside for reader in value.consumers):
                for index in range(len(made.inputs)):
                    made.set_input(index, None)
                return False
    graph.insert_before(last, made)
    for node in reversed(nodes):
        for index in range(len(node.inputs)):
            node.set_input(index, None)
        graph.detach(node)
    for position, value in enumerate(last.outputs[:1]):
        made.outputs[position] = value
        value.producer, value.index = made, position
    return True


def _fused(
    op_type: str, inputs: Sequence[Value | None], name: str, version: int, attrs: Iterable[Attr] = (), domain: str = ""
) -> Node:
    return Node(op_type, inputs, [Value("")], attrs, domain=domain, version=version, name=name)


class _Names:
    """Names of new nodes: a prefix and the next free number."""

    def __init__(self, graph: Graph, prefix: str) -> None:
        ends = [node.name[len(prefix) :] for node in graph.nodes if node.name.startswith(prefix)]
        self._next = 1 + max((int(end) for end in ends if end.isascii() and end.isdigit()), default=-1)
        self._prefix = prefix

    def __call__(self) -> str:
        self._next += 1
        return f"{self._prefix}{self._next - 1}"


def _finished(model: Model, count: int) -> int:
    if count:
        remove_unused_initializers(model.graph)
        for node in list(model.graph.nodes):
            if node.op_type == "Constant" and not node.outputs[0].uses and node.outputs[0] not in model.graph.outputs:
                model.graph.remove(node)
    return count


def fuse_gelu(model: Model) -> int:
    """x * 0.5 * (1 + erf(x / sqrt(2))), in whatever order it is multiplied."""
    graph, count = model.graph, 0
    names = _Names(graph, "Gelu_fused_Erf_")
    for erf in list(graph.nodes):
        if erf.op_type != "Erf" or erf.graph is not graph:
            continue
        found = _gelu_of(graph, erf)
        if found is not None:
            root, nodes = found
            count += _replace(graph, nodes, _fused("Gelu", [root], names(), 1, domain=CONTRIB_OPERATORS))
    if count:
        model.opset_imports.setdefault(CONTRIB_OPERATORS, 1)
    return _finished(model, count)


def _gelu_of(graph: Graph, erf: Node) -> tuple[Value, list[Node]] | None:
    scaled = erf.inputs[0]
    scaling = None if scaled is None else scaled.producer
    if scaling is None or scaling.op_type not in ("Div", "Mul"):
        return None
    left, right = scaling.inputs[:2]
    if scaling.op_type == "Div":
        root = left if _is_near(right, 1.4142, 1e-3) else None
    else:
        root = left if _is_near(right, 0.70710677, 1e-3) else right if _is_near(left, 0.70710677, 1e-3) else None
    plus_one = _reader(graph, erf.outputs[0], "Add")
    if root is None or plus_one is None or not _is_near(_other(plus_one, erf.outputs[0]), 1.0):
        return None
    nodes, value = [scaling, erf, plus_one], plus_one.outputs[0]
    missing = {"root", "half"}
    while missing:
        product = _reader(graph, value, "Mul")
        factor = None if product is None else _other(product, value)
        if product is None or factor is None:
            return None
        halved = factor.producer
        if factor is root and "root" in missing:
            missing.discard("root")
        elif _is_near(factor, 0.5) and "half" in missing:
            missing.discard("half")
        elif halved is not None and halved.op_type == "Mul" and root in halved.inputs and len(missing) == 2:
            if not _is_near(_other(halved, root), 0.5):
                return None
            nodes.append(halved)
            missing.clear()
        else:
            return None
        nodes.append(product)
        value = product.outputs[0]
    return root, nodes


def _reduces_last_axis(node: Node) -> bool:
    """Whether a reduction is over the last axis alone, which stays as 1."""
    axes = node.attr("axes")
    if axes is None and len(node.inputs) > 1:
        given = constant_array(node.inputs[1])
        axes = None if given is None else tuple(int(axis) for axis in given.reshape(-1))
    value = node.inputs[0]
    rank = None if value is None or value.shape is None else len(value.shape)
    if axes is None or len(axes) != 1 or not node.attr("keepdims", 1):
        return False
    return bool(axes[0] == -1 or (rank is not None and axes[0] == rank - 1))


def fuse_layer_norms(model: Model) -> int:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias; from opset 17 on there is an operator for it."""
    graph, count = model.graph, 0
    version = opset_version(model)
    names = _Names(graph, "LayerNormalization_fused_ReduceMean_")
    for mean in list(graph.nodes) if version >= 17 else ():
        if mean.op_type != "ReduceMean" or mean.graph is not graph or not _reduces_last_axis(mean):
            continue
        found = _layer_norm_of(graph, mean)
        if found is not None:
            inputs, epsilon, nodes = found
            made = _fused("LayerNormalization", inputs, names(), version, [make_attr("epsilon", epsilon)])
            count += _replace(graph, nodes, made)
    return _finished(model, count)


def _layer_norm_of(graph: Graph, mean: Node) -> tuple[list[Value | None], float, list[Node]] | None:
    root = mean.inputs[0]
    differences = mean.outputs[0].consumers
    if not 1 <= len(differences) <= 2:
        return None
    if any(node.op_type != "Sub" or node.inputs[0] is not root or node.inputs[1] is not mean.outputs[0] for node in differences):
        return None
    division = next((node for each in differences for node in each.outputs[0].consumers if node.op_type == "Div"), None)
    if division is None or division.inputs[0] not in [node.outputs[0] for node in differences]:
        return None
    path: list[Node] = []
    value = division.inputs[1]
    for op_types in (("Sqrt",), ("Add",), ("ReduceMean",), ("Pow", "Mul")):
        node = None if value is None else value.producer
        if node is None or node.op_type not in op_types:
            return None
        path.append(node)
        value = node.inputs[0]
        if node.op_type == "Add" and constant_array(value) is not None:
            value = node.inputs[1]
    root_mean, shifted, variance, square = path
    epsilon = next((number for each in shifted.inputs if (number := _number(each)) is not None), None)
    if epsilon is None or not 0 < epsilon <= 1e-4 or not _reduces_last_axis(variance):
        return None
    if square.op_type == "Pow" and not _is_near(square.inputs[1], 2.0):
        return None
    if square.op_type == "Mul" and square.inputs[0] is not square.inputs[1]:
        return None
    cast = None if value is None else value.producer
    casts = [cast] if cast is not None and cast.op_type == "Cast" else []
    source = casts[0].inputs[0] if casts else value
    if source not in [node.outputs[0] for node in differences]:
        return None
    scaled = _reader(graph, division.outputs[0], "Mul")
    added = None if scaled is None else _reader(graph, scaled.outputs[0], "Add")
    if scaled is None or added is None:
        return None
    scale, bias = _other(scaled, division.outputs[0]), _other(added, scaled.outputs[0])
    for each in (scale, bias):
        array = constant_array(each)
        if array is None or array.ndim != 1:
            return None
    nodes = [mean, *differences, *casts, square, variance, shifted, root_mean, division, scaled, added]
    return [root, scale, bias], epsilon, nodes


def fuse_lp_norms(model: Model, epsilon: float = 1e-12) -> int:
    """x / expand(clip(|x|, epsilon)) along the last axis."""
    graph, count = model.graph, 0
    names = _Names(graph, "LpNormalization_fused_ReduceL2_")
    for length in list(graph.nodes):
        if length.op_type != "ReduceL2" or length.graph is not graph or not _reduces_last_axis(length):
            continue
        clip = _reader(graph, length.outputs[0], "Clip")
        expand = None if clip is None else _reader(graph, clip.outputs[0], "Expand")
        division = None if expand is None else _reader(graph, expand.outputs[0], "Div")
        if clip is None or expand is None or division is None:
            continue
        least = clip.attr("min", _number(clip.inputs[1]) if len(clip.inputs) > 1 else None)
        has_greatest = "max" in clip.attrs or (len(clip.inputs) > 2 and clip.inputs[2] is not None)
        if has_greatest or least is None or not least > 0 or abs(least - epsilon) >= 1e-13:
            continue
        if division.inputs[0] is not length.inputs[0] or division.inputs[1] is not expand.outputs[0]:
            continue
        attrs = [make_attr("p", 2), make_attr("axis", -1)]
        made = _fused("LpNormalization", [length.inputs[0]], names(), opset_version(model), attrs)
        count += _replace(graph, [length, clip, expand, division], made)
    return _finished(model, count)


def fuse_space_to_depth(model: Model) -> int:
    """Blocks of pixels moved to channels by reshaping and transposing, as early detectors of the YOLO family do it."""
    graph, count = model.graph, 0
    names = _Names(graph, "SpaceToDepth_fused_Reshape_")
    for first in list(graph.nodes):
        if first.op_type != "Reshape" or first.graph is not graph:
            continue
        nodes: list[Node] = [first]
        for op_type in ("Transpose", "Reshape") * 3:
            following = _reader(graph, nodes[-1].outputs[0], op_type)
            if following is None:
                break
            nodes.append(following)
        size = _block_of(nodes) if len(nodes) == 7 else None
        if size is not None:
            made = _fused("SpaceToDepth", [first.inputs[0]], names(), opset_version(model), [make_attr("blocksize", size)])
            count += _replace(graph, nodes, made)
    return _finished(model, count)


def _block_of(nodes: Sequence[Node]) -> int | None:
    """The size of a block, if the shapes and orders of all steps are those of SpaceToDepth."""
    shapes: list[Any] = [nodes[0].inputs[0].shape if nodes[0].inputs[0] is not None else None]
    shapes += [node.outputs[0].shape for node in nodes[::2]]
    if any(shape is None or not all(isinstance(size, int) for size in shape) for shape in shapes):
        return None
    given, split = shapes[0], shapes[1]
    if len(given) != 4 or len(split) != 6:
        return None
    batch, channels, height, width = given
    size = int(split[3])
    if size < 1 or height % size or width % size:
        return None
    rows, columns = height // size, width // size
    expected = [
        (batch, channels, rows, size, columns, size),
        (batch, channels, rows * columns, size * size),
        (batch, channels, size * size, rows, columns),
        (batch, size * size * channels, rows, columns),
    ]
    orders = [tuple(node.attr("perm", ())) for node in nodes[1::2]]
    if [tuple(shape) for shape in shapes[1:]] != expected or orders != [(0, 1, 2, 4, 3, 5), (0, 1, 3, 2), (0, 2, 1, 3, 4)]:
        return None
    return size
