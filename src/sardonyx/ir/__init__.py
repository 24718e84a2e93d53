"""The graph IR: graphs of nodes and values, types, symbolic dimensions, a text form and a verifier."""
