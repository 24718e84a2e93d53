"""Which nodes share a kernel.

    y = Conv(x, w)            group 0: Conv, with the addition and the activation in its epilogue
    z = Add(y, r)             (r is computed before group 0)
    u = Relu(z)

Nodes are taken in order. An elementwise node joins the group that produces the latest of its inputs, if that group works on the
same shape and is not too long: all other inputs then exist before the group runs. (A Cast to a wider type that only reductions
read leaves the kernel of a template to them; functions of many results that a reduction makes one by one have a kernel of their
own, which computes them in vectors.) Elementwise groups of the same shape that
compute those are taken into it, if no group in between uses a value of them; so a reduction takes the group that computes its
input into its own. Values of a group that are used outside it are stored as well.
Nodes with a low priority (`Node.priority` above 0) that depend on none without share no kernel with others, and the others share
theirs as if those values were inputs: a value that is computed again, instead of being kept, changes no bit of what is computed
from it. Kernels then run by priority, the lowest number that is ready first, and of the same priority in the graph's order.
The reason why a node did not join is kept for `explain`.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from sardonyx.analysis.liveness import used_values
from sardonyx.ir.dims import DimExpr, Expectation, symbols_of
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import Shape, TensorType, format_shape
from sardonyx.lower import registry
from sardonyx.lower.contracts import expectations
from sardonyx.lower.registry import Template
from sardonyx.records import dataclass

if TYPE_CHECKING:
    from sardonyx.lower.shape_values import KnownValues

GroupKind: TypeAlias = Literal["loop", "template", "view", "merge", "host"]
Region: TypeAlias = tuple[tuple[Node, bool], ...]  # the sides of Ifs that a node is on, from outside to inside

NATIVE_TYPES = frozenset(
    ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
)  # fmt: skip

# A kernel of thousands of nodes takes LLVM longer, node for node, than several small ones, and gains nothing: what it keeps in
# registers is a load and a store in a hundred operations. A number with many divisors, so that the parts of a chain that
# repeats itself are the same kernel.
MOST_NODES = 120

# Elementwise operators that take tens of operations: as long for one element as for a vector of them.
_FUNCTIONS = frozenset(
    (
        "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BiasGelu", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "FastGelu",
        "Gelu", "Log", "Mish", "Pow", "QuickGelu", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus", "Swish", "Tan", "Tanh",
    )
)  # fmt: skip
_FEW_RESULTS = 32  # that a function may be computed of one by one: another step would take as long


@dataclass(eq=False)
class Group:
    """Nodes that become one kernel (or, for views and host nodes, none)."""

    index: int
    kind: GroupKind
    shape: Shape | None  # the iteration space of the elementwise part
    root: Node | None = None  # the node with a template
    template: Template | None = None
    nodes: list[Node] = field(default_factory=list)
    region: Region = ()

    @property
    def label(self) -> str:
        """How messages and traces call the kernel."""
        return "+".join(node.op_type for node in self.nodes)

    @property
    def before(self) -> list[Node]:
        """The elementwise nodes that compute the root's input."""
        return self.nodes[: self.nodes.index(self.root)] if self.root is not None else []

    @property
    def after(self) -> list[Node]:
        """The elementwise nodes that use the root's outputs."""
        return self.nodes[self.nodes.index(self.root) + 1 :] if self.root is not None else self.nodes

    @property
    def elementwise(self) -> list[Node]:
        """The nodes that are computed element by element."""
        return [node for node in self.nodes if node is not self.root]

    @property
    def produced(self) -> list[Value]:
        """All values its nodes make."""
        return [value for node in self.nodes for value in node.outputs]


@dataclass
class Grouping:
    """All groups in order, the group of each node, and why nodes did not join another group.

    `whole_ifs` are Ifs that must stay whole, because a node on one of their sides needs Python.
    """

    groups: list[Group]
    group_of: dict[Node, Group]
    refusals: dict[Node, str]
    whole_ifs: set[Node] = field(default_factory=set)
    expectations: dict[Node, list[Expectation]] = field(default_factory=dict)  # of the sizes of native nodes' inputs


