"""GraphTransitionManager: its table row by row, what counts as which change, and what a failure leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sardonyx.training import transition
from sardonyx.training.fallback import ORTModuleIOError, ORTModuleONNXModelException
from sardonyx.training.transition import (
    TRANSITIONS,
    Action,
    Change,
    GraphState,
    GraphTransitionManager,
    Met,
    Transition,
    transition_of,
    transition_table,
)

PAGE = Path(__file__).parents[2] / "docs/training.md"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Any, mask: Any = None, *, double: bool = False, name: str = "", bad: bool = False) -> Any:
        if bad:
            raise ValueError("this module cannot do that")
        y = self.linear(x)
        y = y if mask is None else y * mask
        return {"y": y * 2 if double else y}


X = torch.ones(4, 3)


def manager_in(state: GraphState, monkeypatch: pytest.MonkeyPatch) -> GraphTransitionManager:
    """A manager that has come so far, by a call with X."""
    manager = GraphTransitionManager(Net(), is_training=True)
    if state is GraphState.EXPORTED:
        with monkeypatch.context() as patch:
            patch.setattr(manager, "_process", _fails)
            _fails_to_process(manager)
    elif state is GraphState.PROCESSED:
        manager.get_post_processed_model((X,), {})
    assert manager.state is state
    return manager


def _fails(*_: Any, **__: Any) -> None:
    raise RuntimeError("processing")


def _state(manager: GraphTransitionManager) -> GraphState:
    return manager.state


def _fails_to_process(manager: GraphTransitionManager) -> None:
    with pytest.raises(RuntimeError, match="processing"):
        manager.get_post_processed_model((X,), {})


def change(manager: GraphTransitionManager, kind: Change) -> tuple[Any, ...]:
    """Make a change, and return the arguments of the next call."""
    if kind is Change.GRADIENTS:
        manager._module.linear.weight.requires_grad_(not manager._module.linear.weight.requires_grad)
    elif kind is Change.INPUTS:
        return (X.double(),) if manager._current is None or manager._current.call.leaves else (X, X[:, :2])
    elif kind is Change.FLAGS:
        manager._module.train(not manager._module.training)
    elif kind is Change.MODULE:
        manager._module.linear = nn.Linear(3, 2)
    return (X,)


@pytest.mark.parametrize("row", TRANSITIONS, ids=[f"{row.state.value}-{row.change.name}-{row.met}" for row in TRANSITIONS])
def test_row(row: Transition, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_in(row.state, monkeypatch)
    args = change(manager, row.change)
    if row.state is GraphState.PROCESSED and row.met is Met.ALL:  # there and back: now going there again is known
        manager.get_post_processed_model(args, {})
        _back(manager, row.change)
    elif row.state is GraphState.PROCESSED and row.met is Met.GRAPH and row.change is not Change.GRADIENTS:
        manager.get_post_processed_model(args, {})
        _back(manager, row.change)
        change(manager, row.change)
        with torch.no_grad():
            _expect(manager, args, (Action.PROCESS,), row.result)
        return
    if row.change in (Change.FLAGS, Change.GRADIENTS) and row.met is Met.ALL:
        args = change(manager, row.change)
    _expect(manager, args, row.actions, row.result)


def _back(manager: GraphTransitionManager, kind: Change) -> None:
    if kind in (Change.FLAGS, Change.GRADIENTS):
        change(manager, kind)
    manager.get_post_processed_model((X,), {})


def _expect(manager: GraphTransitionManager, args: tuple[Any, ...], actions: tuple[Action, ...], state: GraphState) -> None:
    counters = manager.counters
    before = counters.exports, counters.processings
    made, info, leaves = manager.get_post_processed_model(args, {})
    done = counters.exports - before[0], counters.processings - before[1]
    assert done == (int(Action.EXPORT in actions), int(Action.PROCESS in actions))
    assert made is (Action.PROCESS in actions)
    assert manager.state is state
    assert len(leaves) == len(args)
    assert info is manager._post_export_processed_model_info
    if Action.FORGET in actions:
        assert len(manager._exports) == 1


def test_every_state_change_and_memory_has_a_row() -> None:
    for state in GraphState:
        for kind in Change:
            for met in Met:
                if state is GraphState.PROCESSED and kind is Change.GRADIENTS and met is Met.NO:
                    continue  # the graph of the call before is there
                if state is GraphState.NEW and kind is not Change.NOTHING:
                    continue
                assert transition_of(state, kind, met).state is state


def test_the_table_stands_in_the_documentation() -> None:
    assert transition_table() in PAGE.read_text("utf-8")


@pytest.mark.parametrize(
    ("args", "kwargs", "kind"),
    [
        ((torch.ones(9, 3),), {}, Change.NOTHING),
        ((X.clone().requires_grad_(),), {}, Change.GRADIENTS),
        ((X.double(),), {}, Change.INPUTS),
        ((X[0],), {}, Change.INPUTS),
        ((X, torch.ones(2)), {}, Change.INPUTS),
        ((X, None), {}, Change.INPUTS),
        ((), {"x": X}, Change.INPUTS),
        ((X,), {"double": True}, Change.INPUTS),
        ((X,), {"name": "a"}, Change.INPUTS),
    ],
)
def test_what_kind_of_change_an_input_is(args: tuple[Any, ...], kwargs: dict[str, Any], kind: Change) -> None:
    manager = GraphTransitionManager(Net(), is_training=True)
    manager.get_post_processed_model((X,), {})
    assert manager._change(manager._look(args, kwargs, manager._current), manager._current) is kind


def test_what_kind_of_change_the_module_is() -> None:
    manager = GraphTransitionManager(Net(), is_training=True)
    module = manager._module

    def look() -> Change:
        return manager._change(manager._look((X,), {}, manager._current), manager._current)

    manager.get_post_processed_model((X,), {})
    with torch.no_grad():
        assert look() is Change.GRADIENTS
    module.linear.bias.requires_grad_(False)
    assert look() is Change.GRADIENTS
    module.linear.bias.requires_grad_(True)
    module.linear.eval()
    assert look() is Change.FLAGS
    module.linear.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert look() is Change.FLAGS
    assert look() is Change.NOTHING
    module.linear.register_buffer("more", torch.ones(1))
    assert look() is Change.MODULE
    manager.get_post_processed_model((X,), {})
    manager.signal_model_changed()
    assert look() is Change.MODULE
    manager.get_post_processed_model((X,), {})
    assert look() is Change.NOTHING


def test_a_failure_leaves_the_last_good_state() -> None:
    manager = GraphTransitionManager(Net(), is_training=True)
    with pytest.raises(ORTModuleONNXModelException, match="cannot do that"):
        manager.get_post_processed_model((X,), {"bad": True})
    assert _state(manager) is GraphState.NEW
    _, info, _ = manager.get_post_processed_model((X,), {})
    exports = manager.counters.exports
    for args, kwargs, error in (
        ((X,), {"bad": True}, ORTModuleONNXModelException),
        ((object(),), {}, ORTModuleIOError),
    ):
        with pytest.raises(error):
            manager.get_post_processed_model(args, kwargs)
        assert _state(manager) is GraphState.PROCESSED
        assert manager.get_post_processed_model((X,), {})[1] is info
    assert manager.counters.exports == exports + 1  # the one that failed


def test_a_failed_export_of_a_changed_module_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_in(GraphState.PROCESSED, monkeypatch)
    before = manager._exported_model_info
    manager.signal_model_changed()
    with monkeypatch.context() as patch:
        patch.setattr(transition, "export_module", _fails)
        _fails_to_process(manager)
    assert manager._exported_model_info is before
    made, _, _ = manager.get_post_processed_model((X,), {})
    assert made


def test_inputs_are_named_and_constructed_and_outputs_restored() -> None:
    manager = GraphTransitionManager(Net(), is_training=True)
    mask = torch.ones(2, requires_grad=True)
    _, info, _ = manager.get_post_processed_model((X,), {"mask": mask})
    assert set(info.onnx_graph_input_names) == {"x", "mask", "linear.weight", "linear.bias"}
    assert set(info.onnx_graph_input_names_require_grad) == {"mask", "linear.weight", "linear.bias"}
    assert info.onnx_graph_input_names_user_defined == ("x", "mask")
    assert info.onnx_graph_input_names_require_grad_user_defined == ("mask",)
    assert info.onnx_graph_input_dynamic_axes_map["x"] == {0: "x_dim0", 1: "x_dim1"}
    tensors = dict(zip(info.onnx_graph_input_names, info.construct_inputs((X,), {"mask": mask}), strict=True))
    assert tensors["mask"] is mask
    assert tensors["linear.bias"] is manager._module.linear.bias
    assert info.restore_outputs([X])["y"] is X


def test_names_of_many_arguments() -> None:
    class Many(nn.Module):
        def forward(self, first: Any, *rest: Any, **named: Any) -> Any:
            return first + sum(rest) + named["a"]["b"][0]

    manager = GraphTransitionManager(Many(), is_training=True)
    _, info, _ = manager.get_post_processed_model((X, X, X), {"a": {"b": [X]}})
    assert info.onnx_graph_input_names == ("first", "rest_0", "rest_1", "a_b_0")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transition, "REMEMBERED", 2)
    manager = GraphTransitionManager(Net(), is_training=True)
    for name in "abcd":
        manager.get_post_processed_model((X,), {"name": name})
    assert len(manager._exports) == 2


def test_checks_can_be_skipped() -> None:
    manager = GraphTransitionManager(Net(), is_training=True, skip_checks=True)
    _, info, _ = manager.get_post_processed_model((X,), {})
    assert manager.get_post_processed_model((X.double(),), {})[1] is info
