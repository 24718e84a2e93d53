"""Results that are written where they are needed: parts of a Concat go straight into its result, no copy afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.lower.groups import Grouping

if TYPE_CHECKING:
    from sardonyx.lower.lowering import LowerContext


def place_results(ctx: LowerContext, grouping: Grouping) -> None:
    """Give values that are parts of a later result their place in it, before their groups are lowered."""
