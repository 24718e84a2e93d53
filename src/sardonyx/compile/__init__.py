"""The way from a model to a program that runs."""
