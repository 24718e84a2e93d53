"""Traits: what other stages may assume of operators is stated where the operators are defined, and holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sardonyx.ir.graph import Node
from sardonyx.ops import registry
from sardonyx.ops.registry import EvalContext, Trait, traits

SOURCE = Path(registry.__file__).parent.parent


def having(trait: Trait, domain: str = "") -> set[str]:
    return {each.name for each in registry.definitions() if each.domain == domain and trait in each.traits}


def test_a_node_has_the_traits_of_the_definition_that_holds_for_its_version() -> None:
    # Before version 7 an attribute gives the axis of the second input, so that the inputs cannot be swapped.
    assert traits(Node("Add", [], [], version=1)) == Trait.ELEMENTWISE
    assert traits(Node("Add", [], [], version=7)) == Trait.ELEMENTWISE | Trait.COMMUTATIVE
    assert traits(Node("Abacus", [], [], version=7)) == Trait.NONE


@pytest.mark.parametrize("name", sorted(having(Trait.COMMUTATIVE)))
def test_inputs_of_commutative_operators_may_be_swapped(name: str) -> None:
    definition = registry.lookup("", name, 20)
    assert definition is not None
    logical = name in ("And", "Or", "Xor")
    kind = bool if logical else np.int64 if name.startswith("Bitwise") else np.float32
    a = np.array([[0, 1, 0, 1], [5, -3, 2, 7]]).astype(kind)
    b = np.array([1, 1, 0, 0]).astype(kind)
    context = EvalContext(20, (True,))
    one, other = (registry.call(definition, pair, dict.fromkeys(definition.attr_names), context)[0] for pair in ((a, b), (b, a)))
    np.testing.assert_array_equal(one, other)
    assert one.shape == a.shape


def test_what_is_computed_ahead_is_cheap() -> None:
    assert {"Gather", "Shape", "NonZero", "ReduceSum", "TopK", "Constant"} <= having(Trait.AHEAD)
    heavy = {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LSTM", "GRU", "RNN", "Attention", "Det", "NonMaxSuppression"}
    assert not heavy & (having(Trait.AHEAD) | having(Trait.ELEMENTWISE) | having(Trait.VIEW))
    for trait in (Trait.MEASURES, Trait.REDUCES, Trait.DATA_SIZED, Trait.WIDENS):
        assert having(trait) <= having(Trait.AHEAD)


def test_what_measures_reduces_is_sized_by_data_or_widens() -> None:
    assert having(Trait.MEASURES) == {"Shape", "Size"}
    assert having(Trait.REDUCES) == {name for name in _all_names() if name.startswith("Reduce")}
    assert having(Trait.DATA_SIZED) == {"NonZero", "Compress", "Unique"}
    assert having(Trait.WIDENS) == having(Trait.WIDENS, "com.microsoft") == {"DequantizeLinear"}


def _all_names() -> set[str]:
    return {each.name for each in registry.definitions() if not each.domain}


@pytest.mark.parametrize("name", sorted(having(Trait.VIEW) - {"MemcpyFromHost", "MemcpyToHost"}))
def test_views_keep_all_elements_in_order(name: str) -> None:
    definition = registry.lookup("", name, 20)
    assert definition is not None
    x = np.arange(6).reshape(1, 2, 3)
    second = {"Reshape": np.array([3, 2]), "Squeeze": np.array([0]), "Unsqueeze": np.array([1])}.get(name)
    given = [x] if second is None else [x, second]
    result = registry.call(
        definition, given, {each: 1 if each == "axis" else 0 for each in definition.attr_names}, EvalContext(20, (True,))
    )[0]
    np.testing.assert_array_equal(result.reshape(-1), x.reshape(-1))


# Lists that are tables of a pass or of a rule: what it looks for, by name, with something of its own for each.
TABLES = {
    "passes/remove_no_ops.py:_SAME_SHAPE",
    "passes/runtime_optimisations.py:_ACTIVATIONS",  # what another engine fuses
    "passes/widen_half.py:_NARROW_KERNELS",  # what another engine has kernels for
    "passes/halve_products.py:_QUANTIZES",  # rounds to whole steps
    "passes/widen_nibbles.py:_PRODUCTS",  # what has a kernel for bytes
    "passes/widen_half.py:_ON_IMAGES",  # what stands between convolutions
    "passes/prepare_decoder.py:_AFTER_PRODUCT",  # what works on each token alone
    "passes/fuse_transformers.py:_NORMS",  # the forms of one norm that exporters write
    "passes/fold_affine.py:_PRODUCTS",
    "passes/count_by_size.py:_ARITHMETIC",  # what expressions of sizes are made of
    "passes/dequantize_kernels.py:_LAYERS",  # what packs its weights when the program is made
    "passes/form_byte_tables.py:_QUICK",  # fewer instructions than a table
    "passes/form_byte_tables.py:_QUANTIZING",  # elementwise with one scale
    "passes/form_integer_convs.py:_LAYERS",  # what has a counterpart for quantized numbers
    "passes/fuse_activations.py:_CUBIC",
    "passes/merge_branches.py:_SUMS",  # where branches meet
    "passes/fold_constants.py:_REPEATS",  # what gives the same values many times
    "passes/hoist_invariants.py:_GROWING",  # what reads less than it gives
}


def _named_sets() -> Iterator[str]:
    """Frozensets, sets and tuples of operator names that modules define, as `file:name`."""
    known = _all_names()
    for folder in ("passes", "lower", "analysis", "plan", "compile"):
        for path in sorted((SOURCE / folder).rglob("*.py")):
            for statement in ast.parse(path.read_text("utf-8")).body:
                if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or isinstance(statement.value, ast.Dict):
                    continue
                words = [
                    each.value for each in ast.walk(statement) if isinstance(each, ast.Constant) and isinstance(each.value, str)
                ]
                if len(words) > 1 and all(word in known for word in words):
                    target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
                    yield f"{path.relative_to(SOURCE).as_posix()}:{ast.unparse(target)}"


def test_no_module_lists_operators_that_have_something_in_common() -> None:
    """A fact about operators is a trait; the lists that are left belong to one pass alone."""
    assert set(_named_sets()) == TABLES
