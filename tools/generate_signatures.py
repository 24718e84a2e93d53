"""Write the signature tables of the ONNX domains from the `onnx` package of the development environment.

    python tools/generate_signatures.py            writes src/sardonyx/ops/signatures/<domain>.txt
    python tools/generate_signatures.py --check    exits 1 if a table differs from what the package says

The grammar of a line is described in src/sardonyx/ops/signature.py. The other tables: generate_contrib_signatures.py.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import onnx.defs
from onnx.defs import OpSchema

from sardonyx import dtypes

FOLDER = Path(__file__).parent.parent / "src/sardonyx/ops/signatures"
DOMAINS = {"": "ai.onnx", "ai.onnx.ml": "ai.onnx.ml", "ai.onnx.preview": "ai.onnx.preview"}
DOMAINS["ai.onnx.preview.training"] = "ai.onnx.preview.training"


def short_type(text: str) -> str:
    """`tensor(float)` -> `f32`, `seq(tensor(int64))` -> `seq(i64)`, `map(string, float)` -> `map(str,f32)`."""
    text = text.replace(" ", "")
    text = re.sub(r"(?<!sparse_)tensor\((\w+)\)", lambda m: dtypes.from_ort(m[1]).name, text)
    text = re.sub(r"sparse_tensor\((\w+)\)", lambda m: f"sparse({dtypes.from_ort(m[1]).name})", text)
    return re.sub(r"map\((\w+),(\w+)\)", lambda m: f"map({dtypes.from_ort(m[1]).name},{_scalar(m[2])})", text)


def _scalar(name: str) -> str:
    return name if name in {d.name for d in dtypes.ALL} else dtypes.from_ort(name).name


def parameter(formal: OpSchema.FormalParameter) -> str:
    mark = ""
    if formal.option == OpSchema.FormalParameterOption.Optional:
        mark = "?"
    elif formal.option == OpSchema.FormalParameterOption.Variadic:
        mark = ("*" if formal.is_homogeneous else "**") + str(formal.min_arity)
    return f"{formal.name}{mark}: {short_type(formal.type_str)}"


def attribute(attr: OpSchema.Attribute) -> str:
    kind = attr.type.name.lower()
    if attr.required:
        return f"{attr.name}!: {kind}"
    default = attr.default_value
    if not default.name:
        return f"{attr.name}: {kind}"
    value = onnx.helper.get_attribute_value(default)
    if isinstance(value, bytes):
        text = repr(value.decode())
    elif kind in ("ints", "floats", "strings"):
        text = repr([item.decode() if isinstance(item, bytes) else item for item in value])
    elif kind in ("tensor", "graph", "type_proto"):  # an empty tensor stands for "no value"
        return f"{attr.name}: {kind}"
    else:
        text = repr(value)
    return f"{attr.name}: {kind} = {text}"


def types_of(schema: OpSchema) -> dict[str, str]:
    order = {dtype.name: position for position, dtype in enumerate(dtypes.ALL)}
    result = {}
    for constraint in schema.type_constraints:
        names = sorted({short_type(t) for t in constraint.allowed_type_strs}, key=lambda n: (order.get(n, 99), n))
        result[constraint.type_param_str] = " ".join(names)
    return result


def table(domain: str) -> str:
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain]
    schemas.sort(key=lambda s: (s.name, s.since_version))
    uses = Counter(types for s in schemas for types in types_of(s).values() if types.count(" ") > 2)
    groups = {types: f"@{number}" for number, (types, count) in enumerate(uses.most_common(), 1) if count > 1}
    lines = [f"# Operators of {DOMAINS[domain]}, every version. Written by tools/generate_signatures.py.", ""]
    lines += [f"{name} = {types}" for types, name in groups.items()] + [""]
    for s in schemas:
        deprecated = " deprecated" if s.deprecated else ""
        line = f"{s.name}-{s.since_version}{deprecated} ({', '.join(map(parameter, s.inputs))})"
        line += f" -> ({', '.join(map(parameter, s.outputs))})"
        if s.attributes:
            line += f" [{', '.join(attribute(a) for _, a in sorted(s.attributes.items()))}]"
        if s.type_constraints:
            line += " {" + "; ".join(f"{var}: {groups.get(t, t)}" for var, t in types_of(s).items()) + "}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    different = []
    for domain, name in DOMAINS.items():
        path, text = FOLDER / f"{name}.txt", table(domain)
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            different.append(path.name)
    if different:
        print(f"out of date: {', '.join(different)}; run python tools/generate_signatures.py")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
