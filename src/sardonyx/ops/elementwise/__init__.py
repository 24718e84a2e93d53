"""Element by element: what the operators mean."""
