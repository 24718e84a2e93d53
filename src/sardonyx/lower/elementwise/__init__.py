"""Element by element: how the operators are lowered."""
