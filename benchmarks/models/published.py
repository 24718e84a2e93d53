"""Architectures that torchvision publishes, with random weights: nothing is downloaded.

torchvision's compiled part is built for one build of PyTorch and does not load beside another (with CUDA or without).
Architectures need none of it but two operators of detectors; where it does not load, these are defined here: the exporter writes
them as the ONNX operators NonMaxSuppression and RoiAlign, and only its tracing runs what stands here.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models.vision import prepared

_NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_ROI_ALIGN = (
    "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio,"
    " bool aligned) -> Tensor"
)


def picture_network(make: str, shape: tuple[int, ...]) -> tuple[nn.Module, dict[str, Any]]:
    """A network by torchvision's name, and the picture it is fed."""
    plain = {"init_weights": False} if make in ("googlenet", "inception_v3") else {}
    aside = {"aux_logits": False} if make in ("googlenet", "inception_v3") else {}
    backbone = {"weights_backbone": None} if make.startswith("deeplab") else {}
    network = _models().get_model(make, weights=None, **plain, **aside, **backbone)
    if make.startswith("deeplab"):
        network = _Output(network)
    transformer = make.startswith(("swin", "convnext"))
    torch.manual_seed(0)
    network = _as_trained(network) if transformer else prepared(network, shape)
    return network, {"image": torch.randn(*shape)}


class _Output(nn.Module):
    """A network for segmentation without the names of its results."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> Tensor:
        """A score of every class for every pixel."""
        scores: Tensor = self.network(image)["out"]
        return scores


def _as_trained(network: nn.Module) -> nn.Module:
    """Weights of the size that trained transformers have."""
    for part in network.modules():
        if isinstance(part, (nn.Linear, nn.Conv2d)):
            nn.init.normal_(part.weight, std=0.04)
            if part.bias is not None:
                nn.init.normal_(part.bias, std=0.02)
        elif isinstance(part, nn.LayerNorm):
            nn.init.uniform_(part.weight, 0.8, 1.2)
            nn.init.normal_(part.bias, std=0.05)
    for name, parameter in network.named_parameters():
        if name.endswith("layer_scale"):
            nn.init.uniform_(parameter, 0.1, 0.3)
    return network.eval()


def detector_network(make: str, pixels: int = 320) -> tuple[nn.Module, dict[str, Any]]:
    """A detector of two stages and one picture."""
    detector = _models().get_model(make, weights=None, weights_backbone=None)
    prepared(detector.backbone, (1, 3, pixels, pixels))
    torch.manual_seed(1)
    for part in (*detector.rpn.modules(), *detector.roi_heads.modules()):
        if isinstance(part, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    nn.init.normal_(detector.rpn.head.bbox_pred.weight, std=0.0005)  # boxes that stay near their anchors
    nn.init.normal_(detector.roi_heads.box_predictor.bbox_pred.weight, std=0.0005)
    nn.init.normal_(detector.roi_heads.box_predictor.cls_score.weight, std=0.003)
    return _Detector(detector.eval()), {"image": torch.rand(3, pixels, pixels)}


class _Detector(nn.Module):
    """A detector that takes one picture and gives boxes, labels and scores."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What is found in the picture."""
        (found,) = self.detector([image])
        return found["boxes"], found["labels"], found["scores"]


@cache
def _models() -> Any:
    if importlib.util.find_spec("torchvision") is None:
        from benchmarks.models.cases import Unavailable

        raise Unavailable("torchvision is not installed; `make bench` installs it")
    try:
        import torchvision
    except RuntimeError:  # the compiled part is for another build of PyTorch
        _define_operators()
        import torchvision

        for name, module in list(sys.modules.items()):
            if name.startswith("torchvision.") and hasattr(module, "_has_ops"):
                vars(module)["_has_ops"] = _defined
    return torchvision.models


def _defined() -> bool:
    return True


_LIBRARIES: list[torch.library.Library] = []  # a definition lasts as long as its library


def _define_operators() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    _LIBRARIES.append(library)
    for name, signature in (("nms", _NMS), ("qnms", _NMS), ("roi_align", _ROI_ALIGN)):
        library.define(name + signature)
    library.impl("nms", _suppressed, "CPU")
    library.impl("roi_align", _aligned, "CPU")


def _suppressed(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """The numbers of the boxes that overlap no better one by more than a threshold, best first."""
    left, top, right, bottom = boxes.unbind(1)
    areas = (right - left) * (bottom - top)
    order = scores.argsort(descending=True).tolist()
    kept: list[int] = []
    for number in order:
        chosen = torch.tensor(kept, dtype=torch.int64)
        width = (torch.minimum(right[number], right[chosen]) - torch.maximum(left[number], left[chosen])).clamp(min=0)
        height = (torch.minimum(bottom[number], bottom[chosen]) - torch.maximum(top[number], top[chosen])).clamp(min=0)
        shared = width * height
        if not bool((shared > threshold * (areas[number] + areas[chosen] - shared)).any()):
            kept.append(number)
    return torch.tensor(kept, dtype=torch.int64)


def _aligned(x: Tensor, boxes: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Tensor:
    """What the exporter's tracing sees of RoiAlign: the mean of the features around the middle of each cell."""
    shift = 0.5 if aligned else 0.0
    cells = []
    for box in boxes:
        left, top, right, bottom = (box[1:] * scale - shift).tolist()
        columns = left + (torch.arange(width) + 0.5) * max(right - left, 0.0 if aligned else 1.0) / width
        rows = top + (torch.arange(height) + 0.5) * max(bottom - top, 0.0 if aligned else 1.0) / height
        grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1)
        size = torch.tensor([x.shape[3] - 1, x.shape[2] - 1]).clamp(min=1)
        cells.append(
            nn.functional.grid_sample(x[int(box[0])][None], grid[None] * 2 / size - 1, align_corners=True, padding_mode="border")
        )
    return torch.cat(cells) if cells else x.new_zeros(0, x.shape[1], height, width)
