"""ONNX Runtime's `onnxruntime.training.utils.hooks`: watch the activations of a module and their gradients.

    GlobalSubscriberManager.subscribe(model, [StatisticsSubscriber("out")])
    model = ORTModule(model)                        runs in PyTorch while subscribers watch it, and says so once
    loss(model(x)).backward()

    out/step_0/order.txt                            what was seen, in order
    out/step_0/Linear_1_0th_output_forward          statistics of one activation, or of the gradient that came back to it
    out/step_0/Linear_1_0th_output_backward

A subscriber is called at the hooks of every submodule; it may give back other inputs, outputs or tensors. Submodules are numbered
depth first. A step ends with the outermost module's forward pass.
"""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeVar

import torch

from sardonyx.records import dataclass
from sardonyx.training.flatten import flatten, unflatten

_Subscriber = TypeVar("_Subscriber", bound="SubscriberBase")
_SAMPLES: Final = 128  # elements of a tensor that its file shows


@dataclass(slots=True, eq=False)
class GlobalStates:
    """Which step runs, and the numbers and depths of the submodules."""

    execution_step: int = 0
    module_index_to_depth: dict[int, int] = field(default_factory=dict)
    module_to_module_index: dict[torch.nn.Module, int] = field(default_factory=dict)


class RuntimeStates:
    """What subscribers are counted about the run."""

    def __init__(self) -> None:
        self.global_states = GlobalStates()


class SubscriberBase:
    """Watches the submodules of a module in the steps [start_step, end_step).

    A subclass overrides the methods whose names end in `_impl`; each gives back what it was given, or something instead.
    """

    def __init__(self, start_step: int | None = None, end_step: int | None = None) -> None:
        self._start_step = 0 if start_step is None else start_step
        self._end_step = sys.maxsize if end_step is None else end_step

    def watches(self, states: RuntimeStates) -> bool:
        """Whether this step is one of those to watch."""
        return self._start_step <= states.global_states.execution_step < self._end_step

    def pre_forward_module_apply_impl(
        self, run_rtx: RuntimeStates, module: torch.nn.Module, args: Any, kwargs: Any
    ) -> tuple[Any, Any]:
        """Before a submodule runs: its arguments."""
        return args, kwargs

    def pre_forward_tensor_apply_impl(
        self, run_rtx: RuntimeStates, module: torch.nn.Module, tensor_index: int, tensor: torch.Tensor
    ) -> torch.Tensor:
        """Before a submodule runs: each tensor of its arguments."""
        return tensor

    def post_forward_module_apply_impl(
        self, run_rtx: RuntimeStates, module: torch.nn.Module, args: Any, outputs: Any
    ) -> tuple[Any, Any]:
        """After a submodule has run: its arguments and its result."""
        return args, outputs

    def post_forward_tensor_apply_impl(
        self, run_rtx: RuntimeStates, module: torch.nn.Module, tensor_index: int, tensor: torch.Tensor
    ) -> torch.Tensor:
        """After a submodule has run: each tensor of its result."""
        return tensor

    def post_forward_outmost_module_apply_impl(
        self, run_rtx: RuntimeStates, module: torch.nn.Module, args: Any, outputs: Any
    ) -> tuple[Any, Any]:
        """After the whole module has run."""
        return args, outputs


