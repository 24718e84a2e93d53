"""Execution providers: who computes which nodes of a model.

`protocol` has what a provider must be, `partition` divides a graph between those of a session, `registration` finds them by
name. docs/providers.md shows how to write one.
"""

from sardonyx.providers.partition import connected_regions
from sardonyx.providers.protocol import ClaimedRegion, Declined, Device, ExecutionProvider, GraphView

__all__ = ["ClaimedRegion", "Declined", "Device", "ExecutionProvider", "GraphView", "connected_regions"]
