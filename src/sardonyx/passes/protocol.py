"""What a pass is: a frozen dataclass whose fields are its options and whose `run` changes a model in place.

The model is valid before and after `run`; in between anything goes. A pass has no state: what it finds out about a model
lives in local variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from sardonyx.ir.graph import Model


@dataclass(frozen=True, slots=True)
class PassResult:
    """Whether the model is another now; `reasons` says why something that looked like work was left as it is."""

    modified: bool
    reasons: tuple[str, ...] = ()


class Pass(Protocol):
    """A change of a model. `name` is what the command line and reports call it."""

    name: ClassVar[str]

    def run(self, model: Model) -> PassResult:
        """Change the model in place."""
        ...
