"""Divides a graph between execution providers: what one of them claims becomes a single node of the graph.

    x ── Conv ── Relu ── Sqrt ── y      =>      x ── ProviderRegion ── Sqrt ── y

Providers are asked in order of priority, each for a graph and then for the bodies of the nodes it left. A region whose provider
has memory of its own reads and writes handles; copies at its borders are nodes, too (MemcpyFromHost, MemcpyToHost), one for each
value and device, and none between regions of the same device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from sardonyx import errors
from sardonyx.analysis.liveness import used_values
from sardonyx.ir.clone import Cloner
from sardonyx.ir.graph import Function, Graph, Node, Value, is_constant, walk
from sardonyx.ir.region import FROM_HOST, REGION, TO_HOST, NodeName, ProviderRegion, region_node, region_of
from sardonyx.ir.types import TensorType, Type
from sardonyx.matching.kernels import TypeResolver
from sardonyx.matching.signatures import SIGNATURES
from sardonyx.providers.connected import detour, predecessors
from sardonyx.providers.protocol import ClaimedRegion, Declined, Device, ExecutionProvider, GraphView, RegionFunction

_log = logging.getLogger("sardonyx")
_SHOWN: Final = 6  # nodes of a region that a message names


def partition(graph: Graph, providers: Iterable[ExecutionProvider], resolver: TypeResolver = SIGNATURES) -> None:
    """Let providers take what they claim of a graph and of its bodies, each of what those before it have left."""
    devices: dict[Node, Device] = {}
    for provider in providers:
        _let_claim(graph, provider, devices, resolver)
    if devices:
        for inner in (graph, *(body for node in graph.nodes for body in _bodies(node))):
            _copy_at_borders(inner, devices)


def _let_claim(graph: Graph, provider: ExecutionProvider, devices: dict[Node, Device], resolver: TypeResolver) -> None:
    for number, nodes in enumerate(_claims(provider, view_of(graph, resolver))):
        made = _collapse(graph, provider, nodes, f"{provider.name}_{graph.name}_{number}")
        if made is not None and provider.device is not None:
            devices[made] = provider.device
    for node in list(graph.nodes):
        for body in node.subgraphs():
            _let_claim(body, provider, devices, resolver)


def view_of(graph: Graph, resolver: TypeResolver = SIGNATURES) -> GraphView:
    """A graph as the next provider sees it."""
    return GraphView(graph, [node for node in graph.nodes if not _is_taken(node)], resolver)


def _is_taken(node: Node) -> bool:
    """Whether a provider has claimed a node, or a part of what it runs."""
    return region_of(node) is not None or any(region_of(each) is not None for body in node.subgraphs() for each in walk(body))


def _claims(provider: ExecutionProvider, view: GraphView) -> list[list[Node]]:
    """The regions a provider asks for, each in the order of the graph."""
    try:
        claimed = [list(dict.fromkeys(nodes)) for nodes in provider.claim(view)]
    except errors.SardonyxError:
        raise
    except Exception as error:
        text = f"{provider.name} failed to claim nodes of graph {view.graph.name!r}: {type(error).__name__}: {error}"
        raise errors.EPFail(text) from error
    positions = {node: position for position, node in enumerate(view.nodes)}
    seen: set[Node] = set()
    for nodes in claimed:
        for node in nodes:
            if node not in positions or node in seen:
                why = "claims it twice" if node in seen else "was not offered it"
                raise errors.EPFail(f"{provider.name} claims {node.label}, but {why}")
            seen.add(node)
    return [sorted(nodes, key=positions.__getitem__) for nodes in claimed if nodes]


def _listing(nodes: Sequence[Node]) -> str:
    rest = len(nodes) - _SHOWN
    return ", ".join(node.label for node in nodes[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _collapse(graph: Graph, provider: ExecutionProvider, nodes: Sequence[Node], name: str) -> Node | None:
    """One node in the place of these; None if the provider declines them."""
    outside = detour(predecessors(graph), nodes)
    if outside is not None:
        raise errors.EPFail(
            f"{provider.name} claims {_listing(nodes)} as one region, but a path leaves it to {outside.label} and comes back",
            hint="GraphView.regions makes regions without such paths",
        )
    body, inputs, outputs = _extract(graph, nodes, name)
    if provider.device is not None:
        for value in (*inputs, *outputs):
            if not isinstance(value.type, TensorType):
                text = f"{provider.name} claims {_listing(nodes)}, but {value.name!r} is {value.type}"
                raise errors.EPFail(f"{text}: only tensors are copied to and from {provider.device.name}")
    try:
        function = provider.compile(ClaimedRegion(name, body))
    except Declined as refusal:
        _log.info("%s declines %s: %s", provider.name, _listing(nodes), refusal)
        return None
    except Exception as error:
        text = f"{provider.name} failed to compile a region of {len(nodes)} nodes ({_listing(nodes)})"
        raise errors.EPFail(f"{text}: {type(error).__name__}: {error}") from error
    types = None if provider.device is not None else [value.type for value in body.outputs]
    region = ProviderRegion(
        provider.name,
        tuple(map(NodeName.of, nodes)),
        _runner(provider.name, _listing(nodes), [value.name for value in outputs], function, types),
        Function("", name, "", body),
    )
    return _replace(graph, nodes, lambda: region_node(REGION, name, inputs, outputs, region))


def _extract(graph: Graph, nodes: Sequence[Node], name: str) -> tuple[Graph, list[Value], list[Value]]:
    """Some nodes as a graph of their own, with the values it reads and those that others read of it."""
    made = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in used_values(node) if value not in made)
    body = Graph(name)
    cloner = Cloner()
    inputs: list[Value] = []
    taken = {value.name for value in made}
    for value in read:
        copy = Value(value.name, value.type, _constant(graph, value))
        while copy.name in taken:  # graphs around may use a name twice
            copy.name += "_"
        taken.add(copy.name)
        if copy.constant is None:
            inputs.append(value)
            body.inputs.append(copy)
        else:
            body.initializers[copy.name] = copy
        cloner.values[value] = copy
    members = set(nodes)
    given_out = {*graph.outputs, *(value for node in graph.nodes for each in _bodies(node) for value in each.outputs)}

    def is_read_outside(value: Value) -> bool:
        return value in given_out or any(_member_of(graph, user) not in members for user, _ in value.uses)

    named = [value for node in nodes for value in node.outputs if value.name]
    outputs = [value for value in named if is_read_outside(value)] or named
    for node in nodes:
        body.append(cloner.node(node))
    body.outputs = [cloner.value(value) for value in outputs]
    return body, inputs, outputs


def _constant(graph: Graph, value: Value) -> Any:
    """The data of a value that is the same in every run; None if it is computed, or a feed may replace it."""
    if value.producer is not None:
        node = value.producer
        return node.attr("value") if (node.domain, node.op_type) == ("", "Constant") else None
    return value.constant if is_constant(value, graph) else None


def _bodies(node: Node) -> Iterable[Graph]:
    for body in node.subgraphs():
        yield body
        for inner in walk(body):
            yield from inner.subgraphs()


def _member_of(graph: Graph, node: Node) -> Node:
    """The node of a graph in one of whose bodies a node stands; the node itself if it is of that graph."""
    while node.graph is not graph and node.graph is not None and node.graph.parent_node is not None:
        node = node.graph.parent_node
    return node


def _replace(graph: Graph, nodes: Sequence[Node], make: Callable[[], Node]) -> Node:
    """Put a new node, which takes over their outputs, in the place of others: where the last of them stood.

    What stands between them and needs their results moves behind it.
    """
    members = set(nodes)
    moved: list[Node] = []
    behind = set(nodes)
    between = False
    for node, needed in predecessors(graph).items():
        between = between or node in members
        if node is nodes[-1]:
            break
        if between and node not in members and any(each in behind for each in needed):
            behind.add(node)
            moved.append(node)
    new = make()
    graph.insert_after(nodes[-1], new)
    anchor = new
    for node in moved:
        graph.detach(node)
        anchor = graph.insert_after(anchor, node)
    for node in nodes:
        kept = node.outputs
        node.outputs = []  # they are the new node's
        graph.remove(node)
        node.outputs = kept
    return new


def _runner(
    provider: str, listing: str, names: Sequence[str], function: RegionFunction, types: Sequence[Type | None] | None
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What runs a region; errors name the provider and the nodes. `types` are those of results in the host's memory."""

    def run(inputs: Sequence[Any]) -> tuple[Any, ...]:
        try:
            results = tuple(function(inputs))
        except errors.SardonyxError:
            raise
        except Exception as error:
            said = str(error) or type(error).__name__
            raise errors.NodeFailed(f"{provider} failed to compute {listing}: {type(error).__name__}: {said}") from error
        if len(results) != len(names):
            text = f"{provider} returned {len(results)} values for {listing}, expected {len(names)}: {', '.join(names)}"
            raise errors.NodeFailed(text)
        for name, result, type_ in zip(names, results, types or ()):
            problem = _misfit(result, type_)
            if problem:
                raise errors.NodeFailed(f"{provider} computes {listing}: {name!r} is {problem}")
        return tuple(_borrowed(result, inputs) for result in results)

    return run


