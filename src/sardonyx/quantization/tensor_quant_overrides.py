"""Overrides of how single tensors are quantized: types, ranges, or scale and zero point themselves.

{"weight": [{"quant_type": QuantType.QInt8, "axis": 0}],           by channels along axis 0
 "x": [{"quant_type": QuantType.QUInt16,                           16 bits for those who make x, 8 for those who read it
        "convert": {"quant_type": QuantType.QUInt8, "recv_nodes": {"Conv_3"}}}]}
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final

from sardonyx.quantization.types import QuantType
from sardonyx.records import dataclass

Override = dict[str, Any]
_WITHOUT_SCALE: Final = ("symmetric", "reduce_range", "rmax", "rmin")  # no use if scale and zero point are given
_KEYS: Final = frozenset(("quant_type", "axis", "scale", "zero_point", "symmetric", "reduce_range", "rmax", "rmin", "convert"))
_CONVERT_KEYS: Final = (_KEYS - {"axis", "convert"}) | {"recv_nodes"}


@dataclass
class QuantTypeInfo:
    """The type part of an override; two are equal if they agree in what both state."""

    quant_type: QuantType | None
    symmetric: bool | None = None
    reduce_range: bool | None = None
    axis: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantTypeInfo):
            return NotImplemented

        def agree(mine: bool | None, theirs: bool | None) -> bool:
            return mine is None or theirs is None or mine == theirs

        return (
            self.quant_type == other.quant_type
            and agree(self.symmetric, other.symmetric)
            and agree(self.reduce_range, other.reduce_range)
            and self.axis == other.axis
        )

    @staticmethod
    def load_from_dict(
        raw_dict: Mapping[str, Any],
        default_qtype: QuantType | None = None,
        default_symmetric: bool | None = None,
        default_reduce_range: bool | None = None,
    ) -> QuantTypeInfo:
        """The type part of an override, with defaults."""
        return QuantTypeInfo(
            raw_dict.get("quant_type", default_qtype),
            raw_dict.get("symmetric", default_symmetric),
            raw_dict.get("reduce_range", default_reduce_range),
            raw_dict.get("axis"),
        )

    def save_to_dict(self, raw_dict: Override) -> None:
        """Write it into an override."""
        raw_dict["quant_type"] = self.quant_type
        for key in ("symmetric", "reduce_range", "axis"):
            if getattr(self, key) is not None:
                raw_dict[key] = getattr(self, key)


class TensorQuantOverridesHelper(MutableMapping[str, list[Override]]):
    """Overrides by tensor: one dictionary for a whole tensor, or one for all or each of its channels (with an axis)."""

    def __init__(self, raw_overrides: dict[str, list[Override]]) -> None:
        self.overrides = raw_overrides
        self.quant_types: set[QuantType] | None = None

    def _first(self, tensor_name: str) -> Override | None:
        given = self.overrides.get(tensor_name)
        return given[0] if given else None

    def has_per_tensor_overrides(self, tensor_name: str) -> bool:
        """Whether a tensor has overrides, and no axis."""
        first = self._first(tensor_name)
        return first is not None and "axis" not in first

    def has_per_channel_overrides(self, tensor_name: str) -> bool:
        """Whether a tensor has overrides by channel."""
        first = self._first(tensor_name)
        return first is not None and "axis" in first

    def overrides_scale_zp(self, tensor_name: str) -> bool:
        """Whether scale and zero point of a tensor are given."""
        first = self._first(tensor_name)
        return first is not None and "scale" in first and "zero_point" in first

    def get_per_tensor_overrides(self, tensor_name: str, default_val: Override | None = None) -> Override | None:
        """The overrides of a whole tensor; ValueError if they are by channel."""
        if self.has_per_channel_overrides(tensor_name):
            raise ValueError(
                f"Expected tensor '{tensor_name}' to use per-tensor quantization overrides, but found per-channel overrides."
            )
        found = self._first(tensor_name)
        return default_val if found is None and tensor_name not in self.overrides else found

    def get_per_channel_overrides(self, tensor_name: str, default_val: list[Override] | None = None) -> list[Override] | None:
        """The overrides of channels; ValueError if they are for the whole tensor."""
        found = self.overrides.get(tensor_name, default_val)
        if not found:
            return None
        if "axis" not in found[0]:
            raise ValueError(
                f"Expected tensor '{tensor_name}' to have per-channel quantization overrides (axis value is missing)."
            )
        return found

    def get_quant_types(self) -> set[QuantType]:
        """All types that overrides name."""
        if self.quant_types is None:
            every = [override for overrides in (self.overrides or {}).values() for override in overrides]
            every += [override["convert"] for override in every if "convert" in override]
            self.quant_types = {override["quant_type"] for override in every if "quant_type" in override}
        return self.quant_types

    def is_valid(
        self,
        initializers: Mapping[str, Any],
        activation_names: Collection[str],
        default_activation_qtype: Any,
    ) -> tuple[bool, str | None]:
        """Whether the overrides fit a model, and what does not. Initializers are TensorProto messages or our own constants."""
        self.quant_types = None
        for name, given in (self.overrides or {}).items():
            complaint = self._complaint(name, given, initializers, activation_names, default_activation_qtype)
            if complaint:
                return False, complaint
        return True, None

    def _complaint(
        self, name: str, given: Any, initializers: Mapping[str, Any], activations: Collection[str], default: Any
    ) -> str | None:
        if name not in initializers and name not in activations:
            return f"Tensor '{name}' in TensorQuantOverrides is not present in the model"
        if not isinstance(given, list):
            return f"Tensor quantization overrides for '{name}' are not in a list"
        for index, each in enumerate(given):
            if not isinstance(each, dict):
                return f"Tensor quantization overrides at index {index} for '{name}' are not in a dict"
            unknown = sorted(set(each) - _KEYS) + sorted(set(each.get("convert", {})) - _CONVERT_KEYS)
            if unknown:
                return f"Tensor quantization overrides for '{name}' have an unknown key {unknown[0]!r}; known are {sorted(_KEYS)}"
        if not given or not given[0]:
            return None
        if len(given) > 1 or given[0].get("axis") is not None:
            return _channel_complaint(name, given, initializers)
        return _tensor_complaint(name, given[0], name in initializers, default)

    def update_tensor_overrides(
        self,
        tensor_name: str,
        new_vals: Mapping[str, Any],
        channels: Iterable[int] | None = None,
        overwrite: bool = True,
    ) -> bool:
        """Change overrides of a tensor, or of some of its channels; False if `overwrite` is not set and a key is there."""
        if not new_vals:
            return False
        wanted = set(channels) if channels is not None else None
        if not self.overrides.get(tensor_name):
            self.overrides[tensor_name] = [{}]
        found = self.overrides[tensor_name]
        chosen = [each for index, each in enumerate(found) if wanted is None or index in wanted]
        if not overwrite and any(set(each) & set(new_vals) for each in chosen):
            return False
        for each in chosen:
            each.update(new_vals)
        return True

    def get_node_output_qtype_info(
        self, output_name: str, default_qtype: QuantType | None, default_symmetric: bool | None = None
    ) -> QuantTypeInfo:
        """The type with which a node gives out a tensor."""
        first = self._first(output_name) or {}
        return QuantTypeInfo(first.get("quant_type", default_qtype), first.get("symmetric", default_symmetric))

    def get_node_input_qtype_info(
        self,
        input_name: str,
        node_name: str,
        default_qtype: QuantType | None,
        default_symmetric: bool | None = None,
        default_reduce_range: bool | None = None,
    ) -> QuantTypeInfo:
        """The type with which a node reads a tensor."""
        first = self._first(input_name)
        if first is None:
            return QuantTypeInfo(default_qtype, default_symmetric, default_reduce_range)
        converted = first.get("convert")
        if converted is None:
            return QuantTypeInfo.load_from_dict(first, default_qtype, default_symmetric, default_reduce_range)
        readers = converted.get("recv_nodes")
        source = converted if readers is None or node_name in readers else first
        return QuantTypeInfo(source.get("quant_type", default_qtype), converted.get("symmetric", default_symmetric))

    def pprint_str(self, indent: int | None = None) -> str:
        """The overrides as JSON."""
        return json.dumps(self.overrides, default=str, indent=indent)

    def empty(self) -> bool:
        """Whether there are none."""
        return not self.overrides

    def get_dict(self) -> dict[str, list[Override]]:
        """The overrides themselves."""
        return self.overrides

    def __getitem__(self, key: str) -> list[Override]:
        return self.overrides[key]

    def __setitem__(self, key: str, value: list[Override]) -> None:
        self.overrides[key] = value

    def __delitem__(self, key: str) -> None:
        del self.overrides[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.overrides)

    def __len__(self) -> int:
        return len(self.overrides)

    def __str__(self) -> str:
        return str(self.overrides)

    def __repr__(self) -> str:
        return f"{super().__repr__()}, TensorQuantOverridesHelper({self.overrides})"


def _scale_complaint(name: str, override: Mapping[str, Any]) -> str | None:
    has_scale, has_zero = "scale" in override, "zero_point" in override
    if has_scale != has_zero:
        return f"Must provide both 'scale' and 'zero_point' if one of the overrides is provided (tensor '{name}')"
    useless = [key for key in _WITHOUT_SCALE if key in override] if has_scale else []
    if useless:
        return f"Tensor override option(s) [{', '.join(useless)}] are invalid with 'scale' and 'zero_point' (tensor '{name}')"
    return None


def _tensor_complaint(name: str, override: Override, is_initializer: bool, default: Any) -> str | None:
    complaint = _scale_complaint(name, override)
    if complaint:
        return complaint
    converted = override.get("convert")
    if not is_initializer and ("reduce_range" in override or "reduce_range" in (converted or {})):
        return f"Option 'reduce_range' is only supported for initializers, not for activation {name}"
    if converted is None:
        return None
    if is_initializer:
        return f"Cannot use 'convert' override for initializers, such as {name}."
    if "quant_type" not in converted:
        return f"'convert' options (tensor '{name}') must specify a 'quant_type'"
    if converted["quant_type"] == override.get("quant_type", default):
        return f"'convert' quant_type must differ from original quant_type (tensor '{name}')"
    return _scale_complaint(name, converted)


def _channel_complaint(name: str, given: list[Override], initializers: Mapping[str, Any]) -> str | None:
    if name not in initializers:
        return f"Tensor '{name}' has per-channel overrides, but is not an initializer"
    first = given[0]
    axis = first.get("axis")
    if axis is None:
        return f"Per-channel overrides for tensor {name} is missing an 'axis' value in the first channel dictionary."
    held = initializers[name]
    shape = tuple(held.dims if hasattr(held, "dims") else held.shape)
    if not -len(shape) <= axis < len(shape):
        return f"Axis override value is out-of-bounds for tensor {name} (rank {len(shape)})"
    count = shape[axis]
    if len(given) not in (1, count):
        return f"Incorrect number of channel overrides for tensor {name} (axis {axis}), expected {count}, but found {len(given)}."
    if ("rmin" in first) != ("rmax" in first):
        return f"Must provide both 'rmin' and 'rmax' if one is provided (tensor '{name}')"
    for index, each in enumerate(given):
        if "convert" in each:
            return f"Cannot use 'convert' override for initializers, such as {name}."
        complaint = _scale_complaint(name, each)
        if complaint:
            return complaint
        for key in ("quant_type", "symmetric", "reduce_range"):
            if key in each and each[key] != first.get(key):
                return f"Channel {key} for tensor '{name}' does not match at index {index}."
        if "axis" in each and each["axis"] % len(shape) != axis % len(shape):
            return f"Channel axis for tensor '{name}' does not match at index {index}."
        for keys in (("scale", "zero_point"), ("rmin", "rmax")):
            if all(key in first for key in keys) and not all(key in each for key in keys):
                return (
                    f"Per-channel overrides must give {' and '.join(keys)} for all channels, but '{name}' lacks them at {index}."
                )
    return None
