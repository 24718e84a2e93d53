"""Signatures: the parameters, attributes and element types of every operator version, read from text tables.

One line of a table (`signatures/<domain>.txt`):

    Conv-11 (X: T, W: T, B?: T) -> (Y: T) [auto_pad: string = 'NOTSET', group: int = 1, pads: ints] {T: f32 f16 f64}

`-11` is the opset version that introduced this form. A parameter marked `?` is optional, `*n` takes n or more values of one
type, `**n` n or more of any types. An attribute marked `!` is required. `{...}` says which types a type variable stands for;
`@7` is a list of types named at the head of the file. A line is parsed when its operator is first asked for.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Any, Final

from sardonyx import dtypes
from sardonyx.ir.graph import AttrKind
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.ops.tables import read_table
from sardonyx.records import dataclass

DOMAINS: Final = (
    "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training",
    "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc", "sardonyx",
)  # fmt: skip

_KINDS: Final = {kind.name.lower(): kind for kind in AttrKind}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A formal input or output."""

    name: str
    type: str  # a type variable of the signature, or a concrete type as text
    optional: bool = False
    variadic: bool = False
    homogeneous: bool = True  # all values of a variadic parameter have one type
    least: int = 1  # how many values a variadic parameter needs


@dataclass(frozen=True, slots=True)
class Attribute:
    """A formal attribute; `default` is None where the operator has none."""

    name: str
    kind: AttrKind
    required: bool
    default: Any


@dataclass(frozen=True, slots=True)
class Signature:
    """What one version of an operator takes and gives."""

    domain: str
    name: str
    since: int
    deprecated: bool
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: dict[str, Attribute]
    types: dict[str, tuple[str, ...]]  # type variable -> the types it may stand for, as text

    def input_at(self, index: int) -> Parameter | None:
        """The formal parameter of the index-th actual input; None if there are not so many."""
        return _parameter_at(self.inputs, index)

    def output_at(self, index: int) -> Parameter | None:
        """The formal parameter of the index-th actual output."""
        return _parameter_at(self.outputs, index)

    @property
    def fewest_inputs(self) -> int:
        """How many inputs must be given."""
        return _fewest(self.inputs)

    def allowed(self, parameter: Parameter) -> tuple[str, ...]:
        """The types a parameter accepts, as text without shapes: `f32`, `seq(i64)`."""
        return self.types.get(parameter.type, (parameter.type,))


def _parameter_at(parameters: tuple[Parameter, ...], index: int) -> Parameter | None:
    if index < len(parameters):
        return parameters[index]
    return parameters[-1] if parameters and parameters[-1].variadic else None


@cache
def _fewest(parameters: tuple[Parameter, ...]) -> int:
    needed = 0
    for position, parameter in enumerate(parameters):
        if parameter.variadic:
            needed = position + parameter.least if parameter.least else needed
        elif not parameter.optional:
            needed = position + 1
    return needed


@cache
def _table(domain: str) -> tuple[dict[str, list[tuple[int, str]]], dict[str, str]]:
    """The lines of a domain by operator name (oldest version first), and its named type lists."""
    lines: dict[str, list[tuple[int, str]]] = {}
    groups: dict[str, str] = {}
    if domain not in DOMAINS:
        return lines, groups
    text = read_table("sardonyx.ops", "signatures", f"{domain}.txt")
    if domain == "ai.onnx":  # operators and versions the standard does not have, but models in use and ONNX Runtime do
        text += read_table("sardonyx.ops", "signatures", "ai.onnx.extra.txt")
    for line in text.splitlines():
        if line.startswith("@"):
            name, _, types = line.partition(" = ")
            groups[name] = types
        elif line and not line.startswith("#"):
            head = line[: line.index(" ")]
            name, _, version = head.rpartition("-")
            lines.setdefault(name, []).append((int(version), line))
    for forms in lines.values():
        forms.sort()
    return lines, groups


def _domain(domain: str) -> str:
    return domain or "ai.onnx"


def names(domain: str) -> tuple[str, ...]:
    """All operators of a domain that have a signature."""
    return tuple(_table(_domain(domain))[0])


def versions(domain: str, name: str) -> tuple[int, ...]:
    """The opset versions in which the operator was introduced or changed, oldest first."""
    return tuple(version for version, _ in _table(_domain(domain))[0].get(name, ()))


@cache
def signature(domain: str, name: str, version: int) -> Signature | None:
    """The form of an operator in an opset version: the newest one not newer than that; None if there is none."""
    lines, groups = _table(_domain(domain))
    found = None
    for since, line in lines.get(name, ()):
        if since <= version:
            found = line
    return None if found is None else _parse(domain, found, groups)


_LINE = re.compile(r"(\S+)-(\d+)( deprecated)? \((.*?)\) -> \((.*?)\)(?: \[(.*)\])?(?: \{(.*)\})?$")
_PARAMETER = re.compile(r"([\w.]+)(\?|\*\*?\d+)?: ([^\s,()]+(?:\([^\s]*\))?)")
_ATTRIBUTE = re.compile(r"(\w+)(!)?: (\w+)(?: = ('(?:[^'\\]|\\.)*'|\[.*?\]|[^,]+))?(?:, |$)")


def _parse(domain: str, line: str, groups: dict[str, str]) -> Signature:
    match = _LINE.match(line)
    if match is None:
        raise ValueError(f"signature table of {_domain(domain)}: cannot read {line!r}")
    name, since, deprecated, inputs, outputs, attributes, types = match.groups()
    return Signature(
        domain,
        name,
        int(since),
        bool(deprecated),
        _parameters(inputs),
        _parameters(outputs),
        {attr.name: attr for attr in map(_attribute, _ATTRIBUTE.finditer(attributes or ""))},
        {
            variable: tuple(groups.get(listed, listed).split())
            for variable, _, listed in (part.partition(": ") for part in (types or "").split("; ") if part)
        },
    )


def _parameters(text: str) -> tuple[Parameter, ...]:
    result = []
    for name, mark, type_ in _PARAMETER.findall(text):
        variadic = mark.startswith("*")
        least = int(mark.lstrip("*")) if variadic else 1
        result.append(Parameter(name, type_, mark == "?", variadic, not mark.startswith("**"), least))
    return tuple(result)


def _attribute(match: re.Match[str]) -> Attribute:
    name, required, kind, default = match.groups()
    value = None if default is None else ast.literal_eval(default)
    return Attribute(name, _KINDS[kind], bool(required), tuple(value) if isinstance(value, list) else value)


@cache
def parse_type(text: str) -> Type:
    """A type as the tables write it (`f32`, `seq(map(i64,f32))`), with unknown shapes."""
    head, _, rest = text.partition("(")
    if not rest:
        return TensorType(dtypes.from_name(head))
    inner = rest[:-1]
    if head == "seq":
        return SequenceType(parse_type(inner))
    if head == "optional":
        return OptionalType(parse_type(inner))
    if head == "sparse":
        return SparseTensorType(dtypes.from_name(inner))
    key, _, value = inner.partition(",")
    return MapType(dtypes.from_name(key), parse_type(value))


def type_text(type_: Type) -> str:
    """The type as the tables write it: without shapes."""
    if isinstance(type_, TensorType):
        return type_.dtype.name
    if isinstance(type_, SparseTensorType):
        return f"sparse({type_.dtype.name})"
    if isinstance(type_, SequenceType):
        return f"seq({type_text(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({type_text(type_.element)})"
    return f"map({type_.key.name},{type_text(type_.value)})"
