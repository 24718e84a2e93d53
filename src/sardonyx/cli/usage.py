"""The error of a wrong command line."""

from __future__ import annotations


class UsageError(Exception):
    """An argument makes no sense; the message says which, the hint what would."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
