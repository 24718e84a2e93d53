"""Execution providers: who computes which nodes of a model.

`protocol` has what a provider must be, `partition` divides a graph between those of a session, `connected` makes regions of
nodes; `sardonyx.register_provider` makes one available. docs/providers.md shows how to write one.
"""

from sardonyx.analysis.attributes import attribute_values
from sardonyx.matching.kernels import FormalArgument, KernelDef, KernelTable, TypeResolver
from sardonyx.providers.connected import connected_regions
from sardonyx.providers.protocol import ClaimedRegion, Declined, Device, ExecutionProvider, GraphView, RegionFunction

__all__ = [
    "ClaimedRegion",
    "Declined",
    "Device",
    "ExecutionProvider",
    "FormalArgument",
    "GraphView",
    "KernelDef",
    "KernelTable",
    "RegionFunction",
    "TypeResolver",
    "attribute_values",
    "connected_regions",
]
