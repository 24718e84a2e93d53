"""Who computes a node: execution providers turn nodes into steps of a plan."""
