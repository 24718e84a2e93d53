"""Control flow and sequences: what the operators mean."""
