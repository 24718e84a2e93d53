"""What a training module shows of its work: how much it logs, and the graphs of each stage as files.

    TrainingModule(model, DebugOptions(log_level=LogLevel.INFO, save_onnx=True, onnx_prefix="bert"))

    bert_torch_exported_training.onnx    as the front end made it
    bert_optimized_pre_grad_training.onnx    as it is differentiated
    bert_optimized_training.onnx         forward and backward in one graph, after all passes
    bert_execution_model_training.onnx   the same: what is compiled

ORTMODULE_LOG_LEVEL and ORTMODULE_SAVE_ONNX_PATH in the environment come before what the program says, as in ONNX Runtime.
"""

from __future__ import annotations

import enum
import logging
import os
from pathlib import Path
from typing import Any, Final

from sardonyx.formats.onnx import save
from sardonyx.ir.graph import Model

LOG_LEVEL_VARIABLE: Final = "ORTMODULE_LOG_LEVEL"
PATH_VARIABLE: Final = "ORTMODULE_SAVE_ONNX_PATH"
LOGGER: Final = "sardonyx.training"


class LogLevel(enum.IntEnum):
    """How much is logged; each level includes those after it."""

    VERBOSE = 0
    DEVINFO = 1
    INFO = 2
    WARNING = 3
    ERROR = 4
    FATAL = 5


_PYTHON_LEVELS: Final = {
    LogLevel.VERBOSE: logging.DEBUG,
    LogLevel.DEVINFO: logging.INFO,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.FATAL: logging.CRITICAL,
}


class _SaveOptions:
    """Whether graphs are saved, under which prefix and where."""

    def __init__(self, save: bool, name_prefix: str, path: str) -> None:
        self.save = save
        self.name_prefix = name_prefix
        self.path = os.environ.get(PATH_VARIABLE, path or os.getcwd())
        if not save:
            return
        if not os.access(self.path, os.W_OK):
            raise OSError(f"Directory {self.path} is not writable. Set {PATH_VARIABLE} to a directory that is")
        if not isinstance(name_prefix, str):
            raise TypeError(f"Expected name prefix of type str, got {type(name_prefix)}.")
        if not name_prefix:
            raise ValueError("onnx_prefix must be provided when save_onnx is set.")


class _LoggingOptions:
    """The level that holds: the environment's, or the program's."""

    def __init__(self, log_level: LogLevel) -> None:
        if not isinstance(log_level, LogLevel):
            raise TypeError(f"Expected log_level of type LogLevel, got {type(log_level)}.")
        named = os.environ.get(LOG_LEVEL_VARIABLE, log_level.name)
        if named not in LogLevel.__members__:
            raise ValueError(f"{LOG_LEVEL_VARIABLE} is {named!r}, expected one of {', '.join(LogLevel.__members__)}")
        self.log_level = LogLevel[named]


class DebugOptions:
    """How much a training module logs, and whether it saves its graphs.

    `onnx_prefix` starts the names of saved files; `save_path` is their directory, by default the current one. Raises OSError
    if it is not writable, TypeError and ValueError for a log level or prefix that is none.
    """

    def __init__(
        self,
        log_level: LogLevel = LogLevel.WARNING,
        save_onnx: bool = False,
        onnx_prefix: str = "",
        save_path: str = "",
        config: Any = None,
    ) -> None:
        self.log_level = log_level
        self.save_onnx = save_onnx
        self.onnx_prefix = onnx_prefix
        self.save_onnx_models = _SaveOptions(save_onnx, onnx_prefix, save_path)
        self.logging = _LoggingOptions(log_level)

    def file_of(self, stage: str, *, is_training: bool) -> Path:
        """Where the graph of a stage is saved."""
        suffix = "training" if is_training else "inference"
        return Path(self.save_onnx_models.path) / f"{self.save_onnx_models.name_prefix}_{stage}_{suffix}.onnx"

    def save_stage(self, model: Model, stage: str, *, is_training: bool) -> None:
        """Write a graph, if that is wanted."""
        if self.save_onnx_models.save:
            save(model, self.file_of(stage, is_training=is_training))


def training_logger(level: LogLevel) -> logging.Logger:
    """The logger of training, at this level; in a process group only the first process logs below warnings."""
    logger = logging.getLogger(LOGGER)
    logger.setLevel(_PYTHON_LEVELS[level])
    return logger
