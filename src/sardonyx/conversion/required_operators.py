"""The operators that models need, as a configuration file for builds of ONNX Runtime that have no others.

ai.onnx;13;Clip,Concat                           domain; version of the definition; operators
ai.onnx;14;Add{"inputs": {"0": ["float"]}},Mul   with types: those that kernels are made for, in the words of C++
!globally_allowed_types;float,int64_t            types for all operators, in place of such lists
# a comment
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from sardonyx import dtypes, errors
from sardonyx.dtypes import DType
from sardonyx.ir.graph import Model, Node, Value, walk
from sardonyx.ir.types import SequenceType, TensorType
from sardonyx.matching.type_strings import KernelTypeStrResolver, split_identifier
from sardonyx.records import dataclass

ALLOWED_TYPES: Final = "!globally_allowed_types"
ALL_OPERATORS: Final = "!no_ops_specified_means_all_ops_are_required"

_CPP_TYPES: Final[Mapping[DType, str]] = {
    dtypes.FLOAT32: "float", dtypes.FLOAT64: "double", dtypes.FLOAT16: "MLFloat16", dtypes.BFLOAT16: "BFloat16",
    dtypes.INT8: "int8_t", dtypes.INT16: "int16_t", dtypes.INT32: "int32_t", dtypes.INT64: "int64_t",
    dtypes.UINT8: "uint8_t", dtypes.UINT16: "uint16_t", dtypes.UINT32: "uint32_t", dtypes.UINT64: "uint64_t",
    dtypes.BOOL: "bool", dtypes.STRING: "std::string", dtypes.COMPLEX64: "std::complex<float>",
    dtypes.COMPLEX128: "std::complex<double>", dtypes.FLOAT8E4M3FN: "Float8E4M3FN", dtypes.FLOAT8E4M3FNUZ: "Float8E4M3FNUZ",
    dtypes.FLOAT8E5M2: "Float8E5M2", dtypes.FLOAT8E5M2FNUZ: "Float8E5M2FNUZ",
}  # fmt: skip

# Kernels of ONNX Runtime that are made for single types: (inputs, outputs) whose types decide. Others take any type.
_FIRST_INPUT: Final = [
    "Abs",
    "Add",
    "ArgMax",
    "ArgMin",
    "AveragePool",
    "BatchNormalization",
    "BitShift",
    "Ceil",
    "Clip",
    "Concat",
    "Conv",
    "CumSum",
    "DequantizeLinear",
    "Div",
    "Equal",
    "Exp",
    "Expand",
    "Floor",
    "Gemm",
    "Greater",
    "IsNaN",
    "Less",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MatMul",
    "Max",
    "MaxPool",
    "Mean",
    "Min",
    "Mul",
    "Neg",
    "NonZero",
    "Pad",
    "QLinearConv",
    "QLinearMatMul",
    "Range",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Resize",
    "ReverseSequence",
    "RoiAlign",
    "Round",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softmax",
    "Split",
    "SplitToSequence",
    "Sqrt",
    "Sub",
    "Sum",
    "Tanh",
    "TopK",
    "Transpose",
    "Unique",
]
_FIRST_OUTPUT: Final = [
    "ConstantOfShape",
    "DynamicQuantizeLinear",
    "Multinomial",
    "QuantizeLinear",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
]
_TYPED: Final[Mapping[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...]]]] = {
    **{("", name): ((0,), ()) for name in _FIRST_INPUT},
    **{("", name): ((), (0,)) for name in _FIRST_OUTPUT},
    **{("com.microsoft", name): ((0,), ()) for name in ("QLinearAdd", "QLinearConv", "QLinearMul")},
    **{("", name): ((0, 1), ()) for name in ("Gather", "GatherElements", "Pow", "Slice")},
    ("", "Cast"): ((0,), (0,)),
    ("", "Where"): ((1,), ()),
}
_ONE_HOT: Final = ("", "OneHot")  # its kernels are made for triples of types


@dataclass
class RequiredOperators:
    """Operators by domain and version, and the types they are used with."""

    with_types: bool = False
    operators: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    _inputs: dict[tuple[str, str], dict[int, set[str]]] = field(default_factory=dict)
    _outputs: dict[tuple[str, str], dict[int, set[str]]] = field(default_factory=dict)
    _triples: set[tuple[str, ...]] = field(default_factory=set)

    def add(self, model: Model) -> None:
        """The operators of a model in the ORT format, and those that its saved optimisations may make."""
        resolver = KernelTypeStrResolver(model.type_arguments or {})
        for node in walk(model.graph):
            self._operator(node.domain, node.op_type, resolver.since_version(node))
            if self.with_types:
                self._types(node)
        for saved in model.saved_optimisations:
            for identifier in saved.produced:
                self._operator(*split_identifier(identifier))

    def _operator(self, domain: str, name: str, version: int) -> None:
        self.operators.setdefault(domain, {}).setdefault(version, set()).add(name)

    def _types(self, node: Node) -> None:
        key = node.domain, node.op_type
        if key == _ONE_HOT:
            first, depth, values = (_cpp_type(value) for value in node.inputs[:3])
            self._triples.add((first, values, depth))
        inputs, outputs = _TYPED.get(key, ((), ()))
        for known, wanted, values_of in ((self._inputs, inputs, node.inputs), (self._outputs, outputs, node.outputs)):
            for index in wanted:
                value = values_of[index] if index < len(values_of) else None
                if value is not None:
                    known.setdefault(key, {}).setdefault(index, set()).add(_cpp_type(value))

    def text(self, sources: Iterable[str | os.PathLike[str]] = ()) -> str:
        """The configuration; `sources` are the files it was made of."""
        lines = ["# Generated from model/s:", *(f"# - {os.fspath(source)}" for source in sources)]
        for domain in sorted(self.operators):
            for version in sorted(self.operators[domain]):
                names = [name + self._type_text(domain, name) for name in sorted(self.operators[domain][version])]
                lines.append(f"{domain or 'ai.onnx'};{version};{','.join(names)}")
        return "\n".join(lines) + "\n"

    def _type_text(self, domain: str, name: str) -> str:
        key = domain, name
        if key == _ONE_HOT and self._triples:
            return json.dumps({"custom": sorted(self._triples)})
        found = {}
        for word, known in (("inputs", self._inputs.get(key, {})), ("outputs", self._outputs.get(key, {}))):
            if known:
                found[word] = {str(index): sorted(types) for index, types in sorted(known.items())}
        return json.dumps(found) if found else ""


def _cpp_type(value: Value | None) -> str:
    type_ = None if value is None else value.type
    while isinstance(type_, SequenceType):
        type_ = type_.element
    return _CPP_TYPES.get(type_.dtype, "unknown") if isinstance(type_, TensorType) else "unknown"


@dataclass
class ReadConfiguration:
    """What a configuration file says. No operators at all: all are needed, if it says so."""

    operators: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    types: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)  # of a domain's operator, as JSON has them
    allowed_types: frozenset[str] | None = None
    needs_all: bool = False


def read_configuration(path: str | os.PathLike[str]) -> ReadConfiguration:
    """Read a configuration file; InvalidArgument with the line if it makes no sense."""
    found = ReadConfiguration()
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                _read_line(line.strip(), found)
            except ValueError as error:
                raise errors.InvalidArgument(f"{os.fspath(path)}, line {number}: {error}") from None
    if found.allowed_types is not None and found.types:
        raise errors.InvalidArgument(f"{os.fspath(path)}: it has types of operators and {ALLOWED_TYPES}, expected one of them")
    return found


def _read_line(line: str, found: ReadConfiguration) -> None:
    if not line or line.startswith("#"):
        return
    if line == ALL_OPERATORS:
        found.needs_all = True
        return
    if line.startswith(ALLOWED_TYPES):
        if found.allowed_types is not None:
            raise ValueError(f"{ALLOWED_TYPES} stands there a second time")
        listed = line.partition(";")[2].split(",")
        found.allowed_types = frozenset(name.strip() for name in listed if name.strip())
        return
    parts = line.split(";", 2)
    if len(parts) != 3:
        raise ValueError(f"{line!r}, expected `domain;version;operators`")
    domain = "" if parts[0].strip() == "ai.onnx" else parts[0].strip()
    versions = [int(text) for text in parts[1].split(",")]
    for name, types in _operators_of(parts[2]):
        for version in versions:
            found.operators.setdefault(domain, {}).setdefault(version, set()).add(name)
        if types:
            found.types[domain, name] = types


def _operators_of(text: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """Names, each with what the JSON behind it says."""
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        comma, brace = text.find(",", at), text.find("{", at)
        end = len(text) if comma < 0 else comma
        if 0 <= brace < end:
            types, after = decoder.raw_decode(text, brace)
            yield text[at:brace].strip(), types
            rest = text[after:].lstrip()
            if rest and not rest.startswith(","):
                raise ValueError(f"{rest!r} behind the types of an operator, expected a comma")
            at = len(text) - len(rest) + 1 if rest else len(text)
        else:
            if text[at:end].strip():
                yield text[at:end].strip(), {}
            at = end + 1
