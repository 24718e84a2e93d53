"""Configurations of required operators: `onnxruntime.tools.reduced_build_config_parser`."""

from __future__ import annotations

from typing import Any

from sardonyx.conversion.required_operators import read_configuration


def parse_config(config_file: str, enable_type_reduction: bool = False) -> tuple[dict[str, dict[int, set[str]]] | None, Any]:
    """Operators by domain and version (None: all), and the types of operators (None: all of them).

    The domain of ONNX itself is `ai.onnx`. Types are what the file says of an operator, by (domain, name), or the set of those
    that are allowed everywhere.
    """
    found = read_configuration(config_file)
    operators = {domain or "ai.onnx": versions for domain, versions in found.operators.items()}
    if not enable_type_reduction:
        types: Any = None
    else:
        types = {(domain or "ai.onnx", name): listed for (domain, name), listed in found.types.items()} or found.allowed_types
    return None if not operators and found.needs_all else operators, types