class SubscriberManager:
    """Hangs subscribers into the hooks of a module and all below it."""

    def __init__(self) -> None:
        self._run_ctx = RuntimeStates()
        self._subscribers: list[SubscriberBase] = []
        self._handles: list[Any] = []

    def subscribe(self, module: torch.nn.Module, subscribers: Sequence[SubscriberBase]) -> None:
        """Have these subscribers, and no others, watch a module; a training module's hooks are those of what it wraps."""
        from sardonyx.training.module import TrainingModule  # lazy: the utilities serve without the compiler

        if not isinstance(module, torch.nn.Module):
            raise ValueError(f"module must be a torch.nn.Module instance, not a {type(module).__name__}")
        for each in subscribers:
            if not isinstance(each, SubscriberBase):
                raise ValueError(f"subscriber must be a SubscriberBase instance, not a {type(each).__name__}")
        if not subscribers:
            raise RuntimeError("No subscribers are registered.")
        self.unsubscribe()
        self._subscribers = list(dict.fromkeys(subscribers))
        self._hook(module.module if isinstance(module, TrainingModule) else module)

    def unsubscribe(self) -> None:
        """Take all hooks away, so that a training module is compiled again."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._subscribers, self._run_ctx = [], [], RuntimeStates()

    def get_subscriber(self, subscriber_type: type[_Subscriber]) -> _Subscriber:
        """The subscriber of a class."""
        for each in self._subscribers:
            if isinstance(each, subscriber_type):
                return each
        raise RuntimeError(f"Subscriber {subscriber_type} is not registered.")

    def get_run_context(self) -> RuntimeStates:
        """Which step runs, and what is known of the submodules."""
        return self._run_ctx

    def _hook(self, outermost: torch.nn.Module) -> None:
        states = self._run_ctx.global_states
        for path, module in outermost.named_modules():  # depth first
            index = len(states.module_to_module_index)
            states.module_to_module_index[module] = index
            states.module_index_to_depth[index] = len(path.split(".")) + 1 if path else 1
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after))
        self._handles.append(outermost.register_forward_hook(self._after_step))

    def _watching(self) -> list[SubscriberBase]:
        return [each for each in self._subscribers if each.watches(self._run_ctx)]

    def _before(self, module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        for each in self._watching():
            args, kwargs = each.pre_forward_module_apply_impl(self._run_ctx, module, args, kwargs)
        args = self._tensors_through(module, args, "pre_forward_tensor_apply_impl")
        return args, self._tensors_through(module, kwargs, "pre_forward_tensor_apply_impl")

    def _after(self, module: torch.nn.Module, args: Any, outputs: Any) -> Any:
        for each in self._watching():
            _, outputs = each.post_forward_module_apply_impl(self._run_ctx, module, args, outputs)
        return self._tensors_through(module, outputs, "post_forward_tensor_apply_impl")

    def _after_step(self, module: torch.nn.Module, args: Any, outputs: Any) -> Any:
        for each in self._watching():
            args, outputs = each.post_forward_outmost_module_apply_impl(self._run_ctx, module, args, outputs)
        self._run_ctx.global_states.execution_step += 1
        return outputs

    def _tensors_through(self, module: torch.nn.Module, value: Any, method: str) -> Any:
        tensors: list[Any] = []
        schema = flatten(value, tensors, numbers=False)
        for each in self._watching():
            tensors = [getattr(each, method)(self._run_ctx, module, index, tensor) for index, tensor in enumerate(tensors)]
        return unflatten(schema, tensors)


class StatisticsSubscriber(SubscriberBase):
    """Writes the statistics of every activation, and of its gradient, into a file of their own in `output_dir`/step_<n>.

    `override_output_dir` lets an existing folder be replaced; `run_on_cpu` and `bucket_size` are ONNX Runtime's, and have no
    meaning here: activations are on the CPU and are read once.
    """

    def __init__(
        self,
        output_dir: str,
        start_step: int | None = None,
        end_step: int | None = None,
        override_output_dir: bool = False,
        run_on_cpu: bool = False,
        bucket_size: int = 1 << 29,
    ) -> None:
        super().__init__(start_step, end_step)
        del run_on_cpu, bucket_size
        self._output_dir = Path(output_dir)
        if self._output_dir.exists():
            if not override_output_dir:
                raise FileExistsError(
                    f"Output directory {output_dir} already exists. "
                    "Set override_output_dir=True for StatisticsSubscriber if this is the intention."
                )
            warnings.warn(f"Output directory {output_dir} already exists, overriding it.", stacklevel=2)
            shutil.rmtree(self._output_dir)

    def post_forward_tensor_apply_impl(
        self, run_rtx: RuntimeStates, module: torch.nn.Module, tensor_index: int, tensor: torch.Tensor
    ) -> torch.Tensor:
        """Write what a submodule gave, and later what came back to it."""
        index = run_rtx.global_states.module_to_module_index[module]
        depth = run_rtx.global_states.module_index_to_depth[index]
        return self.inspect(f"{type(module).__name__}_{index}_{tensor_index}th_output", tensor, run_rtx, depth)

    def inspect(self, name: str, tensor: torch.Tensor, states: RuntimeStates, depth: int = 0) -> torch.Tensor:
        """The tensor, whose statistics are written now, and those of its gradient when that comes."""
        step = states.global_states.execution_step
        self._write(tensor.detach(), name, "forward", step, depth)
        if not tensor.requires_grad:
            return tensor
        watched = tensor.clone()  # of its own: two activations may be one tensor, or changed in place by what comes next
        watched.register_hook(lambda gradient: self._write(gradient.detach(), name, "backward", step, depth))
        return watched

    def _write(self, tensor: torch.Tensor, name: str, direction: str, step: int, depth: int) -> None:
        folder = self._output_dir / f"step_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "order.txt").open("a", encoding="utf-8") as order:
            order.write(f"{name}_{direction}\n")
        text = summary(f"{'>' * depth}{name} {direction} run", tensor)
        (folder / f"{name}_{direction}").write_text(text, encoding="utf-8")


def summary(title: str, tensor: torch.Tensor) -> str:
    """Sizes, extremes, mean, counts of special values and the first elements of a tensor, as a text."""
    flat = tensor.flatten()
    head = f"{title} shape: {tensor.shape} dtype: {tensor.dtype} size: {flat.size()} \n"
    wide = flat.to(torch.float64)
    if flat.numel():
        deviation = wide.std() if flat.numel() > 1 else wide.new_zeros(())
        head += f"min: {wide.min()} max: {wide.max()}, mean: {wide.mean()}, std: {deviation} \n"
    counts = {
        "nan": wide.isnan().sum(), "inf": wide.isinf().sum(),
        "neg": (wide < 0).sum(), "pos": (wide > 0).sum(), "zero": (wide == 0).sum(),
    }  # fmt: skip
    counted = {name: int(count) for name, count in counts.items()}
    samples = ", ".join(f"{each:.6g}" for each in wide[:_SAMPLES].tolist())
    return (
        f"{head}nan: {counted['nan']}, inf: {counted['inf']}\nsamples(top {_SAMPLES}): [{samples}]\n"
        f"neg: {counted['neg']}, pos: {counted['pos']}, zero: {counted['zero']},\n{'=' * 16}\n"
    )


GlobalSubscriberManager: Final = SubscriberManager()


def inspect_activation(activation_name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Inside a module's forward: the tensor, whose statistics the global manager's StatisticsSubscriber writes."""
    try:
        subscriber = GlobalSubscriberManager.get_subscriber(StatisticsSubscriber)
    except RuntimeError:
        raise RuntimeError("StatisticsSubscriber is not registered, cannot inspect activation.") from None
    states = GlobalSubscriberManager.get_run_context()
    return subscriber.inspect(activation_name, tensor, states) if subscriber.watches(states) else tensor
