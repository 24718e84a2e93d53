"""Operators of ai.onnx.ml on onnxruntime and on their own definitions, and random decision trees to feed them.

Tensor attributes are given as arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from contrib_oracle import as_onnxruntime, assert_inferred, evaluate, infer
from numpy.typing import NDArray
from onnx import numpy_helper

Array = NDArray[Any]
ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
# Four last bits of either term under the outer root of `ml_scores.probit`, doubled by the factor of its result.
PROBIT_SQUARES = 8 * float(np.spacing(np.float32(4.33)))


def agree(
    name: str, x: Array, *more: Array, version: int = 3, outputs: int = 1, tolerance: float = 1e-5, **attrs: Any
) -> list[Any]:
    """Compare definition and onnxruntime: floats within `tolerance`, labels exactly; the shape rule must agree."""
    inputs = [x, *more]
    ours = evaluate(name, inputs, domain=ML, version=version, outputs=outputs, **attrs)
    plain = {key: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value for key, value in attrs.items()}
    theirs = as_onnxruntime(name, inputs, domain=ML, version=version, outputs=outputs, like=ours, **plain)
    for ours_one, theirs_one in zip(ours, theirs, strict=True):
        assert ours_one.shape == theirs_one.shape
        if ours_one.dtype.kind == "f":
            assert ours_one.dtype == theirs_one.dtype
            if attrs.get("post_transform") == "PROBIT":
                # Near 1/2 it is the root of a difference of numbers near 4.3: their last bits are 1e-3 of it, 1e-6 of its square
                ours_square, theirs_square = (values * np.abs(values) for values in (ours_one, theirs_one))
                np.testing.assert_allclose(ours_square, theirs_square, rtol=tolerance, atol=PROBIT_SQUARES)
            else:
                np.testing.assert_allclose(ours_one, theirs_one, rtol=tolerance, atol=tolerance)
        else:
            assert ours_one.tolist() == theirs_one.tolist()
    assert_inferred(infer(name, inputs, domain=ML, version=version, outputs=outputs, **attrs), ours)
    return ours


class RandomTrees:
    """Binary trees of random shape over `features`, as the attributes of versions 1 and 3 write them."""

    def __init__(self, rng: np.random.Generator, trees: int, features: int, modes: tuple[str, ...], depth: int = 4) -> None:
        self.rng = rng
        self.features = features
        self.modes = modes
        self.nodes: dict[str, list[Any]] = {
            key: [] for key in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "tracks")
        }
        self.leaves: list[tuple[int, int]] = []
        for tree in range(trees):
            self._next = 0
            self._grow(tree, depth)

    def _grow(self, tree: int, depth: int) -> int:
        number = self._next
        self._next += 1
        place = len(self.nodes["treeids"])
        leaf = depth == 0 or self.rng.random() < 0.2
        mode = "LEAF" if leaf else str(self.rng.choice(self.modes))
        # thresholds that inputs hit exactly: equality matters in the comparisons
        value = 0.0 if leaf else float(self.rng.integers(-2, 3)) / 2
        row = (
            tree,
            number,
            0 if leaf else int(self.rng.integers(self.features)),
            value,
            mode,
            0,
            0,
            int(self.rng.random() < 0.5),
        )
        for key, item in zip(self.nodes, row, strict=True):
            self.nodes[key].append(item)
        if leaf:
            self.leaves.append((tree, number))
        else:
            self.nodes["truenodeids"][place] = self._grow(tree, depth - 1)
            self.nodes["falsenodeids"][place] = self._grow(tree, depth - 1)
        return number

    def attributes(self, missing: bool) -> dict[str, Any]:
        result = {f"nodes_{key}": value for key, value in self.nodes.items() if key != "tracks"}
        if missing:
            result["nodes_missing_value_tracks_true"] = self.nodes["tracks"]
        return result

    def votes(self, prefix: str, targets: list[int], per_leaf: int, positive: bool) -> dict[str, Any]:
        """`per_leaf` random weights for each leaf, for some of the targets."""
        trees, nodes, ids, weights = [], [], [], []
        for tree, node in self.leaves:
            for target in self.rng.permutation(targets)[:per_leaf]:
                trees.append(tree)
                nodes.append(node)
                ids.append(int(target))
                weights.append(float(np.float32(self.rng.random() if positive else self.rng.normal())))
        return {f"{prefix}_treeids": trees, f"{prefix}_nodeids": nodes, f"{prefix}_ids": ids, f"{prefix}_weights": weights}


def inputs_with_ties(rng: np.random.Generator, rows: int, features: int, missing: bool) -> Array:
    """Halves, as the thresholds of RandomTrees are, and NaN if wanted."""
    x = (rng.integers(-4, 5, (rows, features)) / 2).astype(np.float32)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    return x
