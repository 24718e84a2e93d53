"""What an analysis has to say about a model: one problem, in words."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sardonyx.records import dataclass

Severity: TypeAlias = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding.

    An error means that the model cannot run as it is; a warning that it says something untrue or doubtful about itself; an info
    is worth knowing and nothing else. `where` is the label of a node or the name of a value, or empty for the whole model.
    """

    severity: Severity
    where: str
    text: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.text}" if self.where else self.text
        return f"{text} (hint: {self.hint})" if self.hint else text
