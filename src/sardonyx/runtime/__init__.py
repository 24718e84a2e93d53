"""Runs a plan: frames, results, values handed in and out."""
