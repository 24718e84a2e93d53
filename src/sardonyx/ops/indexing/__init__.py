"""Moving and picking elements: what the operators mean."""
