"""One operator: what it means, and how it is found by its domain, name and version.

    RELU = op("Relu", eval=lambda x: np.maximum(x, 0), infer=same_as(0), traits=Trait.ELEMENTWISE)

`eval` is the operator's meaning in NumPy and the oracle for everything else. It is called with the inputs by position (an
omitted optional input is None, as trailing ones are left to the function's default) and, by keyword, those attributes it
names as keyword-only parameters; an attribute the node does not carry has the default of the signature, or None. Values are:
    tensor -> ndarray (strings: object array of str)   sequence -> list   map -> dict   optional -> the value or None
    attributes: int, float, str, tuples of these, tensor -> ndarray, type -> ir Type, sparse tensor -> SparseConstant,
    graph -> a callable that takes the graph's inputs and returns the list of its outputs; it may have the attributes
             `input_types` and `output_types`, the declared types
It returns one value, or a tuple for several outputs (outputs that are not wanted may be left off at the end or None), never
changes its inputs, and raises ValueError, IndexError or TypeError with a plain sentence when the data does not fit: the
caller adds which node it was. A keyword-only parameter named `ctx` receives the `EvalContext`.

`since` is the first opset version a definition holds for; a later one replaces it from its own version on. Signatures
(parameters, types, attribute defaults) stand in the text tables, see `signature.py`.
"""

from __future__ import annotations

import enum
import importlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sardonyx.ops.index import read_index
from sardonyx.records import dataclass

if TYPE_CHECKING:
    from sardonyx.ops.infer import InferContext, InferResult


class Trait(enum.Flag):
    """What passes may assume about an operator."""

    NONE = 0
    ELEMENTWISE = enum.auto()  # each output element depends on the input elements at the same (broadcast) place
    COMMUTATIVE = enum.auto()  # the inputs may be swapped
    RANDOM = enum.auto()  # two calls differ: never folded, merged or dropped for equality
    VIEW = enum.auto()  # the output has the elements of input 0 in the same order
    CONTROL_FLOW = enum.auto()  # runs subgraphs
    STATES_BODIES = enum.auto()  # makes what its subgraphs read itself, of the types that they state
    AHEAD = enum.auto()  # work that grows no faster than its inputs and outputs: may be done while a model is compiled
    MEASURES = enum.auto()  # the output follows from the shape of the input
    REDUCES = enum.auto()  # takes the axes that `axes` names away, or leaves them with size 1 (`keepdims`)
    DATA_SIZED = enum.auto()  # the data decide how many of its elements, or of their places, it gives out
    SELECTS = enum.auto()  # every element of the output is one of input 0
    REFUSES = enum.auto()  # data may be refused whose types and shapes fit, or sizes that its shape rule says nothing about
    QUIET = enum.auto()  # its definition computes nothing that NumPy could warn of
    WIDENS = enum.auto()  # makes a small element type a large one: as a constant the output is several times the input


@dataclass(slots=True)
class EvalContext:
    """What an evaluation may know about its node.

    `state` lives as long as the session and belongs to this node: a random generator, or tables derived from attributes.
    Several threads may run one session: what is kept there must be built completely before it is stored.
    """

    version: int  # opset version of the operator's domain
    outputs: tuple[bool, ...]  # which outputs the node names
    label: str = ""
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpDef:
    """One definition of an operator, valid from opset version `since` until the next definition."""

    domain: str
    name: str
    since: int
    eval: Callable[..., Any]
    infer: Callable[[InferContext], InferResult] | None
    traits: Trait
    attr_names: tuple[str, ...]  # the attributes `eval` takes
    wants_context: bool

    @property
    def label(self) -> str:
        return f"{self.domain}::{self.name}" if self.domain else self.name


LOADED: Final[dict[tuple[str, str], list[OpDef]]] = {}  # the definitions of modules that have been imported


def op(
    name: str,
    *,
    eval: Callable[..., Any],
    infer: Callable[[InferContext], InferResult] | None = None,
    domain: str = "",
    since: int = 1,
    traits: Trait = Trait.NONE,
    keywords: Sequence[str] | None = None,
) -> OpDef:
    """Define an operator from opset version `since` on. Without `infer` the types follow from the signature, shapes are unknown.

    `keywords` names the attributes (and `ctx`) for an `eval` that takes them as `**attrs`.
    """
    code = eval.__code__
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount] if keywords is None else keywords
    attrs = tuple(parameter for parameter in named if parameter != "ctx")
    definition = OpDef(domain, name, since, eval, infer, traits, attrs, "ctx" in named)
    known = LOADED.get((domain, name), [])
    if any(other.since == since for other in known):
        raise ValueError(f"{definition.label} is defined twice for opset {since}")
    # A new list: another thread may be looking into the old one, and a list that is being sorted is empty for others.
    LOADED[domain, name] = sorted([*known, definition], key=lambda other: other.since)
    return definition


@cache
def _load_for(domain: str, name: str) -> None:
    for family in read_index("sardonyx.ops").get((domain, name), ()):
        importlib.import_module(f"sardonyx.ops.{family}")


def lookup(domain: str, name: str, version: int) -> OpDef | None:
    """The definition of an operator that holds in an opset version, or None."""
    known = definitions_of(domain, name)
    position = bisect_right(known, version, key=lambda definition: definition.since)
    return known[position - 1] if position else None


def definitions_of(domain: str, name: str) -> Sequence[OpDef]:
    """The definitions of an operator, oldest first."""
    _load_for(domain, name)
    return LOADED.get((domain, name), ())


def call(definition: OpDef, inputs: Sequence[Any], attrs: dict[str, Any], ctx: EvalContext) -> tuple[Any, ...]:
    """Evaluate an operator; `attrs` holds a value for each name in `definition.attr_names`. Always returns a tuple."""
    if definition.wants_context:
        result = definition.eval(*inputs, ctx=ctx, **attrs)
    else:
        result = definition.eval(*inputs, **attrs)
    return result if isinstance(result, tuple) else (result,)
