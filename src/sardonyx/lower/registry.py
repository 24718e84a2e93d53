"""Who lowers which operator.

    @elementwise("HardSwish")
    def hard_swish(x: Expr) -> Expr:
        return x * clamp(x * (1 / 6) + 0.5, 0.0, 1.0)

An elementwise rule gets one expression per input (no more than it takes) and the node's attributes as keywords (those it
names; `out` is the element type of the result, `ordinary` see `LowerContext.expressions`), and returns the expression of the
output; half-precision floats arrive as f32 and the result is rounded on store. A
template rule (`@template`) gets the lowering context and the group and writes steps. What has neither is computed by the host.

Every rule is a kernel as all providers have them (`matching.kernels`): `since` is the first version of the operator it holds
for, `types` the element types it takes, by the names of the operator's type constraints. What depends on more (shapes,
attributes) is for `where` and `accepts` to say.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sardonyx.ir.graph import Node
from sardonyx.kernel.expr import Expr
from sardonyx.matching.kernels import KernelDef
from sardonyx.matching.signatures import SIGNATURES
from sardonyx.ops.index import read_index
from sardonyx.records import dataclass

if TYPE_CHECKING:
    from sardonyx.lower.groups import Group
    from sardonyx.lower.lowering import LowerContext

ElementwiseRule: TypeAlias = Callable[..., Expr]
TemplateRule: TypeAlias = Callable[["LowerContext", "Group"], None]
ViewRule: TypeAlias = Callable[["LowerContext", Node], bool]
Types: TypeAlias = Mapping[str, Collection[str]]  # names of type constraints -> element types


@dataclass(frozen=True, slots=True)
class Template:
    """How an operator that is not elementwise is lowered. `fuses` says whether elementwise nodes may follow in its kernel."""

    kernel: KernelDef
    rule: TemplateRule
    accepts: Callable[[Node], str]  # "" if a node of the kernel's versions and types can be lowered, else the reason why not
    fuses: bool
    absorbs: bool = False  # whether elementwise nodes that compute its first input may come before it in its kernel
    data_dependent_sizes: bool = False  # whether it writes a SizeStep for sizes of its results that only the data determines
    writes_anywhere: bool = False  # whether its kernel writes to any view that `LowerContext.output` gives, gaps and all
    reads_batches: bool = False  # whether it reads an input whose first axis has gaps as well as one without
    reads_broadcasts: bool = False  # whether it reads an input that is repeated along its last axis as it is, one element
    makes_single_results: Callable[[Node], bool] = lambda node: False  # whether its kernel makes them one by one, not in vectors

    def refusal(self, node: Node) -> str:
        """Why a node cannot be lowered, or ""."""
        return self.kernel.mismatch(node, SIGNATURES) or self.accepts(node)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """How an operator is lowered that works element by element."""

    kernel: KernelDef
    rule: ElementwiseRule
    where: Callable[[Node], bool]


_ELEMENTWISE: Final[dict[tuple[str, str], Elementwise]] = {}
_TEMPLATES: Final[dict[tuple[str, str], Template]] = {}
_VIEWS: Final[dict[tuple[str, str], ViewRule]] = {}
_SIZING_VIEWS: Final[set[tuple[str, str]]] = set()  # those that write a SizeStep, as templates with data-dependent sizes do


def elementwise(
    *names: str,
    domain: str = "",
    since: int = 1,
    types: Types = MappingProxyType({}),
    where: Callable[[Node], bool] = lambda node: True,
) -> Callable[[ElementwiseRule], ElementwiseRule]:
    """Register the rule of elementwise operators, from a version on, for some types, and the nodes of which `where` holds."""

    def register(rule: ElementwiseRule) -> ElementwiseRule:
        for name in names:
            if (domain, name) in _ELEMENTWISE:
                raise ValueError(f"{name} has an elementwise rule already")
            _ELEMENTWISE[domain, name] = Elementwise(KernelDef(name, domain, (since, None), types, rule), rule, where)
        return rule

    return register


def template(
    *names: str,
    domain: str = "",
    since: int = 1,
    types: Types = MappingProxyType({}),
    accepts: Callable[[Node], str] = lambda node: "",
    fuses: bool = False,
    absorbs: bool = False,
    data_dependent_sizes: bool = False,
    writes_anywhere: bool = False,
    reads_batches: bool = False,
    reads_broadcasts: bool = False,
    makes_single_results: Callable[[Node], bool] = lambda node: False,
) -> Callable[[TemplateRule], TemplateRule]:
    """Register the rule of operators with kernels of their own."""

    def register(rule: TemplateRule) -> TemplateRule:
        for name in names:
            if (domain, name) in _TEMPLATES:
                raise ValueError(f"{name} has a template already")
            kernel = KernelDef(name, domain, (since, None), types, rule)
            _TEMPLATES[domain, name] = Template(
                kernel,
                rule,
                accepts,
                fuses,
                absorbs,
                data_dependent_sizes,
                writes_anywhere,
                reads_batches,
                reads_broadcasts,
                makes_single_results,
            )
        return rule

    return register


def view(*names: str, domain: str = "", data_dependent_sizes: bool = False) -> Callable[[ViewRule], ViewRule]:
    """Register the rule of operators whose result is their input seen differently; it returns False where that fails."""

    def register(rule: ViewRule) -> ViewRule:
        for name in names:
            _VIEWS[domain, name] = rule
            if data_dependent_sizes:
                _SIZING_VIEWS.add((domain, name))
        return rule

    return register


@cache
def _load_for(domain: str, name: str) -> None:
    for family in read_index("sardonyx.lower").get((domain, name), ()):
        importlib.import_module(f"sardonyx.lower.{family}")


def defined() -> set[tuple[str, str, int]]:
    """Domain and name of the operators whose rules are imported so far, with the version they hold from."""
    elementwise_rules = {(domain, name, found.kernel.versions[0]) for (domain, name), found in _ELEMENTWISE.items()}
    return elementwise_rules | {(domain, name, 0) for domain, name in (*_TEMPLATES, *_VIEWS)}


def kernels() -> list[KernelDef]:
    """The kernels of the rules imported so far, but for views, which need none."""
    return [*(found.kernel for found in _ELEMENTWISE.values()), *(found.kernel for found in _TEMPLATES.values())]


def elementwise_rule(node: Node) -> ElementwiseRule | None:
    """The rule for a node, if it is an elementwise operator that has one."""
    _load_for(node.domain, node.op_type)
    found = _ELEMENTWISE.get((node.domain, node.op_type))
    if found is None or found.kernel.mismatch(node, SIGNATURES) or not found.where(node):
        return None
    return found.rule


def template_rule(node: Node) -> Template | None:
    """The template for a node's operator."""
    _load_for(node.domain, node.op_type)
    return _TEMPLATES.get((node.domain, node.op_type))


