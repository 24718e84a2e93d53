"""Graph -> kernels and steps: which nodes share a kernel, and what each kernel computes."""
