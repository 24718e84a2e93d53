"""The names of `extra_options`, and the check that nobody misspells one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sardonyx.errors import InvalidArgument

KNOWN: Final = frozenset(
    {
        "ActivationRestrictedAsymmetric",
        "ActivationSymmetric",
        "AddQDQPairToWeight",
        "BlockSize",
        "CalibMaxIntermediateOutputs",
        "CalibMovingAverage",
        "CalibMovingAverageConstant",
        "CalibPercentile",
        "CalibStridedMinMax",
        "CalibTensorRangeSymmetric",
        "DedicatedQDQPair",
        "DefaultTensorType",
        "EnableSubgraph",
        "ForceQuantizeNoInputCheck",
        "ForceSymmetric",  # has no effect, in ONNX Runtime either; programs for older versions pass it
        "MatMulConstBOnly",
        "MinimumRealRange",
        "OpTypesToExcludeOutputQuantization",
        "QDQDisableWeightAdjustForInt32Bias",
        "QDQKeepRemovableActivations",
        "QDQOpTypePerChannelSupportToAxis",
        "QuantizeBias",
        "SmoothQuant",
        "SmoothQuantAlpha",
        "SmoothQuantFolding",
        "TensorQuantOverrides",
        "UseQDQContribOps",
        "WeightSymmetric",
        "extra.Sigmoid.nnapi",
        "scenario",
    }
)


def check_extra_options(given: Mapping[str, Any]) -> None:
    """InvalidArgument for an option that does not exist."""
    for name in given:
        if name not in KNOWN:
            near = difflib.get_close_matches(str(name), KNOWN, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(KNOWN))}"
            raise InvalidArgument(f"extra_options: there is no option {name!r}", hint=hint)
    size = given.get("BlockSize", 0)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise InvalidArgument(f"extra_options: BlockSize is {size!r}, expected a whole number that is not negative")


def check_node_names(option: str, given: Iterable[str], present: Iterable[str]) -> None:
    """InvalidArgument for a node that an option names and the model does not have."""
    names = set(present)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"did you mean {near[0]!r}?" if near else "see the names of nodes with: sardonyx inspect MODEL"
            raise InvalidArgument(f"{option}: the model has no node called {name!r}", hint=hint)
