"""Operators that choose elements by value."""

from __future__ import annotations
