"""Models of the `onnx` package to models of ours and back: tools of ONNX Runtime take and give its messages."""

from __future__ import annotations

import os
from typing import Any

from sardonyx.formats import onnx as our_onnx
from sardonyx.formats.loading import load
from sardonyx.ir.graph import Model


def package() -> Any:
    """The `onnx` package."""
    try:
        import onnx  # lazy: who asks for messages has it
    except ImportError as error:
        raise ImportError("the package onnx is needed for its messages; `pip install onnx`", name="onnx") from error
    return onnx


def to_ir(model: Any) -> Model:
    """Our form of a message or of the model in a file."""
    if isinstance(model, (str, os.PathLike)):
        return load(os.fspath(model))
    if any(opset.domain in ("", "ai.onnx") for opset in model.opset_import):
        return load(model.SerializeToString())
    onnx = package()  # a model that names no version of ONNX's operators is taken for one of the newest, as by onnxruntime
    complete = onnx.ModelProto()
    complete.CopyFrom(model)
    complete.opset_import.append(onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version()))
    return load(complete.SerializeToString())


def to_message(model: Model) -> Any:
    """The message of a model, weights inside."""
    message = package().ModelProto()
    message.ParseFromString(our_onnx.to_bytes(model))
    return message


def load_message(path: str | os.PathLike[str]) -> Any:
    """The message in a file, weights inside."""
    return package().load(os.fspath(path))
