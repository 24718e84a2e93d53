"""The pipeline: a model is read, rewritten, lowered, planned and compiled to a program that runs."""
