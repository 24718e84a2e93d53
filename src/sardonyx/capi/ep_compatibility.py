"""Whether a model that was compiled ahead suits a device, and whether a device suits an execution provider.

Compiled models carry one text an execution provider in their metadata (`ep_compatibility_info.NAME`), which that provider alone
understands. Sardonyx has no provider that writes such texts, so it can hand them out, but judges none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sardonyx import errors
from sardonyx.enums import OrtEnum
from sardonyx.formats.loading import load
from sardonyx.provider_names import usable_providers
from sardonyx.runtime.devices import OrtEpDevice, OrtHardwareDevice, OrtHardwareDeviceType

_METADATA_KEY = "ep_compatibility_info."


class OrtCompiledModelCompatibility(OrtEnum):
    """How well a compiled model suits a device."""

    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


class OrtDeviceEpIncompatibilityReason(OrtEnum):
    """Why an execution provider cannot use a device; reasons add up."""

    NONE = 0
    DRIVER_INCOMPATIBLE = 1
    DEVICE_INCOMPATIBLE = 2
    MISSING_DEPENDENCY = 4
    UNKNOWN = -(1 << 31)


def get_compatibility_info_from_model(model_path: str | os.PathLike[str], ep_type: str) -> str | None:
    """What a compiled model's file says for an execution provider; None if nothing."""
    if not ep_type:
        raise RuntimeError("Invalid argument provided to GetCompatibilityInfoFromModel: the provider's name is empty.")
    if not os.path.isfile(model_path):
        raise RuntimeError(f"Load model {os.fspath(model_path)} failed. File doesn't exist")
    return _info(os.fspath(model_path), ep_type)


def get_compatibility_info_from_model_bytes(model_data: Any, ep_type: str) -> str | None:
    """What the bytes of a compiled model say for an execution provider; None if nothing."""
    content = bytes(memoryview(model_data))
    if not content or not ep_type:
        raise RuntimeError("Invalid argument provided to GetCompatibilityInfoFromModelBytes: the model or the name is empty.")
    return _info(content, ep_type)


def _info(source: str | bytes, ep_type: str) -> str | None:
    try:
        return load(source).metadata.get(_METADATA_KEY + ep_type)
    except errors.SardonyxError as error:
        raise RuntimeError(f"the model cannot be read: {error}") from error


def get_model_compatibility_for_ep_devices(ep_devices: Sequence[OrtEpDevice], info: str) -> OrtCompiledModelCompatibility:
    """What the provider of these devices says to a text out of a compiled model: nothing, here."""
    for device in ep_devices:
        if not isinstance(device, OrtEpDevice):
            raise TypeError(f"expected an OrtEpDevice, got {device!r}")
    if not isinstance(info, str):
        raise TypeError(f"expected the compatibility information as a str, got {info!r}")
    if len({device.ep_name for device in ep_devices}) != 1:
        raise RuntimeError("Invalid argument provided to GetModelCompatibilityForEpDevices: give devices of one provider.")
    return OrtCompiledModelCompatibility.EP_NOT_APPLICABLE


def get_hardware_device_ep_incompatibility_details(ep_name: str, hardware_device: OrtHardwareDevice) -> dict[str, Any]:
    """Why an execution provider cannot use a device: reasons as bits, notes, and an error code; all zero if it can."""
    if not isinstance(hardware_device, OrtHardwareDevice):
        raise TypeError(f"expected an OrtHardwareDevice, got {hardware_device!r}")
    if ep_name not in usable_providers([ep_name]):
        raise errors.InvalidArgument(f"No valid factory found for execution provider '{ep_name}'.")
    if hardware_device.type is OrtHardwareDeviceType.CPU:
        return {"reasons_bitmask": int(OrtDeviceEpIncompatibilityReason.NONE), "notes": None, "error_code": 0}
    reason = OrtDeviceEpIncompatibilityReason.DEVICE_INCOMPATIBLE
    return {"reasons_bitmask": int(reason), "notes": f"{ep_name} computes on the CPU", "error_code": 0}
