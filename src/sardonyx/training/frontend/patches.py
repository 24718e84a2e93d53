"""What torch's TorchScript exporter lacks, put in its place while an export runs.

    no onnx package            the exporter asks for it although it only passes the model's bytes through
    the graph on stdout        which the exporter prints for an operator that it does not know
    dropout between layers     of LSTM, GRU and RNN in training: one node a layer, with Dropout between them
    vmap in attention masks    of transformers: index tensors that broadcast do the same
    stopped gradients          detach() and no_grad() in a module: the exporter knows only inference, and leaves them out
    custom gradients           of torch.autograd.Function: a graph would have the derivative of what forward does instead
    functions it lacks         losses, folding, pools and others, in functions that it has (`decompositions.py`)
    squeeze                    the exporter would ask at every run whether an axis has size 1
    sizes of norms             torch checks them by products in place, of which the exporter complains
    checkpoints                a graph decides by itself what is computed again: the function is traced as if there were none
    checks of distributions    torch.distributions asks for the data of its arguments: a graph cannot
    hooks on tensors           register_hook() and retain_grad() in a module: the tensors of a graph are no one's to watch
    Python values of tensors   `if tensor:`, `int(tensor)`, `tensor.item()`: a trace would fix what depends on data, unnoticed

All of them are global while they last, so one export runs at a time; other threads go on as before, since only one that is
tracing sees them do anything.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from sardonyx.training.frontend.decompositions import DECOMPOSED, l1_loss
from sardonyx.training.frontend.exported import ExportError
from sardonyx.training.frontend.symbolics import symbolics_registered

_LOCK: Final = threading.RLock()
_SIZES: Final = (
    "aten::size",
    "aten::numel",
    "aten::dim",
    "aten::len",
    "aten::sym_size",
    "prim::shape",
    "aten::is_floating_point",
)
_APPLY: Final = torch.autograd.Function.__dict__["apply"].__func__
_INDEXING: Final = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
_PARTS: Final = (  # functions that give as many tensors as an axis is long, or fewer
    torch.Tensor.unbind, torch.unbind, torch.Tensor.split, torch.split, torch.Tensor.chunk, torch.chunk, torch.Tensor.__iter__,
    torch.Tensor.tensor_split, torch.tensor_split, torch.Tensor.__len__,
)  # fmt: skip
_SQUEEZES: Final = (torch.Tensor.squeeze, torch.squeeze)
_OVERRIDE_CHECKS: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_DECOMPOSED_CODE: Final = frozenset(each.__code__ for each in DECOMPOSED if isinstance(each, types.FunctionType))
_TENSOR_HOOKS: Final = ("register_hook", "retain_grad")
_CONVERSIONS: Final = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist")


class NumberNeeded(Exception):
    """A module needs the Python value of a number that was fed as a tensor: it must be a constant of the graph."""


@contextlib.contextmanager
def _without_log(verbose: bool) -> Iterator[None]:
    """PyTorch's own turns the log on, and leaves it on: graphs that cannot be exported would be printed."""
    before = torch._C._jit_is_onnx_log_enabled()
    torch._C._jit_set_onnx_log_enabled(False)
    try:
        yield
    finally:
        torch._C._jit_set_onnx_log_enabled(before)


@contextlib.contextmanager
def exporter_patches() -> Iterator[None]:
    """Everything above but the watch over Python values, for one export at a time."""
    from torch.onnx._internal.torchscript_exporter import onnx_proto_utils, symbolic_opset9, utils  # lazy: half a second

    with contextlib.ExitStack() as stack:
        stack.enter_context(_LOCK)
        stack.enter_context(_replaced(onnx_proto_utils, "_add_onnxscript_fn", _without_functions(onnx_proto_utils)))
        stack.enter_context(_replaced(utils, "setup_onnx_logging", _without_log))
        stack.enter_context(_replaced(symbolic_opset9, "_generic_rnn", _layer_by_layer(symbolic_opset9._generic_rnn)))
        stack.enter_context(symbolics_registered())
        stack.enter_context(_FUNCTIONS)
        for owner in (torch.nn.functional, torch.functional):
            for name in _OVERRIDE_CHECKS:
                if hasattr(owner, name):
                    stack.enter_context(_replaced(owner, name, _asked_by_decomposed(getattr(owner, name))))
        stack.enter_context(_replaced(torch.autograd.Function, "apply", classmethod(_apply_custom_function)))
        stack.enter_context(_replaced(torch.nn.functional, "l1_loss", l1_loss))  # torch's would tell a mode nothing of weights
        for name in ("_verify_batch_size", "_verify_spatial_size"):
            stack.enter_context(_replaced(torch.nn.functional, name, _verified(getattr(torch.nn.functional, name))))
        stack.enter_context(_replaced(torch.distributions.Distribution, "_validate_args", _Unchecked()))
        checkpoints = sys.modules.get("torch.utils.checkpoint")
        if checkpoints is not None:
            original = checkpoints._checkpoint_without_reentrant_generator
            stack.enter_context(_replaced(checkpoints, original.__name__, _without_checkpoint(original)))
        for name in _TENSOR_HOOKS:
            stack.enter_context(_replaced(torch.Tensor, name, _refused_hook(name)))
        masks = sys.modules.get("transformers.masking_utils")
        if masks is not None and hasattr(masks, "_vmap_for_bhqkv"):
            stack.enter_context(_replaced(masks, "_vmap_for_bhqkv", _broadcasting_mask))
            if hasattr(masks, "TransformGetItemToIndex"):
                stack.enter_context(_replaced(masks, "TransformGetItemToIndex", contextlib.nullcontext))
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    kept = vars(owner).get(name)  # None: of a base class
    setattr(owner, name, value)
    try:
        yield
    finally:
        if kept is None:
            delattr(owner, name)
        else:
            setattr(owner, name, kept)


