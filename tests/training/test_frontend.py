"""The front end: graphs of modules compute what the modules do, in training and in evaluation."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import sardonyx
from sardonyx.formats.onnx import to_bytes
from sardonyx.training.flatten import Leaf, flatten, leaf_schemas
from sardonyx.training.frontend.exported import ExportedGraph, ExportError, InputSource
from sardonyx.training.frontend.patches import NumberNeeded
from sardonyx.training.frontend.torchscript import CallInputs, export_module
from sardonyx.training.gradients.rules import STOP_GRADIENT


def exported(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[ExportedGraph, list[Leaf]]:
    leaves: list[Leaf] = []
    schema = flatten((args, kwargs), leaves)
    names = tuple(name for name, _ in leaf_schemas(schema, "x"))
    return export_module(module, CallInputs(schema, tuple(leaves), names)), leaves


def run(graph: ExportedGraph, module: nn.Module, leaves: Sequence[Leaf]) -> list[Any]:
    """The graph's outputs by the operators' definitions, for the module's state now."""
    tensors = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
    feeds = {}
    for each in graph.inputs:
        leaf = leaves[each.leaf] if each.source is InputSource.USER else tensors[each.origin]
        feeds[each.name] = leaf.detach().numpy() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf).numpy()
    session = sardonyx.InferenceSession(to_bytes(graph.model), providers=["SardonyxReferenceExecutionProvider"])
    return list(session.run(None, feeds))


def check(module: nn.Module, *args: Any, **kwargs: Any) -> ExportedGraph:
    """The graph's outputs and buffer updates are the module's; exporting changes nothing in the module."""
    before = copy.deepcopy(module.state_dict())
    random_state = torch.get_rng_state()
    graph, leaves = exported(module, *args, **kwargs)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert torch.equal(random_state, torch.get_rng_state())
    found = run(graph, module, leaves)
    expected: list[Any] = []
    flatten(module(*args, **kwargs), expected, numbers=False)
    for ours, theirs in zip(found, expected, strict=False):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=1e-5)
    buffers = dict(module.named_buffers())
    for name, ours in zip(graph.updated_buffers, found[graph.output_count :], strict=True):
        np.testing.assert_allclose(ours, buffers[name].numpy(), rtol=1e-6, atol=1e-6)
    return graph


class Conv(nn.Module):
    def __init__(self, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3, momentum=momentum)
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, times: int = 1) -> Any:
        x = self.conv(x)
        for _ in range(times):
            x = F.relu(self.norm(x))
        return self.head(self.dropout(x.mean((2, 3))))


@pytest.mark.parametrize("training", [True, False])
def test_a_convolution_with_batch_normalization(training: bool) -> None:
    graph = check(Conv().train(training), torch.randn(4, 2, 5, 6))
    operators = {node.op_type for node in graph.model.graph.nodes}
    assert ("Dropout" in operators) is training
    assert graph.updated_buffers == (("norm.running_mean", "norm.running_var") if training else ())
    assert graph.counted_buffers == ((("norm.num_batches_tracked", 1),) if training else ())
    assert {each.origin for each in graph.inputs if each.source is InputSource.PARAMETER} == set(dict(Conv().named_parameters()))


def test_every_size_of_an_input_is_open() -> None:
    module = Conv().eval()
    graph, _ = exported(module, torch.randn(4, 2, 5, 6))
    user = next(value for value in graph.model.graph.inputs if value.name == graph.inputs[0].name)
    assert user.shape is not None
    assert all(not isinstance(size, int) for size in user.shape)
    other = torch.randn(1, 2, 9, 3)
    np.testing.assert_allclose(run(graph, module, [other])[0], module(other).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_statistics_of_a_layer_that_runs_twice_are_updated_twice() -> None:
    with pytest.raises(NumberNeeded):  # `range` needs the number itself
        exported(Conv(), torch.randn(4, 2, 5, 6), 2)

    class Twice(Conv):
        def forward(self, x: torch.Tensor, times: int = 2) -> Any:
            return super().forward(x, 2)

    graph = check(Twice(), torch.randn(4, 2, 5, 6))
    assert graph.counted_buffers == (("norm.num_batches_tracked", 2),)


def test_statistics_without_momentum_are_averages_of_all_batches() -> None:
    module = Conv(momentum=None)
    for _ in range(2):
        module(torch.randn(4, 2, 5, 6))
    check(module, torch.randn(4, 2, 5, 6))


def test_a_layer_in_evaluation_inside_a_module_in_training_stays_so() -> None:
    module = Conv().train()
    module.norm.eval()
    assert check(module, torch.randn(4, 2, 5, 6)).updated_buffers == ()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("batch_first", [True, False])
def test_recurrent_layers_with_dropout_between_them(kind: type[nn.Module], batch_first: bool) -> None:
    module = kind(3, 4, 2, batch_first=batch_first, bidirectional=True, dropout=1e-12)
    graph = check(module.train(), torch.randn(5, 2, 3))
    assert [node.op_type for node in graph.model.graph.nodes].count("Dropout") == 1


def test_shared_parameters_are_one_input() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: torch.Tensor) -> Any:
            return self.head(self.embedding(tokens))

    graph = check(Tied(), torch.tensor([[1, 2, 4]]))
    assert [each.origin for each in graph.inputs if each.source is InputSource.PARAMETER] == ["embedding.weight"]


