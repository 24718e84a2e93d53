"""Cycles that no model may have: nodes that wait for their own output, functions that call themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from sardonyx.analysis.liveness import used_values
from sardonyx.ir.graph import Function, Graph, Node, walk

FunctionKey: TypeAlias = tuple[str, str, str]  # domain, name, overload


def function_key(node: Node) -> FunctionKey:
    """The function a node calls, if the model has one of this key."""
    return node.domain, node.op_type, node.overload


def function_text(key: FunctionKey) -> str:
    """A function as messages name it."""
    domain, name, overload = key
    return f"{domain}::{name}" + (f":{overload}" if overload else "")


def find_cycle(graph: Graph) -> list[Node]:
    """Nodes that depend on each other in a circle, each on the one before it; empty if there is no circle."""
    producers: dict[Node, list[Node]] = {}
    consumers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        producers[node] = [value.producer for value in used_values(node) if value.producer and value.producer.graph is graph]
        for producer in producers[node]:
            consumers.setdefault(producer, []).append(node)
    waiting = {node: len(found) for node, found in producers.items()}
    ready = [node for node, count in waiting.items() if not count]
    for node in ready:
        for consumer in consumers.get(node, ()):
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
    stuck = next((node for node, count in waiting.items() if count), None)
    path: dict[Node, None] = {}
    while stuck is not None and stuck not in path:  # walking backwards from a node that never gets ready runs into the circle
        path[stuck] = None
        stuck = next(producer for producer in producers[stuck] if waiting[producer])
    if stuck is None:
        return []
    nodes = list(path)
    return nodes[nodes.index(stuck) :][::-1]


def find_recursion(functions: Mapping[FunctionKey, Function], roots: Iterable[FunctionKey]) -> list[FunctionKey]:
    """Functions that call each other in a circle, found from these functions; the first is also the last. Empty if none do."""
    done: set[FunctionKey] = set()
    for root in roots:
        path: dict[FunctionKey, Iterator[FunctionKey]] = {root: _called(functions, root)}  # each with the calls left to follow
        while path and root not in done:
            last = next(reversed(path))
            called = next(path[last], None)
            if called is None:
                done.add(last)
                del path[last]
            elif called in path:
                open_calls = list(path)
                return [*open_calls[open_calls.index(called) :], called]
            elif called not in done:
                path[called] = _called(functions, called)
    return []


def _called(functions: Mapping[FunctionKey, Function], key: FunctionKey) -> Iterator[FunctionKey]:
    calls = (function_key(node) for node in walk(functions[key].graph))
    return iter(dict.fromkeys(call for call in calls if call in functions))