class _DetachedWithoutGradients(TorchFunctionMode):
    """Where a module switches gradients off, its results are detached, so that the trace has what no_grad() does."""

    by_lines = 0  # how many functions of torch that are written in Python run, one in the other
    indexing = 0  # how deep in x[...]: the trace follows bounds that are tensors, although it asks for their values
    watch: PythonValues | None = None

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function in _INDEXING:
            self.indexing += 1
        elif function in _PARTS and self.watch is not None and torch._C._is_tracing():
            self.watch.divided(args, kwargs or {})
        elif function in _SQUEEZES and torch._C._is_tracing():
            return _squeezed(*args, **(kwargs or {}))
        try:
            result = self._result_of(function, args, kwargs or {})
        finally:
            if function in _INDEXING:
                self.indexing -= 1
        if torch.is_grad_enabled() or not torch._C._is_tracing():
            return result
        if isinstance(result, torch.Tensor):
            return self._stopped(result, args)
        if type(result) in (tuple, list):
            return type(result)(self._stopped(each, args) if isinstance(each, torch.Tensor) else each for each in result)
        return result

    def _result_of(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function gives; while a module is traced, in functions that the exporter knows.

        Of a function that torch has written in Python each line is seen again: it may use what the exporter lacks.
        """
        if not torch._C._is_tracing():
            return function(*args, **kwargs)
        known = DECOMPOSED.get(function)
        found = NotImplemented if known is None else known(*args, **kwargs)
        if found is not NotImplemented:
            return found
        if known is not None or getattr(function, "__module__", "") not in ("torch.nn.functional", "torch.functional"):
            return function(*args, **kwargs)
        if not isinstance(function, types.FunctionType):
            return function(*args, **kwargs)
        self.by_lines += 1
        try:
            with self:
                return function(*args, **kwargs)
        finally:
            self.by_lines -= 1

    @staticmethod
    def _stopped(result: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
        if not result.is_floating_point() or any(result is each for each in args):  # in place: the tensor stays what it is
            return result
        with torch._C.DisableTorchFunction():
            return result.detach()


_FUNCTIONS: Final = _DetachedWithoutGradients()


def _asked_by_decomposed(original: Callable[..., bool]) -> Callable[..., bool]:
    """Whether a function of torch written in Python is to be handed over as a whole: not those that are run by their lines."""

    def asked(*tensors: Any) -> bool:
        by_lines = _FUNCTIONS.by_lines and torch._C._is_tracing() and sys._getframe(1).f_code not in _DECOMPOSED_CODE
        return not by_lines and original(*tensors)

    return asked


def _squeezed(input: torch.Tensor, dim: Any = None) -> torch.Tensor:
    """The axes that have size 1 in this call are taken away, and others are not: the sizes decide, and are watched."""
    given = range(input.ndim) if dim is None else (dim if isinstance(dim, (tuple, list)) else (dim,))
    axes = sorted({int(axis) % max(input.ndim, 1) for axis in given}, reverse=True)
    result = input
    for axis in axes if input.ndim else ():
        if int(input.shape[axis]) == 1:
            with torch._C.DisableTorchFunction():
                result = result.squeeze(axis)
    return result if result is not input else input.view_as(input)


def _apply_custom_function(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Instead of torch.autograd.Function.apply: torch's own functions, and those that need no gradient, are traced through."""
    if torch._C._is_tracing() and (cls.__module__, cls.__name__) == ("torch.utils.checkpoint", "CheckpointFunction"):
        function, _, *given = args
        with torch.set_grad_enabled(any(isinstance(each, torch.Tensor) and each.requires_grad for each in given)):
            return function(*given)  # into parameters alone nothing would flow in PyTorch either
    needs_gradient = torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)
    if needs_gradient and torch._C._is_tracing() and not cls.__module__.startswith("torch."):
        raise ExportError(
            f"the module uses the custom autograd function {cls.__module__}.{cls.__qualname__}, whose own backward a graph "
            "cannot have: write it with differentiable operations, or wrap the parts of the model that do not use it"
        )
    return _APPLY(cls, *args, **kwargs)


