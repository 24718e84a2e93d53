"""Classical machine learning: what the operators mean."""
