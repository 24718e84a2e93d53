"""Write the signature tables of ONNX Runtime's own operators from the `onnxruntime` package of the development environment.

    python tools/generate_contrib_signatures.py            writes src/sardonyx/ops/signatures/{com.*,ai.onnx.extra}.txt
    python tools/generate_contrib_signatures.py --check    exits 1 if a table differs from what the package says

Only operators Sardonyx defines get a line. `ai.onnx.extra` holds the operators and versions of ai.onnx that the `onnx` package
does not know and ONNX Runtime runs all the same: experimental ones removed long ago, and LayerNormalization before opset 17.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from generate_signatures import short_type
from sardonyx import dtypes
from sardonyx.ops import registry

FOLDER = Path(__file__).parent.parent / "src/sardonyx/ops/signatures"
TABLES = ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc", "ai.onnx.extra")
_ORDER = {dtype.name: position for position, dtype in enumerate(dtypes.ALL)}


def parameters(formals: list[Any], least: int) -> str:
    parts = []
    for position, formal in enumerate(formals):
        option = str(formal.option).rpartition(".")[2]
        mark = "?" if option == "Optional" else ""
        if option == "Variadic":
            mark = ("*" if formal.isHomogeneous else "**") + str(max(0, least - position))
        parts.append(f"{formal.name}{mark}: {short_type(formal.typeStr)}")
    return ", ".join(parts)


def attribute(attr: Any) -> str:
    kind = str(attr.type).rpartition(".")[2].lower()
    if attr.required:
        return f"{attr.name}!: {kind}"
    default = onnx.AttributeProto()
    default.ParseFromString(attr._default_value)
    if not default.name or kind in ("tensor", "graph"):
        return f"{attr.name}: {kind}"
    value = onnx.helper.get_attribute_value(default)
    if isinstance(value, bytes):
        value = value.decode()
    elif kind == "strings":
        value = [item.decode() for item in value]
    return f"{attr.name}: {kind} = {list(value) if kind in ('ints', 'floats') else value!r}"


def line(schema: Any) -> str:
    text = f"{schema.name}-{schema.since_version}{' deprecated' if schema.deprecated else ''}"
    text += f" ({parameters(schema.inputs, schema.min_input)}) -> ({parameters(schema.outputs, schema.min_output)})"
    if schema.attributes:
        text += f" [{', '.join(attribute(attr) for _, attr in sorted(schema.attributes.items()))}]"
    types = []
    for constraint in schema.type_constraints:
        names = {short_type(name) for name in constraint.allowed_type_strs}
        types.append(f"{constraint.type_param_str}: {' '.join(sorted(names, key=lambda name: (_ORDER.get(name, 99), name)))}")
    return text + (f" {{{'; '.join(types)}}}" if types else "")


def table(name: str) -> str:
    domain = "" if name == "ai.onnx.extra" else name
    defined = {definition.name for definition in registry.definitions() if definition.domain == domain}
    schemas = [schema for schema in get_all_operator_schema() if schema.domain == domain and schema.name in defined]
    if not domain:
        standard = {
            (schema.name, schema.since_version) for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain
        }
        schemas = [schema for schema in schemas if (schema.name, schema.since_version) not in standard]
    schemas.sort(key=lambda schema: (schema.name, schema.since_version))
    title = domain or "ai.onnx that only ONNX Runtime knows"
    return (
        "\n".join([f"# Operators of {title}. Written by tools/generate_contrib_signatures.py.", "", *map(line, schemas)]) + "\n"
    )


def main() -> int:
    different = []
    for name in TABLES:
        path, text = FOLDER / f"{name}.txt", table(name)
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            different.append(path.name)
    if different:
        print(f"out of date: {', '.join(different)}; run python tools/generate_contrib_signatures.py")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
