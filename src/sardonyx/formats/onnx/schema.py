"""The field names of ONNX's messages, to say where in a file something is wrong.

    locate(buf, "Model", 1234)   ->   "graph.node[3].attribute[0].t.raw_data"

The readers take their tags from the same table: `tags("Node").op_type` is the tag a node's op_type begins with.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from sardonyx.formats.onnx.wire import WireError, fields, varint
from sardonyx.formats.shared.source import Buffer

_MESSAGES: Final = """
Model: 1 ir_version int, 2 producer_name bytes, 3 producer_version bytes, 4 domain bytes, 5 model_version int, 6 doc_string bytes,
  7 graph Graph, 8 opset_import OperatorSetId*, 14 metadata_props StringStringEntry*, 20 training_info TrainingInfo*,
  25 functions Function*, 26 configuration DeviceConfiguration*
Graph: 1 node Node*, 2 name bytes, 5 initializer Tensor*, 10 doc_string bytes, 11 input ValueInfo*, 12 output ValueInfo*,
  13 value_info ValueInfo*, 14 quantization_annotation TensorAnnotation*, 15 sparse_initializer SparseTensor*,
  16 metadata_props StringStringEntry*
Node: 1 input bytes*, 2 output bytes*, 3 name bytes, 4 op_type bytes, 5 attribute Attribute*, 6 doc_string bytes, 7 domain bytes,
  8 overload bytes, 9 metadata_props StringStringEntry*, 10 device_configurations NodeDeviceConfiguration*
Attribute: 1 name bytes, 2 f float, 3 i int, 4 s bytes, 5 t Tensor, 6 g Graph, 7 floats float*, 8 ints int*, 9 strings bytes*,
  10 tensors Tensor*, 11 graphs Graph*, 13 doc_string bytes, 14 tp Type, 15 type_protos Type*, 20 type int,
  21 ref_attr_name bytes, 22 sparse_tensor SparseTensor, 23 sparse_tensors SparseTensor*
Tensor: 1 dims int*, 2 data_type int, 3 segment Segment, 4 float_data float*, 5 int32_data int*, 6 string_data bytes*,
  7 int64_data int*, 8 name bytes, 9 raw_data bytes, 10 double_data double*, 11 uint64_data int*, 12 doc_string bytes,
  13 external_data StringStringEntry*, 14 data_location int, 16 metadata_props StringStringEntry*
SparseTensor: 1 values Tensor, 2 indices Tensor, 3 dims int*
ValueInfo: 1 name bytes, 2 type Type, 3 doc_string bytes, 4 metadata_props StringStringEntry*
Type: 1 tensor_type TensorType, 4 sequence_type ElementType, 5 map_type MapType, 6 denotation bytes, 7 opaque_type OpaqueType,
  8 sparse_tensor_type TensorType, 9 optional_type ElementType
TensorType: 1 elem_type int, 2 shape TensorShape
TensorShape: 1 dim Dimension*
Dimension: 1 dim_value int, 2 dim_param bytes, 3 denotation bytes
ElementType: 1 elem_type Type
MapType: 1 key_type int, 2 value_type Type
Function: 1 name bytes, 4 input bytes*, 5 output bytes*, 6 attribute bytes*, 7 node Node*, 8 doc_string bytes,
  9 opset_import OperatorSetId*, 10 domain bytes, 11 attribute_proto Attribute*, 12 value_info ValueInfo*, 13 overload bytes,
  14 metadata_props StringStringEntry*
TrainingInfo: 1 initialization Graph, 2 algorithm Graph, 3 initialization_binding StringStringEntry*,
  4 update_binding StringStringEntry*
TensorAnnotation: 1 tensor_name bytes, 2 quant_parameter_tensor_names StringStringEntry*
StringStringEntry: 1 key bytes, 2 value bytes
OperatorSetId: 1 domain bytes, 2 version int
Sequence: 1 name bytes, 2 elem_type int, 3 tensor_values Tensor*, 4 sparse_tensor_values SparseTensor*,
  5 sequence_values Sequence*, 6 map_values Map*, 7 optional_values Optional*