def view_rule(node: Node) -> ViewRule | None:
    """The view rule for a node's operator."""
    _load_for(node.domain, node.op_type)
    return _VIEWS.get((node.domain, node.op_type))


def has_data_dependent_sizes(node: Node) -> bool:
    """Whether the rule for a node's operator writes a SizeStep for sizes of its results that only the data determines."""
    template = template_rule(node)
    return (node.domain, node.op_type) in _SIZING_VIEWS or (template is not None and template.data_dependent_sizes)


def has_rule(domain: str, name: str, version: int) -> bool:
    """Whether an operator can be lowered at all; whether a node is depends on its types, shapes and attributes, too."""
    _load_for(domain, name)
    key = (domain, name)
    rule = _ELEMENTWISE.get(key)
    return key in _TEMPLATES or key in _VIEWS or (rule is not None and version >= rule.kernel.versions[0])


def input_count(rule: ElementwiseRule) -> int | None:
    """How many inputs a rule takes at most; None for any number. Inputs beyond that only matter for shapes and types."""
    code: Any = rule.__code__
    count: int = code.co_argcount
    return None if code.co_flags & 0x04 else count  # 0x04: it has *args


def keyword_names(rule: ElementwiseRule) -> tuple[str, ...]:
    """The attributes a rule asks for."""
    code: Any = rule.__code__
    names: tuple[str, ...] = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return names
