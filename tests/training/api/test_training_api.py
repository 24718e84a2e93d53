"""Training without PyTorch against PyTorch: losses, gradients, optimizers, checkpoints, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_trainings import dense, dropped, normalised, write

import sardonyx
from sardonyx import errors
from sardonyx.training import artifacts, onnxblock
from sardonyx.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(32, 4)).astype(np.float32)
LABELS = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)


def opened(folder: Path, **options: Any) -> tuple[CheckpointState, Module, Optimizer]:
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx", **options)
    return state, module, Optimizer(folder / "optimizer_model.onnx", module)


def torch_dense(state: CheckpointState) -> dict[str, torch.nn.Parameter]:
    return {name: torch.nn.Parameter(torch.from_numpy(parameter.data)) for name, parameter in state.parameters}


def torch_loss(p: dict[str, torch.nn.Parameter], x: Any = X, labels: Any = LABELS) -> Any:
    hidden = torch.relu(torch.from_numpy(x) @ p["w1"] + p["b1"])
    return torch.nn.functional.cross_entropy(hidden @ p["w2"] + p["b2"], torch.from_numpy(labels))


def test_loss_and_gradients_are_those_of_pytorch(tmp_path: Path) -> None:
    state, module, _ = opened(write(dense(), tmp_path))
    parameters = torch_dense(state)
    expected = torch_loss(parameters)
    expected.backward()
    np.testing.assert_allclose(module(X, LABELS), expected.detach().numpy(), rtol=1e-5)
    for name, parameter in parameters.items():
        assert parameter.grad is not None
        found = state.parameters[name].grad
        assert found is not None
        np.testing.assert_allclose(found, parameter.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_ten_steps_end_where_pytorch_does(tmp_path: Path, kind: str, clip: float | None) -> None:
    clipping = None if clip is None else onnxblock.optim.ClipGradNorm(clip)
    decay: dict[str, Any] = {"weight_decay": 0.1, "eps": 1e-8} if kind == "AdamW" else {}
    block = getattr(onnxblock.optim, kind)(clip_grad=clipping, **decay)
    state, module, optimizer = opened(write(dense(), tmp_path, optimizer=block))
    parameters = torch_dense(state)
    options = {"lr": 0.01, **decay}
    reference: Any = torch.optim.AdamW(parameters.values(), **options) if decay else torch.optim.SGD(parameters.values(), lr=0.01)
    optimizer.set_learning_rate(0.01)
    for _ in range(10):
        module(X, LABELS)
        optimizer.step()
        module.lazy_reset_grad()
        reference.zero_grad()
        torch_loss(parameters).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
        reference.step()
    # transformers' AdamW decays behind the update and adds epsilon to the uncorrected root: a little different
    tolerance = 2e-3 if decay else 1e-5
    for name, parameter in parameters.items():
        np.testing.assert_allclose(state.parameters[name].data, parameter.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_gradients_add_up_until_they_are_reset(tmp_path: Path) -> None:
    state, module, _ = opened(write(dense(), tmp_path))
    assert not np.any(state.parameters["w1"].grad)
    module(X, LABELS)
    once = state.parameters["w1"].grad
    module(X, LABELS)
    assert once is not None
    twice = state.parameters["w1"].grad
    assert twice is not None
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-6)
    module.lazy_reset_grad()
    module(X, LABELS)
    np.testing.assert_array_equal(state.parameters["w1"].grad, once)


def test_batches_of_any_size_run_on_one_program(tmp_path: Path) -> None:
    _, module, _ = opened(write(dense(), tmp_path))
    for count in (32, 7, 1, 20):
        assert np.isfinite(module(X[:count], LABELS[:count]))


def test_batch_normalisation_keeps_running_statistics(tmp_path: Path) -> None:
    state, module, optimizer = opened(write(normalised(), tmp_path))
    x = RANDOM.normal(1.0, 2.0, size=(16, 2, 6, 6)).astype(np.float32)
    labels = RANDOM.integers(0, 3, 16)
    normal = torch.nn.BatchNorm2d(5, momentum=0.1)
    weights = {name: torch.from_numpy(parameter.data) for name, parameter in state.parameters}

    def forward(values: Any) -> Any:
        image = torch.nn.functional.conv2d(torch.from_numpy(values), weights["conv"], padding=1)
        return torch.relu(normal(image)).mean((2, 3)) @ weights["w"]

    for _ in range(3):
        expected = torch.nn.functional.cross_entropy(forward(x), torch.from_numpy(labels))
        np.testing.assert_allclose(module(x, labels), expected.detach().numpy(), rtol=1e-4)
    np.testing.assert_allclose(state.parameters["mean"].data, normal.running_mean.numpy(), rtol=1e-4, atol=1e-5)
    # ONNX divides the variance of a batch by the count, PyTorch by one less
    count = x[:, 0].size
    biased = 0.9**3 + (normal.running_var.numpy() - 0.9**3) * (count - 1) / count
    np.testing.assert_allclose(state.parameters["var"].data, biased, rtol=1e-4)
    assert not state.parameters["mean"].requires_grad
    module.eval()
    first = module(x, labels)
    np.testing.assert_array_equal(module(x, labels), first)
    optimizer.step()
    assert module(x, labels) != first


class _Sum(onnxblock.Block):
    def build(self, name: str) -> Any:
        return onnxblock.blocks.ReduceSum(keepdims=False)(name)


def test_dropout_drops_in_training_and_gradients_go_where_it_did_not(tmp_path: Path) -> None:
    state, module, _ = opened(write(dropped(), tmp_path, loss=_Sum(), additional_output_names=["y"]))
    weights, x = state.parameters["w"].data, np.ones((1, 64), np.float32)
    masks = []
    for _ in range(2):
        module.lazy_reset_grad()
        _, y = module(x)
        gradient = state.parameters["w"].grad
        assert gradient is not None
        np.testing.assert_allclose(gradient, y[0] / weights, rtol=1e-5)
        assert 10 < np.count_nonzero(gradient) < 54
        masks.append(gradient != 0)
    assert (masks[0] != masks[1]).any()
    loss, y = module.eval()(x)
    np.testing.assert_allclose(y[0], weights, rtol=1e-6)
    np.testing.assert_allclose(loss, weights.sum(), rtol=1e-4)


@pytest.mark.parametrize("make", [dense, normalised, dropped])
def test_training_steps_are_machine_code_altogether(tmp_path: Path, make: Any) -> None:
    loss = artifacts.LossType.MSELoss if make is dropped else artifacts.LossType.CrossEntropyLoss
    _, module, _ = opened(write(make(), tmp_path, loss=loss))
    for program in (module._train, module._eval):
        assert program is not None
        assert program._program._program.host_nodes == ()


def test_a_saved_training_goes_on_bit_by_bit(tmp_path: Path) -> None:
    state, module, optimizer = opened(write(dense(), tmp_path))
    state.properties["epoch"] = 1
    for _ in range(3):
        module(X, LABELS)
        optimizer.step()
        module.lazy_reset_grad()
    CheckpointState.save_checkpoint(state, tmp_path / "checkpoint", include_optimizer_state=True)
    again, copy, resumed = opened(tmp_path)
    assert again.properties["epoch"] == 1
    assert resumed.step_count == 3
    for each, step in ((module, optimizer), (copy, resumed)):
        for _ in range(3):
            each(X, LABELS)
            step.step()
            each.lazy_reset_grad()
    for name, parameter in state.parameters:
        np.testing.assert_array_equal(again.parameters[name].data, parameter.data)


def test_any_number_of_threads_gives_the_same_bits(tmp_path: Path) -> None:
    results = []
    for threads in (1, 2):
        options = sardonyx.SessionOptions()
        options.intra_op_num_threads = threads
        state, module, optimizer = opened(write(dense(4, 300), tmp_path), session_options=options)
        for _ in range(3):
            module(X, LABELS)
            optimizer.step()
            module.lazy_reset_grad()
        results.append(state.parameters["w1"].data)
    np.testing.assert_array_equal(results[0], results[1])


def test_the_trained_model_is_exported(tmp_path: Path) -> None:
    _, module, optimizer = opened(write(dense(), tmp_path))
    optimizer.set_learning_rate(0.05)
    for _ in range(60):
        module(X, LABELS)
        optimizer.step()
        module.lazy_reset_grad()
    module.export_model_for_inferencing(tmp_path / "inference.onnx", ["y"])
    session = sardonyx.InferenceSession(tmp_path / "inference.onnx")
    assert [each.name for each in session.get_inputs()] == ["x"]
    (scores,) = session.run(None, {"x": X})
    assert (scores.argmax(axis=1) == LABELS).mean() > 0.9


def test_frozen_parameters_stay_as_they_are(tmp_path: Path) -> None:
    state, module, optimizer = opened(write(dense(), tmp_path, requires_grad=["w2", "b2"], frozen_params=["w1", "b1"]))
    before = {name: parameter.data for name, parameter in state.parameters}
    module(X, LABELS)
    optimizer.step()
    assert state.parameters["w1"].grad is None
    np.testing.assert_array_equal(state.parameters["w1"].data, before["w1"])
    assert not np.array_equal(state.parameters["w2"].data, before["w2"])
    assert module.get_parameters_size(trainable_only=True) == 16 * 3 + 3
    assert module.get_parameters_size(trainable_only=False) == 16 * 3 + 3 + 4 * 16 + 16


def test_parameters_go_through_one_buffer(tmp_path: Path) -> None:
    state, module, optimizer = opened(write(dense(), tmp_path))
    kept = module.get_contiguous_parameters()
    module(X, LABELS)
    optimizer.step()
    assert not np.array_equal(module.get_contiguous_parameters().numpy(), kept.numpy())
    module.copy_buffer_to_parameters(kept)
    np.testing.assert_array_equal(module.get_contiguous_parameters().numpy(), kept.numpy())
    with pytest.raises(errors.InvalidArgument, match=r"the buffer is float32\[3\], the parameters are float32\[131\]"):
        module.copy_buffer_to_parameters(np.zeros(3, np.float32))
    state.parameters["b1"].data = np.ones(16, np.float32)
    assert state.parameters["b1"].data.sum() == 16
    with pytest.raises(errors.InvalidArgument, match=r"parameter 'b1' is float32\[16\], the value for it float32\[4\]"):
        state.parameters["b1"] = np.ones(4, np.float32)


def test_a_nominal_checkpoint_gets_its_parameters_later(tmp_path: Path) -> None:
    _, module, _ = opened(write(dense(), tmp_path, nominal_checkpoint=True))
    state = CheckpointState.load_checkpoint(tmp_path / "nominal_checkpoint")
    other = Module(tmp_path / "training_model.onnx", state)
    for use in (lambda: other(X, LABELS), other.get_contiguous_parameters):
        with pytest.raises(errors.InvalidArgument, match="Please load the model parameters first"):
            use()
    other.copy_buffer_to_parameters(module.get_contiguous_parameters(), trainable_only=False)
    np.testing.assert_array_equal(other(X, LABELS), module(X, LABELS))


def test_the_learning_rate_rises_and_falls(tmp_path: Path) -> None:
    _, module, optimizer = opened(write(dense(), tmp_path))
    assert optimizer.get_learning_rate() == pytest.approx(0.001)
    scheduler = LinearLRScheduler(optimizer, 2, 6, 0.4)
    rates = [optimizer.get_learning_rate()]
    for _ in range(7):
        module(X, LABELS)
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.get_learning_rate())
    np.testing.assert_allclose(rates, [0.0, 0.2, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0], rtol=1e-6)
    with pytest.raises(errors.InvalidArgument, match="expected 0 <= warmup <= total"):
        LinearLRScheduler(optimizer, 3, 2, 0.1)


def test_ortvalues_give_ortvalues_and_modes_have_names(tmp_path: Path) -> None:
    _, module, _ = opened(write(dense(), tmp_path, additional_output_names=["y"]))
    given = [sardonyx.OrtValue.ortvalue_from_numpy(each) for each in (X, LABELS)]
    loss, scores = module(*given)
    assert isinstance(loss, sardonyx.OrtValue)
    assert scores.shape() == [32, 3]
    assert module.input_names() == ["x", "labels"]
    assert module.eval().output_names()[1] == "y"


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = write(dense(), tmp_path)
    state, module, _ = opened(folder)
    with pytest.raises(errors.InvalidArgument, match="1 inputs were given, the model takes 2: x, labels"):
        module(X)
    with pytest.raises(errors.InvalidArgument, match="x"):
        module(X.astype(np.float64), LABELS)
    with pytest.raises(errors.InvalidArgument, match="device 'cuda' is not there"):
        Module(folder / "training_model.onnx", state, device="cuda")
    with pytest.raises(errors.InvalidArgument, match="there is no evaluation model"):
        Module(folder / "training_model.onnx", state).eval()(X, LABELS)
    other = write(dense(hidden=8), tmp_path)
    with pytest.raises(errors.InvalidArgument, match=r"parameter 'w1' is float32\[4, 16\] in the checkpoint and float32\[4, 8\]"):
        Module(other / "training_model.onnx", state)
    _export_forward(other, tmp_path / "forward.onnx")
    with pytest.raises(errors.NotImplemented, match="the optimizer model is made of Gemm, Relu, Gemm"):
        Optimizer(tmp_path / "forward.onnx", module)
    with pytest.raises(KeyError, match="Parameter nowhere not found"):
        state.parameters["nowhere"]
    with pytest.raises(errors.InvalidArgument, match="property 'flag' is a list"):
        state.properties["flag"] = [1]  # type: ignore[assignment]


def _export_forward(folder: Path, path: Path) -> None:
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    Module(folder / "training_model.onnx", state, folder / "eval_model.onnx").export_model_for_inferencing(path, ["y"])


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"requires_grad": ["nowhere"]}, errors.InvalidArgument, "the model has no parameter 'nowhere'"),
        ({"frozen_params": ["w1"]}, RuntimeError, "cannot be frozen and require gradient computation at the same time: w1"),
        ({"loss": "mse"}, RuntimeError, "Unknown loss provided"),
        ({"optimizer": "adam"}, TypeError, "Unknown optimizer provided"),
        ({"additional_output_names": "y"}, RuntimeError, "Unknown type provided for additional output names"),
        ({"artifact_directory": "/nowhere/at/all"}, errors.NoSuchFile, "there is no folder"),
    ],
)
def test_wrong_arguments_of_generate_artifacts(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    given = {"requires_grad": ["w1"], "loss": artifacts.LossType.CrossEntropyLoss, "artifact_directory": tmp_path, **options}
    with pytest.raises(error, match=text):
        artifacts.generate_artifacts(dense(), **given)


def test_it_needs_neither_pytorch_nor_onnx(tmp_path: Path) -> None:
    program = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "onnx", "onnxruntime"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
sys.path[:0] = {[str(Path(__file__).parent)]!r}
from pathlib import Path
import numpy as np
from small_trainings import dense, write
from sardonyx.training import onnxblock
from sardonyx.training.api import CheckpointState, Module, Optimizer
folder = write(dense(), Path({str(tmp_path)!r}), nominal_checkpoint=True, ort_format=True)
state = CheckpointState.load_checkpoint(folder / "checkpoint")
module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
optimizer = Optimizer(folder / "optimizer_model.onnx", module)
x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
for _ in range(3):
    module(x, np.zeros(8, np.int64)); optimizer.step(); module.lazy_reset_grad()
assert not {{"torch", "onnx"}} & sys.modules.keys()
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "training_model.ort").exists()
