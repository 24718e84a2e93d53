"""Moving and picking elements: how the operators are lowered."""