Map: 1 name bytes, 2 key_type int, 3 keys int*, 4 string_keys bytes*, 5 values Sequence
Optional: 1 name bytes, 2 elem_type int, 3 tensor_value Tensor, 4 sparse_tensor_value SparseTensor, 5 sequence_value Sequence,
  6 map_value Map, 7 optional_value Optional
"""

_WIRE_TYPES: Final = {"int": 0, "float": 5, "double": 1}  # everything else is wire type 2
_WIRE_NAMES: Final = {0: "a number", 1: "8 bytes", 2: "a length and bytes", 3: "a group", 5: "4 bytes"}


class _Field(NamedTuple):
    name: str
    kind: str
    repeated: bool


@lru_cache(maxsize=1)
def _messages() -> dict[str, dict[int, _Field]]:
    table: dict[str, dict[int, _Field]] = {}
    for line in _MESSAGES.strip().replace("\n  ", " ").splitlines():
        name, _, content = line.partition(":")
        entries = (entry.split() for entry in content.split(","))
        table[name] = {int(number): _Field(field, kind.rstrip("*"), kind.endswith("*")) for number, field, kind in entries}
    return table


class Tags:
    """The tags of a message's fields, by field name; `<name>_packed` for the packed form of a list of numbers."""

    def __init__(self, fields_of_message: dict[int, _Field]) -> None:
        for number, field in fields_of_message.items():
            wire_type = _WIRE_TYPES.get(field.kind, 2)
            self.__dict__[field.name] = number << 3 | wire_type
            if field.repeated and wire_type != 2:
                self.__dict__[f"{field.name}_packed"] = number << 3 | 2

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int: ...


def tags(message: str) -> Tags:
    """The tags of a message's fields."""
    return Tags(_messages()[message])


def can_begin(message: str, tag: int) -> bool:
    """Whether the bytes of a message can begin so: with the tag of one of its fields, in the encoding of that field."""
    field = _messages()[message].get(tag >> 3)
    return field is not None and tag & 7 in (_WIRE_TYPES.get(field.kind, 2), 2 if field.repeated else -1)


def check_skipped(message: str, tag: int, offset: int) -> None:
    """WireError if a field the reader did not take is a known one in a wrong encoding; other unknown fields may be skipped."""
    field = _messages()[message].get(tag >> 3)
    if field is None:
        return
    expected = _WIRE_TYPES.get(field.kind, 2)
    if tag & 7 != expected and not (tag & 7 == 2 and field.repeated):
        found = _WIRE_NAMES.get(tag & 7, "nothing")
        raise WireError(f"{field.name} is encoded as {found}, expected {_WIRE_NAMES[expected]}", offset)


def locate(buf: Buffer, message: str, offset: int) -> str:
    """The path of fields that leads to the byte at `offset`; as far as the bytes can be followed."""
    table = _messages()
    path: list[str] = []
    pos, end = 0, len(buf)
    while message in table:
        known = table[message]
        seen: dict[int, int] = {}
        step = None
        before = pos
        try:
            for tag, start, stop in fields(buf, pos, end):
                number = tag >> 3
                if before <= offset < stop and number in known:
                    step = number, start, stop, tag & 7
                    break
                seen[number] = seen.get(number, 0) + 1
                before = stop
        except WireError:  # the field that begins at `before` is the broken one
            step = _number_at(buf, before, end), before, end, 0
        if step is None:
            break
        number, start, stop, wire_type = step
        field = known.get(number)
        if field is None:
            break
        path.append(f"{field.name}[{seen.get(number, 0)}]" if field.repeated else field.name)
        if wire_type != 2 or offset < start:
            break
        message, pos, end = field.kind, start, stop
    return ".".join(path)


def _number_at(buf: Buffer, pos: int, end: int) -> int:
    try:
        return varint(buf, pos, end)[0] >> 3
    except WireError:
        return 0
