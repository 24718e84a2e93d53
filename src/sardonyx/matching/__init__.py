"""Which kernel serves a node: one mechanism for all execution providers."""
