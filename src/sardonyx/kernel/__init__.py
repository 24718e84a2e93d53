"""The inside of one kernel: expressions over elements, and the loops around them. Knows nothing of graphs."""