def is_native(value: Value | None) -> bool:
    """Whether the value is a tensor of known rank and a type kernels know, in the host's memory."""
    return value is None or (
        isinstance(value.type, TensorType)
        and value.type.shape is not None
        and value.type.dtype.name in NATIVE_TYPES
        and not value.device
    )


def form_groups(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    excluded: frozenset[Node] = frozenset(),
    regions: Mapping[Node, Region] | None = None,
    merges: Collection[Node] = (),
    contents: KnownValues | None = None,
) -> Grouping:
    """Put nodes into groups; those excluded are computed by the host. `regions` and `merges` tell of Ifs (see `branches`)."""
    regions = regions or {}
    whole_ifs: set[Node] = set()
    groups: list[Group] = []
    group_of: dict[Node, Group] = {}
    refusals: dict[Node, str] = {}
    expected: dict[Node, list[Expectation]] = {}

    def new_group(node: Node, kind: GroupKind, shape: Shape | None, template: Template | None = None) -> None:
        index = groups[-1].index + 1 if groups else 0  # not the length: absorbed groups leave the list
        group = Group(index, kind, shape, node if template is not None else None, template, [node], regions.get(node, ()))
        groups.append(group)
        group_of[node] = group

    known = {name for value in inputs for name in _symbols(value)}
    waiting = _waiting(nodes) if not regions and not merges else frozenset()
    for node in nodes:
        reason = ("" if node in merges else _host_reason(node, excluded)) or _open_size(node, known)
        if not reason and node not in merges:
            rule = registry.elementwise_rule(node)
            if rule is None:
                expected[node], reason = expectations(node, contents, known)
            elif max(map(_axes, node.inputs[: registry.input_count(rule)]), default=0) > _axes(node.outputs[0]):
                reason = "an input has more axes than the result"
        if reason:
            whole_ifs.update([node] if node in merges else [], [side for side, _ in regions.get(node, ())[:1]])
            refusals[node] = reason
            new_group(node, "host", None)
            known.update(name for value in node.outputs for name in _symbols(value))
            continue
        known.update(name for value in node.outputs for name in _symbols(value))  # those a kernel tells
        shape = node.outputs[0].shape
        if node in merges:
            new_group(node, "merge", None)
        elif registry.elementwise_rule(node) is not None:
            group, why = _joinable(node, shape, group_of, regions.get(node, ()), waiting)
            if group is not None:
                group.nodes.append(node)
                group_of[node] = group
                for value in node.inputs:
                    if value is not None and value.producer in group_of:
                        _gather(group_of[value.producer], group, groups, group_of, waiting)
                continue
            refusals[node] = why
            new_group(node, "loop" if registry.view_rule(node) is None else "view", shape)
        elif registry.view_rule(node) is not None:
            new_group(node, "view", shape)
        else:
            template = registry.template_rule(node)
            new_group(node, "template", shape, template)
            if template is not None and template.absorbs:
                _absorb(group_of[node], groups, group_of, waiting)
    if waiting:
        groups = _by_priority(groups, group_of)
    # What Python makes of texts that are fed comes first, what only finishes results there last: all native steps are one call.
    starting: set[Node] = set()
    for group in groups:
        if _starts(group, starting):
            starting.update(group.nodes)
    finishing: set[Node] = set()
    for group in reversed(groups):
        if _finishes(group, finishing):
            finishing.update(group.nodes)
    groups.sort(key=lambda group: (group.nodes[0] not in starting, group.nodes[0] in finishing))
    return Grouping(groups, group_of, refusals, whole_ifs, expected)


def _starts(group: Group, starting: Collection[Node]) -> bool:
    """Whether the host computes something of feeds alone, some of which no native code reads, as texts."""
    if group.kind != "host" or group.region:
        return False
    read = [value for node in group.nodes for value in used_values(node) if value.constant is None]
    return any(not is_native(value) for value in read) and all(
        value.producer is None or value.producer in starting for value in read
    )


def _finishes(group: Group, finishing: Collection[Node]) -> bool:
    """Whether the host computes something that no native code reads, and no node but such, as labels and dictionaries."""
    if group.kind != "host" or group.region:
        return False
    named = [value for value in group.produced if value.name]
    return not any(is_native(value) or any(node not in finishing for node, _ in value.uses) for value in named)


