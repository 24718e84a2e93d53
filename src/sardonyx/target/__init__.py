"""What a machine can do: vectors, registers, caches, instructions. All stages of the compiler ask here, and nothing else."""
