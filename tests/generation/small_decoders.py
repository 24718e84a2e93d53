"""Small decoders for tests, in the forms that exporters write, and a greedy loop over them written by hand on onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from benchmarks.models.decoders import SMALL, write_decoder
from onnx import TensorProto, helper

Array = np.ndarray[Any, Any]
SWITCH = "use_cache_branch"


def decoder_file(folder: Path, form: str, **options: Any) -> Path:
    """A decoder of two layers: plain, grouped, merged, prompt (of a model without past inputs) or pastless."""
    path = folder / f"{form}.onnx"
    if form in ("plain", "grouped"):
        return write_decoder(path, SMALL, form=form, **options)  # type: ignore[arg-type]
    model = onnx.load(write_decoder(path, SMALL, form="plain", **options))
    changed = {"merged": merged, "prompt": without_past, "pastless": without_caches}[form](model)
    onnx.save(changed, path)
    return path


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def without_past(model: onnx.ModelProto) -> onnx.ModelProto:
    """What reads prompts: no past, present is all new."""
    made = _copy(model)
    graph = made.graph
    for node in graph.node:
        if node.op_type == "Concat" and node.input[0].startswith("past_key_values"):
            node.op_type = "Identity"
            del node.input[0]
            del node.attribute[:]
    kept = [value for value in graph.input if not value.name.startswith("past")]
    del graph.input[:]
    graph.input.extend(kept)
    return made


def without_caches(model: onnx.ModelProto) -> onnx.ModelProto:
    """A decoder that reads everything anew for each token."""
    made = without_past(model)
    del made.graph.output[1:]
    return made


def merged(model: onnx.ModelProto) -> onnx.ModelProto:
    """Both in one model: an If on an input takes the one with past or the one without."""
    made = _copy(model)
    graph = made.graph
    branches = {}
    for name, source in (("then_branch", model), ("else_branch", without_past(model))):
        inner = onnx.GraphProto(name=name)
        renamed = {value.name: f"{name}/{value.name}" for value in graph.output}
        for node in source.graph.node:
            new = inner.node.add()
            new.CopyFrom(node)
            for names in (new.input, new.output):
                names[:] = [renamed.get(each, each) for each in names]
        for value in source.graph.output:
            made_output = inner.output.add()
            made_output.CopyFrom(value)
            made_output.name = renamed[value.name]
        branches[name] = inner
    node = helper.make_node("If", [SWITCH], [value.name for value in graph.output], **branches)
    del graph.node[:]
    graph.node.append(node)
    graph.input.append(helper.make_tensor_value_info(SWITCH, TensorProto.BOOL, [1]))
    return made


EMPTY_PAST = (1, SMALL.key_heads, 0, SMALL.head)


def greedy_by_hand(
    path: Path, prompt: list[int], count: int, empty: tuple[int, ...] = EMPTY_PAST, session: Any = None
) -> list[int]:
    """Tokens after a prompt, by a loop over onnxruntime or a session that feeds present as past; the first one is `empty`."""
    session = session or onnxruntime.InferenceSession(path)
    names = [each.name for each in session.get_inputs()]
    past = {name: np.zeros(empty, np.float32) for name in names if name.startswith("past")}
    made: list[int] = []
    ids = np.array([prompt])
    for _ in range(count):
        total = len(prompt) + len(made)
        feeds: dict[str, Array] = {"input_ids": ids, "attention_mask": np.ones((1, total), np.int64), **past}
        if "position_ids" in names:
            feeds["position_ids"] = np.arange(total - ids.shape[1], total)[None]
        logits, *presents = session.run(None, feeds)
        made.append(int(logits[0, -1].argmax()))
        past = dict(zip(past, presents))
        ids = np.array([made[-1:]])
    return made