def _borrowed(result: Any, inputs: Sequence[Any]) -> Any:
    """A result that shares memory with an input may not be changed by who gets it: it is copied before it leaves the program."""
    if not isinstance(result, np.ndarray) or not any(
        isinstance(value, np.ndarray) and np.may_share_memory(result, value) for value in inputs
    ):
        return result
    view = result.view()
    view.flags.writeable = False
    return view


def _misfit(result: Any, type_: Type | None) -> str:
    """What is wrong with a result of this type, or "". Sizes are compared by those who rely on them."""
    if not isinstance(type_, TensorType):
        return ""
    if not isinstance(result, np.ndarray):
        return f"a {type(result).__name__}, expected an array of {type_.dtype.name}"
    if result.dtype != type_.dtype.numpy:
        return f"an array of {result.dtype}, expected {type_.dtype.numpy}"
    if type_.shape is not None and len(type_.shape) != result.ndim:
        return f"an array of shape {list(result.shape)}, expected {len(type_.shape)} dimensions"
    return ""


def _copy_at_borders(graph: Graph, devices: dict[Node, Device]) -> None:
    """Let regions with memory of their own read and write handles, and copy where other nodes read or write the values."""
    uploaded: dict[tuple[Value, str], Value] = {}
    for node in [each for each in graph.nodes if each in devices]:
        device = devices[node]
        for index, value in enumerate(node.inputs):
            if value is None or value.device == device.name:
                continue
            if (value, device.name) not in uploaded:
                handle = _handle(value, device)
                region = ProviderRegion(device.name, (), _copier(device.upload, f"to {device.name}", None))
                graph.insert_before(node, region_node(FROM_HOST, f"{value.name}_to_{device.name}", [value], [handle], region))
                uploaded[value, device.name] = handle
            node.set_input(index, uploaded[value, device.name])
        for index, value in enumerate(node.outputs):
            handle = _handle(value, device)
            node.outputs[index], handle.producer, handle.index = handle, node, index
            for user, position in list(value.uses):
                if user.graph is graph and user in devices and devices[user].name == device.name:
                    user.set_input(position, handle)
            region = ProviderRegion(device.name, (), _copier(device.download, f"from {device.name}", value.type))
            graph.insert_after(node, region_node(TO_HOST, f"{value.name}_from_{device.name}", [handle], [value], region))


