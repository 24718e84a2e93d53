"""Log lines go through Python's `logging`, under the name "sardonyx"; severities are ONNX Runtime's numbers.

0 verbose -> DEBUG, 1 info -> INFO, 2 warning -> WARNING (default), 3 error -> ERROR, 4 fatal -> CRITICAL
"""

from __future__ import annotations

import logging
import operator
from typing import Any, Final

VERBOSE, INFO, WARNING = 0, 1, 2
_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_LOGGER: Final = logging.getLogger("sardonyx")
_LOGGER.setLevel(logging.WARNING)


def set_default_logger_severity(severity: int) -> None:
    """Drop log lines below a severity: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    severity = operator.index(severity)
    if not 0 <= severity < len(_LEVELS):
        raise RuntimeError(f"Invalid logging severity {severity}. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    _LOGGER.setLevel(_LEVELS[severity])


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted for compatibility: severity 0 tells everything there is."""
    operator.index(verbosity)


def log(severity: int, message: str, *args: Any, threshold: int = -1, logid: str = "") -> None:
    """Write a line. A session's own severity (`threshold`) decides whether; -1 leaves it to the default one."""
    if threshold >= 0 and severity < threshold:
        return
    text = f"[{logid}] {message}" if logid else message
    if threshold < 0:
        _LOGGER.log(_LEVELS[severity], text, *args)
    else:
        _LOGGER.handle(_LOGGER.makeRecord(_LOGGER.name, _LEVELS[severity], "sardonyx", 0, text, args, None))