def _without_checkpoint(original: Callable[..., Iterator[None]]) -> Callable[..., Iterator[None]]:
    """What runs before and after a function that is to be computed again: nothing, while it is traced."""

    def around(*args: Any, **kwargs: Any) -> Iterator[None]:
        if torch._C._is_tracing():
            yield
        else:
            yield from original(*args, **kwargs)

    return around


class _Unchecked:
    """Whether distributions check their arguments, of which a trace has no data: not while one is traced."""

    def __init__(self) -> None:
        self._usual = bool(torch.distributions.Distribution._validate_args)

    def __get__(self, instance: Any, owner: Any) -> bool:
        return self._usual and not torch._C._is_tracing()


def _verified(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """A check of sizes that wants more than one value for each statistic: of the batch and the pixels, or of the pixels alone."""
    spatial = "spatial" in original.__name__

    def verify(size: Any) -> None:
        count: Any = 1 if spatial else size[0]
        for each in size[2:]:
            count = count * each
        if count == 1:
            original(size)  # says so

    return verify


def _refused_hook(name: str) -> Callable[..., Any]:
    original = getattr(torch.Tensor, name)

    def hook(tensor: torch.Tensor, *arguments: Any) -> Any:
        if torch._C._is_tracing():
            raise ExportError(
                f"the module calls {name}() on a tensor of its forward pass, at {_line_of_user()}: a graph would not keep or "
                "hand out its gradient. Return the tensor from the module and call it there"
            )
        return original(tensor, *arguments)

    return hook


def _without_functions(utilities: Any) -> Callable[..., bytes]:
    original = utilities._add_onnxscript_fn

    def add_functions(model: bytes, custom_opsets: dict[str, int]) -> bytes:
        added: bytes = original(model, custom_opsets) if custom_opsets else model
        return added

    return add_functions


def _layer_by_layer(original: Callable[..., Any]) -> Callable[..., Any]:
    """The exporter's recurrent layers; where there is dropout between layers, each is exported alone."""

    def generic_rnn(
        g: Any,
        variant: str,
        x: Any,
        initial_states: Any,
        all_weights: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool | None = None,
        batch_sizes: Any = None,
    ) -> Any:
        if not (dropout and train and num_layers > 1):
            given = (g, variant, x, initial_states, all_weights, has_biases, num_layers, 0.0, train, bidirectional)
            return original(*given, batch_first, batch_sizes)
        from torch.onnx._internal.torchscript_exporter import symbolic_helper  # lazy: with the exporter

        directions = 2 if bidirectional else 1
        weights_a_layer = (4 if has_biases else 2) * directions
        is_lstm = variant == "LSTM"
        states = list(initial_states) if is_lstm else [initial_states]
        last: list[list[Any]] = [[] for _ in states]
        for layer in range(num_layers):
            rows = {"axes": [0], "starts": [layer * directions], "ends": [(layer + 1) * directions]}
            first = [symbolic_helper._slice_helper(g, state, **rows) for state in states]
            weights = all_weights[layer * weights_a_layer : (layer + 1) * weights_a_layer]
            state = first if is_lstm else first[0]
            x, *ends = original(g, variant, x, state, weights, has_biases, 1, 0.0, 0, bidirectional, batch_first, batch_sizes)
            for kept, end in zip(last, ends, strict=True):
                kept.append(end)
            if layer < num_layers - 1:
                ratio = g.op("Constant", value_t=torch.tensor(dropout, dtype=torch.float32))
                x, _ = g.op("Dropout", x, ratio, g.op("Constant", value_t=torch.tensor(True)), outputs=2)
        return (x, *(g.op("Concat", *ends, axis_i=0) for ends in last))

    return generic_rnn


def _broadcasting_mask(mask_function: Callable[..., Any], bh_indices: bool = True) -> Callable[..., Any]:
    """What transformers does by vmap: the mask of all (batch, head, query, key), from a function of one of each."""

    def full(batch: Any, head: Any, query: Any, key: Any) -> Any:
        if not bh_indices:
            mask = mask_function(None, None, query[:, None], key[None, :])
            return mask.expand(query.shape[0], key.shape[0])
        indices = (batch[:, None, None, None], head[None, :, None, None], query[None, None, :, None], key[None, None, None, :])
        return mask_function(*indices).expand(batch.shape[0], head.shape[0], query.shape[0], key.shape[0])

    return full


@contextlib.contextmanager
def python_values_watched(watch: PythonValues) -> Iterator[None]:
    """While a module is traced: every conversion of a tensor to a Python value is seen by `watch` first."""

    def watched(name: str) -> Callable[..., Any]:
        original = getattr(torch._C.TensorBase, name)

        def convert(tensor: torch.Tensor, *arguments: Any) -> Any:
            if torch._C._is_tracing() and not (name == "__index__" and _FUNCTIONS.indexing):
                watch.converted(tensor)
            return original(tensor, *arguments)

        return convert

    try:
        for name in _CONVERSIONS:
            setattr(torch.Tensor, name, watched(name))
        _FUNCTIONS.watch = watch
        yield
    finally:
        _FUNCTIONS.watch = None
        for name in _CONVERSIONS:
            delattr(torch.Tensor, name)


class PythonValues:
    """Judges conversions of traced tensors to Python values by what they were computed of.

    Sizes only: allowed, and kept, since another size might decide otherwise. Numbers of the user: NumberNeeded. The data of
    a tensor: ExportError, since the graph would keep what this call's data decided.
    """

    def __init__(self) -> None:
        self.numbers: set[int] = set()  # traced values, by the number the trace gives them
        self.counters: set[int] = set()
        self.decided_by_sizes: dict[str, None] = {}
        self.sizes: dict[int, torch.Tensor] = {}  # what was asked for, by the number the trace gives it

    def converted(self, tensor: torch.Tensor) -> None:
        """A tensor becomes a Python value."""
        roots = _roots(torch._C._get_value_trace(tensor))
        if roots and roots <= self.numbers:
            raise NumberNeeded
        data = roots - self.numbers - self.counters
        if data:
            raise ExportError(
                f"what the module does depends on the data of a tensor, at {_line_of_user()}: a graph would keep what this "
                "call's data decided. Compute it with tensor operations (torch.where, masks), or outside the module"
            )
        value = torch._C._get_value_trace(tensor)
        if not roots and not _is_constant(value):
            self.decided_by_sizes[_line_of_user()] = None
            self.sizes[value.unique()] = tensor

    def divided(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """A tensor is taken apart along an axis: how many parts there are, its size decides."""
        tensor = args[0] if args else kwargs.get("input", kwargs.get("tensor"))
        axis = kwargs.get("dim", args[-1] if len(args) > 1 and type(args[-1]) is int and len(args) > 2 else None)
        if not isinstance(tensor, torch.Tensor) or not tensor.ndim:
            return
        for number in range(tensor.ndim) if axis is None else (int(axis),):
            with torch._C.DisableTorchFunction():
                size: Any = tensor.size(number)
            if isinstance(size, torch.Tensor):
                self.converted(size)


def _is_constant(value: Any) -> bool:
    """Whether a traced value is the same in every call: nothing in it comes from a tensor."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if each.unique() in seen:
            continue
        seen.add(each.unique())
        if each.node().kind() in _SIZES or each.node().kind() == "prim::Param":
            return False
        waiting.extend(each.node().inputs())
    return True


def _roots(value: Any) -> set[int]:
    """The graph inputs and random values whose data a traced value was computed of, by number; sizes are not followed."""
    roots: set[int] = set()
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        number = each.unique()
        if number in seen:
            continue
        seen.add(number)
        node = each.node()
        kind = node.kind()
        if kind == "prim::Param":
            roots.add(number)
        elif kind not in _SIZES:
            waiting.extend(node.inputs())
    return roots


def _line_of_user() -> str:
    """File and line of the innermost code that is neither ours nor torch's."""
    for frame in reversed(traceback.extract_stack()):
        if "/torch/" not in frame.filename.replace("\\", "/") and "/sardonyx/training/" not in frame.filename.replace("\\", "/"):
            return f"{frame.filename}:{frame.lineno} ({frame.line})"
    return "a line of torch"
