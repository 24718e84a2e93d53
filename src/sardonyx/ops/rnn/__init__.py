"""Recurrent cells: what the operators mean."""
