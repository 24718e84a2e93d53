"""The models of the benchmarks: architectures made in code, and models out of packages. Nothing is downloaded."""