def test_buffers_that_the_module_writes_are_outputs() -> None:
    class Average(nn.Module):
        mean: torch.Tensor
        count: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.ones(3))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64), persistent=False)
            self.register_buffer("unused", torch.ones(3))

        def forward(self, x: torch.Tensor) -> Any:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            self.count = self.count + 1
            return x - self.mean

    graph = check(Average(), torch.randn(4, 3))
    assert set(graph.updated_buffers) == {"mean", "count"}
    assert {each.origin for each in graph.inputs if each.source is InputSource.BUFFER} == {"mean", "count"}


def test_a_change_of_a_buffer_that_the_trace_does_not_show_is_refused() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> Any:
            self.get_buffer("count").data += 1
            return x * 2

    with pytest.raises(ExportError, match="changes its buffer 'count' in a way"):
        exported(Counts(), torch.randn(4))


def test_detach_and_no_grad_stop_gradients() -> None:
    class Stops(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            with torch.no_grad():
                scale = y * 2
            return x * x.detach() + x * scale, y

    graph = check(Stops(), torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))
    stopped = [node for node in graph.model.graph.nodes if STOP_GRADIENT in node.metadata]
    assert [node.op_type for node in stopped] == ["Identity", "Identity"]


def test_an_output_that_is_an_input_or_given_twice_has_a_node_of_its_own() -> None:
    class Passes(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = x + 1
            return x, y, y

    graph = check(Passes(), torch.randn(3))
    outputs = graph.model.graph.outputs
    assert len({id(value) for value in outputs}) == 3
    assert all(value.producer is not None for value in outputs)


def test_the_same_tensor_given_twice_is_two_inputs() -> None:
    class Sub(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return x - y

    x = torch.randn(3)
    graph, _ = exported(Sub(), x, x)
    np.testing.assert_allclose(run(graph, Sub(), [x, x + 1])[0], [-1, -1, -1], rtol=1e-6)


def test_a_module_that_writes_into_its_input_is_refused() -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            x[0] = 7
            return x * 2

    x = torch.zeros(3)
    with pytest.raises(ExportError, match=r"changes its input 'x_0_0' in place"):
        exported(Writes(), x)
    assert torch.equal(x, torch.zeros(3))


def test_numbers_are_inputs() -> None:
    class Scale(nn.Module):
        def forward(self, x: torch.Tensor, by: float, rows: int) -> Any:
            return (x * by)[:rows]

    graph, _ = exported(Scale(), torch.randn(4, 2), 2.0, 3)
    found = run(graph, Scale(), [torch.ones(4, 2), 3.0, 2])[0]
    np.testing.assert_allclose(found, np.full((2, 2), 3.0))


def test_a_decision_by_data_is_refused_with_its_line() -> None:
    class Decides(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            if x.sum() > 0:
                return x
            return -x

    with pytest.raises(ExportError, match=r"depends on the data of a tensor, at .*test_frontend.py:\d+ \(if x.sum\(\) > 0:\)"):
        exported(Decides(), torch.ones(3))


def test_a_decision_by_a_size_is_noted() -> None:
    class Decides(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x if x.shape[0] > 2 else -x

    graph = check(Decides(), torch.ones(3))
    assert len(graph.fixed_by_sizes) == 1


def test_a_custom_autograd_function_is_refused_where_gradients_flow() -> None:
    class Clamp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clamp(0, 1)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    class Uses(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return Clamp.apply(x)

    with pytest.raises(ExportError, match=r"custom autograd function .*Clamp"):
        exported(Uses(), torch.randn(3, requires_grad=True))
    check(Uses(), torch.randn(3))


def test_operators_that_the_exporter_lacks() -> None:
    class Rare(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.diff(x, dim=1), torch.diff(x > 0, dim=0), (x > 0).cumsum(0), torch.cumsum(x, 1), torch.diff(x, n=2)

    check(Rare(), torch.randn(4, 5))


def test_an_operator_that_nobody_has_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    class Rare(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.special.bessel_j0(x)

    before = torch._C._jit_is_onnx_log_enabled()
    torch._C._jit_set_onnx_log_enabled(True)  # as an export by PyTorch's own function leaves it
    try:
        with pytest.raises(ExportError, match="bessel_j0"):
            exported(Rare(), torch.randn(4))
        assert torch._C._jit_is_onnx_log_enabled()
    finally:
        torch._C._jit_set_onnx_log_enabled(before)
    assert capfd.readouterr().out == ""


def test_autocast_becomes_casts() -> None:
    module = nn.Linear(3, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        graph, _ = exported(module, torch.randn(4, 3))
    assert "Cast" in {node.op_type for node in graph.model.graph.nodes}


def test_arguments_that_the_export_sets_itself_cannot_be_given() -> None:
    leaves: list[Leaf] = []
    schema = flatten(((torch.zeros(2, 3),), {}), leaves)
    inputs = CallInputs(schema, tuple(leaves), ("x",))
    with pytest.raises(ExportError, match="dynamo"):
        export_module(nn.Linear(3, 2), inputs, extra={"dynamo": True})
    assert export_module(nn.Linear(3, 2), inputs, extra={"custom_opsets": None}).output_count == 1
