"""What a session may say of products with weights in blocks (see `form_block_products`), as ONNX Runtime names it."""

from __future__ import annotations

from typing import Final

LEVEL_KEY: Final = "session.qdq_matmulnbits_accuracy_level"
BLOCK_KEY: Final = "session.qdq_matmulnbits_block_size"
DEFAULT_LEVEL: Final = 4
DEFAULT_BLOCK: Final = 32
LEAST_WASTE: Final = -1  # the block size that pads least
BLOCKS: Final = (16, 32, 64, 128, 256)