def _handle(value: Value, device: Device) -> Value:
    handle = Value(f"{value.name}@{device.name}", value.type)
    handle.device = device.name
    return handle


def _copier(copy: Callable[[Any], Any], where: str, expected: Type | None) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    def run(inputs: Sequence[Any]) -> tuple[Any, ...]:
        try:
            made = copy(inputs[0])
        except Exception as error:
            raise errors.NodeFailed(f"copying a value {where} failed: {type(error).__name__}: {error}") from error
        problem = _misfit(made, expected)
        if problem:
            raise errors.NodeFailed(f"what was copied {where} is {problem}")
        return (made,)

    return run


def expand_regions(graph: Graph) -> None:
    """Put the nodes of all regions back, for a file that others read."""
    for node in [each for each in walk(graph) if region_of(each) is not None]:
        region, outer = region_of(node), node.graph
        assert region is not None
        assert outer is not None
        if region.function is None:
            (source,) = node.inputs
            assert source is not None
            _stand_in(outer, node.outputs[0], source)
        else:
            _inline(graph, outer, node, region.function.graph)
        outer.remove(node)


def _inline(top: Graph, outer: Graph, node: Node, body: Graph) -> None:
    values: dict[Value, Value | None] = dict(zip(body.inputs, node.inputs))
    for name, value in body.initializers.items():
        known = outer.initializers.get(name)
        if known is None or known.constant is not value.constant:
            known = Value(_free_name(top, name), value.type, value.constant)
            outer.initializers[known.name] = known
        values[value] = known
    for given, value in zip(body.outputs, node.outputs):
        values[given] = Value(value.name, value.type)
    cloner = Cloner(values)
    for inner in body.nodes:
        outer.insert_before(node, cloner.node(inner))
    for given, value in zip(body.outputs, node.outputs):
        made = values[given]
        assert made is not None
        _stand_in(outer, value, made)


def _stand_in(graph: Graph, old: Value, new: Value) -> None:
    """Every reader of a value, and the graph if it gives it out, reads another one instead."""
    for user, index in list(old.uses):
        user.set_input(index, new)
    for inner in (graph, *(body for node in graph.nodes for body in _bodies(node))):
        inner.outputs = [new if value is old else value for value in inner.outputs]


def _free_name(graph: Graph, name: str) -> str:
    taken = {value.name for node in walk(graph) for value in node.outputs} | {value.name for value in graph.inputs}
    taken |= {each for body in (graph, *(body for node in graph.nodes for body in _bodies(node))) for each in body.initializers}
    while name in taken:
        name += "_"
    return name
