"""Checkpoints of training, in ONNX Runtime's format: parameters, state of the optimizer, properties that a user has set.

    checkpoint = load_checkpoint("checkpoint")
    checkpoint.trainable["fc1.weight"]                       a NumPy array, the caller's own
    save_checkpoint(checkpoint, "checkpoint")

A FlatBuffers file like a model's (`read`, `write`), with the identifier ODTC. What would make it larger than the encoding can
express lies in a file of the same name with `.data` behind it. A *nominal* checkpoint has the names and types of the parameters
and no data: whoever opens it hands the parameters in later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import field
from typing import Any, Final, TypeAlias, Union

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.formats.ort.encode import TableOut, encode
from sardonyx.formats.ort.flatbuffer import IDENTIFIER_AT, FlatBuffer, FlatBufferError, FlatTable
from sardonyx.formats.ort.read import make_tensor
from sardonyx.formats.ort.schema import slots
from sardonyx.formats.ort.write import tensor_table
from sardonyx.formats.shared.dense import Unfit
from sardonyx.formats.shared.replacing import replacing
from sardonyx.formats.shared.source import open_source
from sardonyx.ir.tensor import from_numpy
from sardonyx.records import dataclass

Array = np.ndarray[Any, Any]
Property: TypeAlias = Union[int, float, str]

IDENTIFIER: Final = b"ODTC"
_VERSION: Final = 2
_SUPPORTED: Final = (1, 2)
_INLINE: Final = 1_800_000_000  # bytes of data that the file itself holds
_SMALL: Final = 64  # bytes up to which data stays in the file itself
_CHECKPOINT, _MODULE, _GROUP = slots("Checkpoint"), slots("ModuleState"), slots("OptimizerGroup")
_STATE, _BAG, _PROPERTY, _TENSOR = slots("ParameterOptimizerState"), slots("PropertyBag"), slots("IntProperty"), slots("Tensor")


@dataclass
class OptimizerGroupState:
    """What an optimizer remembers of a group of parameters: for each of them tensors by name (momentum0, momentum1)."""

    step: int = 0
    initial_learning_rate: float = 0.001
    parameters: dict[str, dict[str, Array]] = field(default_factory=dict)


@dataclass
class Checkpoint:
    """The content of a checkpoint. The arrays of a nominal one are empty; only their names and types mean something."""

    trainable: dict[str, Array] = field(default_factory=dict)
    frozen: dict[str, Array] = field(default_factory=dict)
    is_nominal: bool = False
    groups: dict[str, OptimizerGroupState] = field(default_factory=dict)
    properties: dict[str, Property] = field(default_factory=dict)


def load_checkpoint(source: Any) -> Checkpoint:
    """Read a checkpoint from a path or bytes; Fail if it is none, or is damaged."""
    opened = open_source(source, "checkpoint")
    view = memoryview(opened.buf)
    if bytes(view[IDENTIFIER_AT : IDENTIFIER_AT + 4]) != IDENTIFIER:
        raise Fail(f"{opened.name}: Checkpoint is invalid: it does not have the identifier {IDENTIFIER.decode()}")
    try:
        return _read(FlatBuffer(view).root(), f"{opened.path}.data" if opened.path else "")
    except (FlatBufferError, Unfit) as error:
        found = f"{error.text} (byte {error.offset})" if isinstance(error, FlatBufferError) else str(error)
        raise Fail(f"{opened.name}: Checkpoint is invalid: {found}") from None


def _read(root: FlatTable, data_path: str) -> Checkpoint:
    version = root.number(_CHECKPOINT.version, "i")
    if version not in _SUPPORTED:
        raise Unfit(f"its version is {version}, expected one of {', '.join(map(str, _SUPPORTED))}")
    found = Checkpoint()
    module = root.table(_CHECKPOINT.module_state)
    if module is not None:
        found.is_nominal = bool(module.number(_MODULE.is_nominal_state, "?"))
        external = None
        if module.number(_MODULE.has_external_data, "?"):
            if not data_path:
                raise Unfit("its data lies in a file beside it; open it by its path")
            external = memoryview(open_source(data_path, "checkpoint data").buf)
        found.trainable = _arrays(module.tables(_MODULE.requires_grad_params), found.is_nominal, external)
        found.frozen = _arrays(module.tables(_MODULE.frozen_params), found.is_nominal, external)
        twice = found.trainable.keys() & found.frozen.keys()
        if twice:
            raise Unfit(f"{', '.join(sorted(twice))} is both trainable and frozen")
    for group in root.tables(_CHECKPOINT.optimizer_groups):
        states = group.tables(_GROUP.optimizer_states)
        found.groups[group.text(_GROUP.group_name)] = OptimizerGroupState(
            group.number(_GROUP.step, "q"),
            group.number(_GROUP.initial_learning_rate, "f"),
            {each.text(_STATE.param_name): _arrays(each.tables(_STATE.momentums), False, None) for each in states},
        )
    bag = root.table(_CHECKPOINT.property_bag)
    if bag is not None:
        for slot, code in ((_BAG.ints, "q"), (_BAG.floats, "f")):
            for each in bag.tables(slot):
                found.properties[each.text(_PROPERTY.name)] = each.number(_PROPERTY.value, code)
        for each in bag.tables(_BAG.strings):
            found.properties[each.text(_PROPERTY.name)] = each.text(_PROPERTY.value)
    return found


def _arrays(tables: Iterable[FlatTable], nominal: bool, external: memoryview | None) -> dict[str, Array]:
    """Tensors by name, as arrays that own their memory."""
    found: dict[str, Array] = {}
    for table in tables:
        name = table.text(_TENSOR.name)
        if not name or name in found:
            raise Unfit(f"two tensors are called {name!r}" if name else "a tensor has no name")
        if nominal:
            try:
                found[name] = np.empty(0, dtypes.from_onnx(table.number(_TENSOR.data_type, "i")).numpy)
            except ValueError as error:
                raise Unfit(f"tensor {name!r}: {error}") from None
            continue
        try:
            found[name] = np.array(make_tensor(table, name, external).numpy())
        except Unfit as unfit:
            raise Unfit(f"tensor {name!r}: {unfit}") from None
    return found


def save_checkpoint(checkpoint: Checkpoint, path: str | os.PathLike[str], *, inline: int = _INLINE) -> None:
    """Write a checkpoint to a file that appears complete or not at all; more than `inline` bytes of data go into a second one."""
    target = os.fsdecode(path)
    arrays = [*checkpoint.trainable.values(), *checkpoint.frozen.values()]
    outside = sum(array.nbytes for array in arrays) > inline and not checkpoint.is_nominal
    twice = checkpoint.trainable.keys() & checkpoint.frozen.keys()
    if twice:
        raise InvalidArgument(f"Duplicated parameters: {', '.join(sorted(twice))} cannot be both trainable and frozen")
    with ExitStack() as files:
        data = files.enter_context(replacing(f"{target}.data")) if outside else None
        root = TableOut()
        root.number(_CHECKPOINT.version, "i", _VERSION)
        module = TableOut()
        for slot, parameters in (
            (_MODULE.requires_grad_params, checkpoint.trainable),
            (_MODULE.frozen_params, checkpoint.frozen),
        ):
            module.tables(slot, _tensors(parameters, checkpoint.is_nominal, data))
        module.number(_MODULE.is_nominal_state, "?", checkpoint.is_nominal, False)
        module.number(_MODULE.has_external_data, "?", outside, False)
        root.table(_CHECKPOINT.module_state, module)
        root.tables(_CHECKPOINT.optimizer_groups, [_group(name, group) for name, group in sorted(checkpoint.groups.items())])
        if checkpoint.properties:
            root.table(_CHECKPOINT.property_bag, _bag(checkpoint.properties))
        files.enter_context(replacing(target)).writelines(encode(root, IDENTIFIER))


def _tensors(arrays: Mapping[str, Array], nominal: bool, data: Any) -> list[TableOut]:
    """Tables of arrays, in the order of their names; their data in `data`, if that is a file."""
    tables = []
    for name, array in sorted(arrays.items()):
        tensor = from_numpy(np.asarray(array, order="C"))
        if not nominal and (data is None or array.nbytes <= _SMALL or tensor.dtype is dtypes.STRING):
            tables.append(tensor_table(tensor, name))
            continue
        table = TableOut()
        table.text(_TENSOR.name, name)
        table.numbers(_TENSOR.dims, "q", () if nominal else tensor.shape)
        table.number(_TENSOR.data_type, "i", tensor.dtype.onnx)
        if not nominal:
            data.write(bytes(-data.tell() % 8))
            table.number(_TENSOR.external_data_offset, "q", data.tell(), -1)
            data.write(tensor.raw())
        tables.append(table)
    return tables


def _group(name: str, group: OptimizerGroupState) -> TableOut:
    table = TableOut()
    table.text(_GROUP.group_name, name)
    table.number(_GROUP.step, "q", group.step)
    table.number(_GROUP.initial_learning_rate, "f", group.initial_learning_rate)
    states = []
    for parameter, tensors in sorted(group.parameters.items()):
        state = TableOut()
        state.text(_STATE.param_name, parameter)
        state.tables(_STATE.momentums, _tensors(tensors, False, None))
        states.append(state)
    table.tables(_GROUP.optimizer_states, states)
    return table


def _bag(properties: Mapping[str, Property]) -> TableOut:
    kinds: dict[type[Any], list[TableOut]] = {int: [], float: [], str: []}
    for name, value in sorted(properties.items()):
        table = TableOut()
        table.text(_PROPERTY.name, name)
        if isinstance(value, str):
            table.text(_PROPERTY.value, value)
        else:
            table.number(_PROPERTY.value, "q" if isinstance(value, int) else "f", value)
        kinds[type(value)].append(table)
    bag = TableOut()
    for slot, kind in ((_BAG.ints, int), (_BAG.floats, float), (_BAG.strings, str)):
        bag.tables(slot, kinds[kind])
    return bag
