"""Every exception Sardonyx raises; the names and codes are ONNX Runtime's, the texts say more.

A message names the place (model, node, input), what was found, what was expected, and what to do:

    INVALID_ARGUMENT : Concat 'dec/cat_3': input 2 is (8, 64, 7) but input 0 is (8, 9, 8): they may differ only on axis 1
      hint: export with static shapes, or insert a Reshape
"""

from __future__ import annotations

from typing import ClassVar


class SardonyxError(Exception):
    """Root of all errors raised on purpose; anything else that escapes is a bug in Sardonyx.

    `code` and `code_name` are the status ONNX Runtime would give; `hint` is the remedy, if one is known.
    """

    code: ClassVar[int] = 1
    code_name: ClassVar[str] = "FAIL"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.code_name} : {self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[type[SardonyxError], tuple[str], dict[str, str]]:
        return type(self), (self.message,), {"hint": self.hint}


class Fail(SardonyxError, RuntimeError):
    """Something went wrong that no other class describes: a file that cannot be written, an unsupported option value."""


class InvalidArgument(SardonyxError, ValueError):
    """A value handed in does not fit: a feed of the wrong type, rank or size, an unknown output name, bad data for a node."""

    code = 2
    code_name = "INVALID_ARGUMENT"


class NoSuchFile(SardonyxError, FileNotFoundError):
    """The model, or a file of external data it names, is not there."""

    code = 3
    code_name = "NO_SUCHFILE"

    def __str__(self) -> str:
        return SardonyxError.__str__(self)


class MissingData(NoSuchFile, Fail):
    """A file that a model or an adapter needs is not there. ONNX Runtime raises Fail, which this is as well."""


class NoModel(SardonyxError):
    """A session was asked to work before it had a model."""

    code = 4
    code_name = "NO_MODEL"


class EngineError(SardonyxError, RuntimeError):
    """The native compiler or the code it made failed in a way that is not the model's fault."""

    code = 5
    code_name = "ENGINE_ERROR"


class RuntimeException(SardonyxError, RuntimeError):
    """A node failed while the model ran; the message names it and its inputs."""

    code = 6
    code_name = "RUNTIME_EXCEPTION"


class InvalidProtobuf(SardonyxError, ValueError):
    """The bytes are not an ONNX model: truncated, corrupt or something else; the message gives the byte offset."""

    code = 7
    code_name = "INVALID_PROTOBUF"


class ModelLoaded(SardonyxError):
    """A session that has a model was given another."""

    code = 8
    code_name = "MODEL_LOADED"


class NotImplemented(SardonyxError, NotImplementedError):
    """No kernel for this operator, version or combination of types; the message lists what there is."""

    code = 9
    code_name = "NOT_IMPLEMENTED"


class InvalidGraph(Fail, InvalidArgument):
    """The model can be read but makes no sense: a cycle, a missing input, a duplicate name, types that do not fit.

    `problems` lists all that was found, one line each. ONNX Runtime stops at the first, and reports some (a cycle, shapes that
    do not fit, an operator nobody knows) as Fail and others (an input that nothing produces) as InvalidArgument: who catches
    those, catches this.
    """

    code = 10
    code_name = "INVALID_GRAPH"

    def __init__(self, message: str, *, hint: str = "", problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems or (message,)

    def __reduce__(self) -> tuple[type[SardonyxError], tuple[str], dict[str, str]]:
        return type(self), (self.message,), {"hint": self.hint, "problems": self.problems}  # type: ignore[dict-item]


class EPFail(SardonyxError, RuntimeError):
    """An execution provider failed."""

    code = 11
    code_name = "EP_FAIL"


class ModelLoadCanceled(SardonyxError):
    """Loading was stopped through the session options' cancellation flag."""

    code = 12
    code_name = "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(SardonyxError):
    """The model must be compiled first, and compiling was disabled."""

    code = 13
    code_name = "MODEL_REQUIRES_COMPILATION"


class NotFound(SardonyxError, LookupError):
    """A named thing (a configuration key, a value) is not there."""

    code = 14
    code_name = "NOT_FOUND"


class DeviceReset(SardonyxError, RuntimeError):
    """A device was reset while it worked and its sessions must be made anew; a CPU never is."""

    code = 15
    code_name = "DEVICE_RESET"


class BadNodeInput(InvalidArgument, Fail):
    """A node was given data that does not fit: an index out of range, sizes that contradict each other.

    ONNX Runtime reports this as InvalidArgument or as Fail, each kernel in its own way: who catches either, catches this.
    """


class NodeFailed(RuntimeException, Fail):
    """A node failed for another reason, as a result that does not fit into memory; for ONNX Runtime that is a Fail."""
