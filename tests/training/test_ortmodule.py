"""The face that ONNX Runtime's users know: `onnxruntime.training.ortmodule`, through the alias and by our own name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sardonyx
from sardonyx.training import ortmodule
from sardonyx.training.gradients import rules
from sardonyx.training.module import TrainingModule
from sardonyx.training.ortmodule import _utils
from sardonyx.training.ortmodule._custom_gradient_registry import register_gradient
from sardonyx.training.ortmodule._fallback import _FallbackPolicy
from sardonyx.training.utils import onnx_dtype_to_pytorch_dtype, pytorch_type_to_onnx_dtype

PROGRAM = """
import sardonyx
sardonyx.install_as_onnxruntime()
import torch
from onnxruntime.training.ortmodule import ORTModule, DebugOptions, LogLevel, _fallback, _utils
from onnxruntime.training.ortmodule.options import _SkipCheck
from onnxruntime.training import ORTModule as same
import onnxruntime.training.ortmodule as face
face.ONNX_OPSET_VERSION = 15
model = ORTModule(torch.nn.Linear(3, 2), DebugOptions(log_level=LogLevel.ERROR))
model(torch.ones(4, 3)).sum().backward()
manager = model._torch_module._execution_manager(True)
assert same is ORTModule
assert manager._graph_transition_manager._exported_model_info.exported_model.opset_import[0].version == 15
assert not manager._fallback_manager.is_pending()
assert manager._runtime_options.skip_check == _SkipCheck.SKIP_CHECK_DISABLED
print(model.weight.grad.shape)
"""


def test_the_alias() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert "torch.Size([2, 3])" in result.stdout


def test_names() -> None:
    assert ortmodule.ORTModule is TrainingModule is sardonyx.training.ORTModule is sardonyx.training.TrainingModule
    assert ortmodule.ORTMODULE_FALLBACK_POLICY.is_set(_FallbackPolicy.FALLBACK_UNSUPPORTED_DATA)
    assert _utils.get_device_str("cpu") == _utils.get_device_str(torch.device("cpu")) == "cpu:0"
    assert _utils.get_device_index(2) == 2
    states = _utils.get_random_states()
    first = torch.rand(2)
    _utils.set_random_states(states)
    assert torch.equal(torch.rand(2), first)
    for dtype in (torch.float32, torch.bfloat16, torch.bool):
        assert onnx_dtype_to_pytorch_dtype(pytorch_type_to_onnx_dtype(dtype)) is dtype
    assert pytorch_type_to_onnx_dtype("Long") == 7
    with pytest.raises(RuntimeError, match="Unsupported dtype"):
        pytorch_type_to_onnx_dtype("Nothing")


def test_constants_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ortmodule._defined_from_envvar("SOMETHING_UNSET", 3) == 3
    monkeypatch.setenv("SOMETHING_SET", "5")
    assert ortmodule._defined_from_envvar("SOMETHING_SET", 3) == 5
    monkeypatch.setenv("SOMETHING_SET", "five")
    with pytest.warns(UserWarning, match="Unable to overwrite constant"):
        assert ortmodule._defined_from_envvar("SOMETHING_SET", 3) == 3


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ORTMODULE_FALLBACK_POLICY", "SOMETIMES", "is no policy"),
        ("ORTMODULE_SKIPCHECK_POLICY", "SKIP_ALL", "is none of"),
        ("ORTMODULE_ONNX_OPSET_VERSION", "3", "expected a number from"),
        ("ORTMODULE_LOG_LEVEL", "LOUD", "expected one of"),
    ],
)
def test_wrong_settings_are_named(variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=message):
        TrainingModule(nn.Linear(2, 2))


def test_a_program_may_define_the_gradient_of_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cosine(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.cos(x)

    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    TrainingModule(Cosine())(torch.ones(1, requires_grad=True))  # the table is loaded
    monkeypatch.setattr(rules, "_RULES", dict(rules._RULES))

    @register_gradient("", "Cos")
    def cosine() -> Any:
        two = {"value": {"value": [2.0], "dtype": "IElemType(0)", "is_tensor": True}}
        product = [("Mul", ["s", "two"], ["m"]), ("Mul", ["m", "GO(0)"], ["GI(0)"])]
        return [("Sin", ["I(0)"], ["s"]), ("Constant", [], ["two"], two), *product]

    x = torch.tensor([0.5, 1.0], requires_grad=True)
    TrainingModule(Cosine())(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.sin(x.detach()))
    with pytest.raises(Exception, match="no nodes that call PyTorch"):
        register_gradient("org.pytorch.aten", "ATen", "embedding", "")


def test_graphs_of_every_stage_are_saved(tmp_path: Path) -> None:
    options = ortmodule.DebugOptions(save_onnx=True, onnx_prefix="net", save_path=str(tmp_path))
    model = TrainingModule(nn.Linear(3, 2), options)
    model(torch.ones(4, 3)).sum().backward()
    model.eval()
    with torch.no_grad():
        model(torch.ones(4, 3))
    saved = {path.name for path in tmp_path.iterdir()}
    stages = ("torch_exported", "optimized", "execution_model")
    expected = {f"net_{stage}_{mode}.onnx" for stage in stages for mode in ("training", "inference")}
    assert saved == expected | {"net_optimized_pre_grad_training.onnx"}
    for name in saved:
        sardonyx.load_model(tmp_path / name)
    view = model._torch_module._execution_manager(False)._onnx_models.optimized_model
    assert [node.op_type for node in view.graph.node] == ["Gemm"]
    assert view.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    assert sardonyx.load_model(view.SerializeToString()) is not None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"save_onnx": True, "onnx_prefix": "x", "save_path": "/non/existent"}, OSError, "not writable"),
        ({"save_onnx": True, "onnx_prefix": 3}, TypeError, "prefix of type str"),
        ({"save_onnx": True}, ValueError, "onnx_prefix must be provided"),
        ({"log_level": "loud"}, TypeError, "of type LogLevel"),
    ],
)
def test_wrong_debug_options_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ortmodule.DebugOptions(**arguments)


def test_the_documentation_names_every_operator_with_a_gradient() -> None:
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")
    section = text.split("## Operators with gradients")[1].split("\n## ")[0]
    named = set(re.findall(r"\w+", section))
    assert [name for _, name in rules.differentiable_operators() if name not in named] == []
