"""Gradient rules, one file for each family of operators, as in `ops` and `lower`."""
