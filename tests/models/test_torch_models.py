"""Networks exported from PyTorch, by tracing and by its compiler: the same outputs as onnxruntime."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch", reason="the extra `training` installs it")
from comparing import assert_models_agree  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def networks() -> dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]]:
    """Name -> (module, example inputs)."""
    nn = torch.nn

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU())
            self.inner = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=4), nn.GroupNorm(4, 16), nn.GELU())
            self.up = nn.ConvTranspose2d(16, 8, 2, 2)
            self.head = nn.Linear(8, 10)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            x = self.up(x + self.inner(x))
            x = nn.functional.interpolate(x, scale_factor=1.5, mode="bilinear")
            return self.head(x.mean((2, 3))).softmax(-1)

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(100, 32)
            self.layers = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False
            )
            self.head = nn.Linear(32, 100)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.layers(self.words(tokens)))

    class Recurrent(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 16, 2, bidirectional=True, batch_first=True)
            self.gru = nn.GRU(32, 12, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.gru(self.lstm(x)[0])

    return {
        "convolution net": lambda: (Residual().eval(), (torch.randn(2, 3, 32, 32),)),
        "transformer": lambda: (Decoder().eval(), (torch.randint(0, 100, (2, 9)),)),
        "recurrent net": lambda: (Recurrent().eval(), (torch.randn(2, 5, 8),)),
    }


@pytest.mark.parametrize("compiled", [False, True], ids=["traced", "compiled"])
@pytest.mark.parametrize("name", networks())
def test_an_exported_network_gives_onnxruntimes_answer(name: str, compiled: bool) -> None:
    if compiled:
        pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    module, inputs = networks()[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if compiled:
            exported = torch.onnx.export(module, inputs, input_names=["x"], dynamo=True, verbose=False)
            content = exported.model_proto.SerializeToString()
        else:
            buffer = io.BytesIO()
            torch.onnx.export(module, inputs, buffer, input_names=["x"], dynamo=False)
            content = buffer.getvalue()
    assert_models_agree(content, {"x": inputs[0].numpy()})
