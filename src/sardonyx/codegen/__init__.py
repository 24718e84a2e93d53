"""Kernel -> machine code: the only part that knows the host and LLVM."""
