"""Recurrent cells: how the operators are lowered."""
