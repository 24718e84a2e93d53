"""Log lines go through Python's `logging`, under the name "sardonyx"; severities are ONNX Runtime's numbers.

0 verbose -> DEBUG, 1 info -> INFO, 2 warning -> WARNING (default), 3 error -> ERROR, 4 fatal -> CRITICAL
"""

from __future__ import annotations

import logging
import operator
from typing import Any, Final

_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_LOGGER: Final = logging.getLogger("sardonyx")
_verbosity = 0


def set_default_logger_severity(severity: int) -> None:
    """Drop log lines below a severity: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    severity = operator.index(severity)
    if not 0 <= severity < len(_LEVELS):
        raise RuntimeError(f"Invalid logging severity {severity}. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    _LOGGER.setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """How much is told at severity 0."""
    global _verbosity
    _verbosity = operator.index(verbosity)


def log(severity: int, message: str, *args: Any, threshold: int = -1, logid: str = "") -> None:
    """Write a line, unless a session's own severity (`threshold`) or the default one drops it."""
    if 0 <= threshold < len(_LEVELS) and severity < threshold:
        return
    _LOGGER.log(_LEVELS[severity], f"[{logid}] {message}" if logid else message, *args)


_LOGGER.setLevel(logging.WARNING)