def _waiting(nodes: Sequence[Node]) -> frozenset[Node]:
    """The nodes of low priority that depend on no others."""
    found: set[Node] = set()
    made: set[Node] = set()
    for node in nodes:
        before = [value.producer for value in used_values(node) if value.producer in made]
        if node.priority > 0 and all(each in found for each in before):
            found.add(node)
        made.add(node)
    return frozenset(found)


def _by_priority(groups: Sequence[Group], group_of: Mapping[Node, Group]) -> list[Group]:
    """Groups in the priority-based order: each after those it reads from."""
    position: dict[Node, int] = {}
    for graph in {node.graph for group in groups for node in group.nodes}:
        if graph is not None:
            position.update((node, number) for number, node in enumerate(graph.nodes))
    keys = {
        group.index: (min(node.priority for node in group.nodes), min(position[node] for node in group.nodes), group.index)
        for group in groups
    }
    sources: dict[int, set[int]] = {}
    readers: dict[int, list[int]] = {}
    for group in groups:
        read = (value.producer for node in group.nodes for value in used_values(node))
        found = {group_of[each].index for each in read if each is not None and each in group_of} - {group.index}
        sources[group.index] = found
        for source in found:
            readers.setdefault(source, []).append(group.index)
    by_index = {group.index: group for group in groups}
    heap = [keys[index] for index, found in sources.items() if not found]
    heapq.heapify(heap)
    order: list[Group] = []
    while heap:
        index = heapq.heappop(heap)[-1]
        order.append(by_index[index])
        for reader in readers.get(index, ()):
            sources[reader].discard(index)
            if not sources[reader]:
                heapq.heappush(heap, keys[reader])
    assert len(order) == len(groups), "groups wait for each other"
    return order


def _gather(before: Group, group: Group, groups: list[Group], group_of: dict[Node, Group], waiting: frozenset[Node]) -> None:
    """Take an earlier group of loops into a later one that reads from it, if nothing in between does."""
    if before is group or before.kind != "loop" or group.kind != "loop" or before.shape != group.shape:
        return
    if before.region != group.region or (before.nodes[0] in waiting) != (group.nodes[0] in waiting):
        return
    if len(before.nodes) + len(group.nodes) > MOST_NODES or not _is_read_only_by({*before.nodes, *group.nodes}, before, group_of):
        return
    _merge(before, group, groups, group_of)


def _is_read_only_by(own: Collection[Node], before: Group, group_of: Mapping[Node, Group]) -> bool:
    """Whether no other node that stands in a group already, and so may run in between, reads what a group makes."""
    among = before.nodes[0]
    users = (_outermost(consumer, among) for value in before.produced for consumer, _ in value.uses)
    return not any(user in group_of and user not in own for user in users)


def _merge(before: Group, group: Group, groups: list[Group], group_of: dict[Node, Group]) -> None:
    """Put the nodes of an earlier group in front of a later one's."""
    group.nodes[:0] = before.nodes
    for node in before.nodes:
        group_of[node] = group
    del groups[next(index for index in range(len(groups) - 1, -1, -1) if groups[index] is before)]  # one of the last


def _absorb(group: Group, groups: list[Group], group_of: dict[Node, Group], waiting: frozenset[Node]) -> None:
    """Take the elementwise nodes that compute the root's first input into its group, if nothing in between needs them."""
    assert group.root is not None
    source = group.root.inputs[0]
    before = group_of.get(source.producer) if source is not None and source.producer is not None else None
    if before is None or source is None or before.kind != "loop" or before.shape != source.shape:
        return
    if before.region != group.region or (before.nodes[0] in waiting) != (group.root in waiting):
        return
    if _is_read_only_by({*before.nodes, group.root}, before, group_of):
        _merge(before, group, groups, group_of)


def _outermost(node: Node, among: Node) -> Node:
    """The node of the graph of `among` in one of whose bodies a node stands; the node itself if it stands beside it."""
    while node.graph is not among.graph and node.graph is not None and node.graph.parent_node is not None:
        node = node.graph.parent_node
    return node


