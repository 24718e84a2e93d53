"""Messages of the onnx package, for callers who hand them over or want them; the only place that imports that package.

Models are read into our own graphs and written from them (`models`), without it. But programs written for ONNX Runtime pass
`onnx.ModelProto` and look into what comes back.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from sardonyx.errors import InvalidArgument
from sardonyx.formats.onnx import dense_initializers, load, save, to_bytes
from sardonyx.ir.graph import Model

_LARGEST = 2**31 - 1  # bytes that one message may have


def onnx_package() -> ModuleType:
    """The onnx package; InvalidArgument if it is not installed."""
    try:
        import onnx
        import onnx.external_data_helper
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise InvalidArgument(
            f"this call takes or gives messages of the onnx package, which cannot be imported: {error}",
            hint="install onnx, or hand over a path",
        ) from error
    found: ModuleType = onnx
    return found


def is_message(given: Any) -> bool:
    """Whether something is a message, as far as can be told without the package."""
    return hasattr(given, "SerializeToString") and hasattr(given, "graph")


def opened(path: str) -> Model:
    """The model in a file that is about to be removed: what it maps is mapped now, and lives on."""
    model = load(path)
    for _, constant in dense_initializers(model):
        if constant.external is not None:
            constant.raw()
    return model


def from_message(message: Any) -> Model:
    """The model in a ModelProto; its external data must be loaded."""
    if message.ByteSize() <= _LARGEST:
        return load(message.SerializeToString())
    with tempfile.TemporaryDirectory(prefix="sardonyx.") as folder:
        path = os.path.join(folder, "model.onnx")
        copy = type(message)()
        copy.CopyFrom(message)
        onnx_package().save_model(copy, path, save_as_external_data=True, location="model.data")
        return opened(path)


def to_message(model: Model) -> Any:
    """A ModelProto with all data inside."""
    onnx = onnx_package()
    size = sum(constant.nbytes for _, constant in dense_initializers(model))
    if size < _LARGEST // 2:
        return onnx.load_from_string(to_bytes(model))
    with tempfile.TemporaryDirectory(prefix="sardonyx.") as folder:
        path = Path(folder, "model.onnx")
        save(model, path, external_data="model.data")
        return onnx.load(str(path))


def set_metadata(message: Any, key: str, value: str) -> None:
    """Add an entry to the metadata of a ModelProto, or change it."""
    for entry in message.metadata_props:
        if entry.key == key:
            entry.value = value
            return
    message.metadata_props.add(key=key, value=value)
