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
TRAINING = (  # only the package for training has these; the schema says how
    "AdamWOptimizer-1 (lr: T1, step: T2, weights: S_WEIGHT, gradients: S_GRAD, momentums_1: S_MOMENT, momentums_2: S_MOMENT, "
    "update_signal?: T_BOOL) -> (updated_flag: T_BOOL, updated_weights?: S_WEIGHT, updated_momentums_1?: S_MOMENT, "
    "updated_momentums_2?: S_MOMENT) [adam_mode: int = 0, alpha: float = 0.8999999761581421, beta: float = 0.9990000128746033, "
    "correct_bias: int = 1, epsilon: float = 9.99999993922529e-09, weight_decay: float = 0.009999999776482582] "
    "{T1: f32; T2: i64; S_WEIGHT: seq(f16) seq(f32) seq(f64); S_GRAD: seq(f16) seq(f32) seq(f64); "
    "S_MOMENT: seq(f16) seq(f32) seq(f64); T_BOOL: bool}",
    "InPlaceAccumulatorV2-1 (accumulation_buffer: T, value: T_GRAD, overwrite_flag?: T_BOOL) -> (updated_flag: T_BOOL, "
    "accumulation_buffer_out?: T) {T: f32 f16 f64 bf16; T_GRAD: f32 f16 f64 bf16; T_BOOL: bool}",
    "InplaceClipGradNorm-1 (gradients: S_GRAD) -> (clipped_gradients: S_GRAD) [max_norm: float = 1.0, norm_type: string = 'fro'] "
    "{S_GRAD: seq(f16) seq(f32) seq(f64)}",
    "ReduceAllL2-1 (X*1: TIn) -> (Y: TOut) {TIn: f32 f16 f64 bf16; TOut: f32 f16 f64 bf16}",
    "ReluGrad-1 (dY: T, X: T) -> (dX: T) {T: f32 f16 f64 bf16}",
    "SigmoidGrad-1 (dY: T, Y: T) -> (dX: T) {T: f32 f16 f64 bf16}",
    "SoftmaxCrossEntropyLossGrad-1 (dY: T, log_prob: T, label: Tind, weight?: T) -> (d_logits: T) "
    "[ignore_index: int, reduction: string = 'mean'] {T: f32 f16 f64 bf16; Tind: i32 i64}",
    "TanhGrad-1 (dY: T, Y: T) -> (dX: T) {T: f32 f16 f64 bf16}",
    "SGDOptimizerV2-1 (lr: T1, weights: S_WEIGHT, gradients: S_GRAD, update_signal?: T_BOOL) -> (update_completed: T_BOOL, "
    "updated_weights?: S_WEIGHT) {T1: f32; T_BOOL: bool; S_WEIGHT: seq(f16) seq(f32) seq(f64); "
    "S_GRAD: seq(f16) seq(f32) seq(f64)}",
)
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
    lines = sorted(
        [*map(line, schemas), *(TRAINING if domain == "com.microsoft" else ())], key=lambda each: each.partition("-")[0]
    )
    title = domain or "ai.onnx that only ONNX Runtime knows"
    return "\n".join([f"# Operators of {title}. Written by tools/generate_contrib_signatures.py.", "", *lines]) + "\n"


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
