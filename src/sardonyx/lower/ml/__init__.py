"""Classical machine learning: how the operators are lowered."""
