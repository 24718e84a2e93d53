"""An execution provider that computes the operators of convolution nets by PyTorch; the CPU does the rest.

python examples/torch_provider.py [MODEL.onnx]      without a model: the one that ships with Sardonyx

Each kernel states operator, versions and types; a region is computed node by node, on copies of the arrays: torch
wants to be allowed to write.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

import sardonyx
from sardonyx.ir.graph import Node
from sardonyx.providers import (
    ClaimedRegion,
    ExecutionProvider,
    GraphView,
    KernelDef,
    KernelTable,
    attribute_values,
)

NAME = "TorchExecutionProvider"
FLOATS = {"T": {"float", "double"}}
CONVOLUTIONS = {1: "conv1d", 2: "conv2d", 3: "conv3d"}  # by the number of spatial axes

# A kernel takes torch, the attributes of its node and its inputs as tensors (None for one that is left out).
Kernel = Callable[..., Any]


def conv(torch: Any, attrs: Mapping[str, Any], x: Any, w: Any, bias: Any = None) -> Any:
    """A convolution over 1 to 3 axes, in groups, with any pads, strides and dilations."""
    axes = x.dim() - 2
    pads = attrs.get("pads") or (0,) * 2 * axes
    strides, dilations = (attrs.get(name) or (1,) * axes for name in ("strides", "dilations"))
    before, after = pads[:axes], pads[axes:]
    if before != after:  # torch pads from the last axis to the first
        around = [size for pair in zip(reversed(before), reversed(after)) for size in pair]
        x, before = torch.nn.functional.pad(x, around), (0,) * axes
    convolve = getattr(torch.nn.functional, CONVOLUTIONS[axes])
    return convolve(x, w, bias, strides, before, dilations, attrs.get("group", 1))


def clip(torch: Any, attrs: Mapping[str, Any], x: Any, low: Any = None, high: Any = None) -> Any:
    """Bounds that are left out do not bind."""
    return x if low is None and high is None else torch.clamp(x, low, high)


def gemm(torch: Any, attrs: Mapping[str, Any], a: Any, b: Any, c: Any = None) -> Any:
    """alpha * A * B + beta * C."""
    a, b = a.t() if attrs["transA"] else a, b.t() if attrs["transB"] else b
    product = (a @ b) * attrs["alpha"]
    return product if c is None else product + c * attrs["beta"]


KERNELS = KernelTable(
    [
        KernelDef("Conv", types=FLOATS, kernel=conv),
        KernelDef("Relu", versions=(6, None), types=FLOATS, kernel=lambda torch, attrs, x: torch.relu(x)),
        KernelDef("Clip", versions=(11, None), types=FLOATS, kernel=clip),
        KernelDef("Add", versions=(7, None), types=FLOATS, kernel=lambda torch, attrs, a, b: a + b),
        KernelDef("GlobalAveragePool", types=FLOATS, kernel=lambda t, attrs, x: x.mean(tuple(range(2, x.dim())), keepdim=True)),
        KernelDef("Gemm", versions=(7, None), types=FLOATS, kernel=gemm),
    ]
)


class TorchProvider(ExecutionProvider):
    """Computes what `KERNELS` has. The option `least_nodes` leaves regions that are smaller to others."""

    name = NAME

    def __init__(self, options: Mapping[str, str]) -> None:
        import torch  # only who asks for this provider needs it

        self.torch = torch
        self.least_nodes = int(options.get("least_nodes", "1"))

    def claim(self, view: GraphView) -> Iterable[Collection[Node]]:
        regions = view.regions(node for node in view.nodes if KERNELS.find(node) is not None and is_plain(node))
        return [nodes for nodes in regions if len(nodes) >= self.least_nodes]

    def compile(self, region: ClaimedRegion) -> Callable[[Sequence[Any]], list[Any]]:
        torch = self.torch
        weights = {value: torch.tensor(value.constant.numpy()) for value in region.constants.values() if value.constant}
        steps = [(node, KERNELS.find(node), attribute_values(node)) for node in region.nodes]

        def run(inputs: Sequence[Any]) -> list[Any]:
            values = {**weights, **{value: torch.tensor(array) for value, array in zip(region.inputs, inputs)}}
            with torch.inference_mode():
                for node, found, attrs in steps:
                    assert found is not None
                    given = [None if value is None else values[value] for value in node.inputs]
                    values[node.outputs[0]] = found.kernel(torch, attrs, *given)
            return [values[value].numpy() for value in region.outputs]

        return run


def is_plain(node: Node) -> bool:
    """Whether a node has nothing that the kernels leave out: pads that follow from sizes, more than 3 spatial axes."""
    if node.op_type != "Conv":
        return True
    weights = node.inputs[1]
    rank = len(weights.shape or ()) if weights is not None else 0
    return rank - 2 in CONVOLUTIONS and attribute_values(node)["auto_pad"] in ("NOTSET", "VALID")


def main() -> None:
    """Run a model by PyTorch and the CPU, and by the CPU alone."""
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: nothing to show")
        return
    sardonyx.register_provider(NAME, TorchProvider)
    path = sys.argv[1] if len(sys.argv) > 1 else str(resources.files("sardonyx").joinpath("data/digits.onnx"))
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = sardonyx.InferenceSession(path, options, providers=[NAME])
    for part in session.get_provider_graph_assignment_info():
        print(f"{part.ep_name}: {', '.join(node.op_type for node in part.get_nodes())}")
    feeds = sardonyx.random_inputs(session.get_inputs())
    by_torch, by_cpu = session.run(None, feeds), sardonyx.InferenceSession(path).run(None, feeds)
    difference = max(float(np.abs(one - other).max()) for one, other in zip(by_torch, by_cpu))
    print(f"largest difference to the CPU: {difference:.2g}")


if __name__ == "__main__":
    main()