def _host_reason(node: Node, excluded: frozenset[Node]) -> str:
    """Why a node cannot run natively, or ""."""
    if node in excluded:
        return "its kernel could not be compiled"
    try:
        return _refusal(node)
    except Exception as error:  # attributes that make no sense: the host says so when it computes the node
        return f"whether there is a kernel for it cannot be told: {error}"


def _refusal(node: Node) -> str:
    template = registry.template_rule(node)
    if template is None and registry.elementwise_rule(node) is None and registry.view_rule(node) is None:
        return "no native lowering for this operator"
    if len(node.inputs) > MOST_NODES and registry.elementwise_rule(node) is not None:
        return f"{len(node.inputs)} inputs are more than a kernel takes"
    for value in (*node.inputs, *node.outputs):
        if not is_native(value):
            assert value is not None
            return f"{value.name!r} is {value.type}: not a tensor of known rank and a native element type"
    return template.refusal(node) if template is not None and registry.elementwise_rule(node) is None else ""


def _symbols(value: Value) -> frozenset[str]:
    return frozenset().union(*(symbols_of(dim) for dim in value.shape or ()))


def _open_size(node: Node, known: set[str]) -> str:
    """A size only the result itself can tell: if no kernel tells it, the host computes it, and native steps go on from there."""
    missing = {name for value in node.outputs for name in _symbols(value)} - known
    if missing and registry.has_data_dependent_sizes(node):
        data_dependent = {
            str(dim) for value in node.outputs for dim in value.shape or () if isinstance(dim, DimExpr) and dim.is_symbol
        }
        missing -= data_dependent
    return f"size {', '.join(sorted(missing))} is known only when it has run" if missing else ""


def _joinable(
    node: Node, shape: Shape | None, group_of: dict[Node, Group], region: Region, waiting: frozenset[Node]
) -> tuple[Group | None, str]:
    latest: Group | None = None
    for value in node.inputs:
        if value is not None and value.producer is not None and value.producer in group_of:
            if (value.producer in waiting) != (node in waiting):
                continue  # as if it were an input
            group = group_of[value.producer]
            if latest is None or group.index > latest.index:
                latest = group
    if latest is None:
        return None, "all inputs come from outside"
    if latest.kind == "template" and not (latest.template is not None and latest.template.fuses):
        return None, f"the kernel of {latest.label} takes no elementwise nodes"
    if latest.kind not in ("loop", "template"):
        return None, f"the latest input comes from {latest.label}, which is no kernel"
    if latest.kind == "template" and _widens_for_reductions(node):
        return None, f"reductions widen what {latest.label} stores while they read it"
    if node.op_type in _FUNCTIONS and _makes_many_one_by_one(latest):
        return None, f"the kernel of {latest.label} makes one result at a time, a function takes as long for a vector of them"
    if latest.region != region:
        return None, f"the kernel of {latest.label} runs whatever the If decides"
    if len(latest.nodes) >= MOST_NODES:
        return None, f"the kernel before it has {MOST_NODES} nodes already"
    if latest.shape != shape:
        return None, f"works on {format_shape(shape)}, the kernel of {latest.label} on {format_shape(latest.shape)}"
    return latest, ""


def _makes_many_one_by_one(group: Group) -> bool:
    """Whether a group's kernel has many results that no vectors are made of."""
    if group.root is None or group.template is None or not group.template.makes_single_results(group.root):
        return False
    sizes = group.shape or ()
    return not all(isinstance(size, int) for size in sizes) or prod(map(int, map(str, sizes))) > _FEW_RESULTS


def _widens_for_reductions(node: Node) -> bool:
    """Whether a node makes elements wider that only reductions read, which do that themselves with less memory to go through."""
    types = [None if value is None else value.type for value in (node.inputs[0], node.outputs[0])]
    if node.op_type != "Cast" or not all(isinstance(type_, TensorType) for type_ in types):
        return False
    narrow, wide = (type_.dtype.bits for type_ in types if isinstance(type_, TensorType))
    readers = [registry.template_rule(reader) for reader, _ in node.outputs[0].uses]
    return narrow < wide and bool(readers) and all(template is not None and template.absorbs for template in readers)


def _axes(value: Value | None) -> int:
    return 0 if value is None else len(value.shape or ())
