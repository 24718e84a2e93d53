"""Every elementwise operator, natively against its NumPy meaning: types, broadcasts, special values, empty and 0-d tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from lowering_case import BF16, BOOL, F16, F32, F64, FLOATS, INTEGERS, SIGNED, UNSIGNED, check_one, model, samples
from native_support import assert_native_agrees, compile_native
from sardonyx.program.steps import KernelStep

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

MICROSOFT = "com.microsoft"
I8, I32, I64 = np.dtype(np.int8), np.dtype(np.int32), np.dtype(np.int64)
SHAPES = ((3, 37), (), (0, 4), (1,), (2, 3, 16))

UNARY = (
    "Exp", "Log", "Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh",
    "Sigmoid", "Softplus", "Softsign", "Relu", "LeakyRelu", "Elu", "Selu", "ThresholdedRelu", "HardSigmoid", "HardSwish", "Mish",
    "Gelu", "Ceil", "Floor", "Round", "Reciprocal", "Sqrt", "Swish", "Abs", "Neg", "Sign", "Identity",
)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_float(name: str, dtype: np.dtype[Any]) -> None:
    for number, shape in enumerate(SHAPES):
        check_one(name, samples(dtype, shape, number))


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("LeakyRelu", {"alpha": 0.3}), ("Elu", {"alpha": 2.5}), ("Selu", {"alpha": 1.2, "gamma": 0.8}), ("Celu", {"alpha": 1.7}),
        ("ThresholdedRelu", {"alpha": 0.7}), ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("Gelu", {"approximate": "tanh"}),
        ("Shrink", {"lambd": 0.6, "bias": 0.2}), ("Swish", {"alpha": 1.702}),
    ],
)  # fmt: skip
def test_attributes_of_activations(name: str, attrs: dict[str, Any]) -> None:
    check_one(name, samples(F32, (3, 50)), **attrs)


@pytest.mark.parametrize("name", ["Gelu", "FastGelu", "QuickGelu"])
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_activations_of_microsoft(name: str, dtype: np.dtype[Any]) -> None:
    check_one(name, samples(dtype, (3, 50)), domain=MICROSOFT)


def test_fused_forms_of_microsoft() -> None:
    x, bias, skip = samples(F32, (2, 3, 20)), samples(F32, (20,), 1), samples(F32, (2, 3, 20), 2)
    check_one("FastGelu", x, bias, domain=MICROSOFT)
    check_one("BiasGelu", x, bias, domain=MICROSOFT)
    check_one("BiasAdd", x, bias, skip, domain=MICROSOFT)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_functions_of_one_integer(dtype: np.dtype[Any]) -> None:
    x = samples(dtype, (3, 70))
    for name in ("Abs", "Sign", "Identity", "BitwiseNot"):
        check_one(name, x)
    if dtype in SIGNED:
        check_one("Neg", x)
        check_one("Shrink", x, lambd=3.0, bias=1.5)
    if dtype.itemsize >= 4 and dtype in SIGNED:
        check_one("Relu", x)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
def test_arithmetic(name: str, dtype: np.dtype[Any]) -> None:
    check_one(name, samples(dtype, (3, 70)), samples(dtype, (3, 70), 1))
    check_one(name, samples(dtype, (2, 1, 20)), samples(dtype, (5, 1), 1), symbolic=True)


@pytest.mark.parametrize("dtype", [np.dtype(kind) for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")])
def test_quotients_next_to_whole_numbers_are_exact(dtype: np.dtype[Any]) -> None:
    limits, rng = np.iinfo(dtype), np.random.default_rng(0)
    special = np.array([1, 2, 3, limits.max, limits.max - 1], dtype)
    divisors = np.concatenate((special, rng.integers(1, limits.max, 60, dtype, endpoint=True)))
    quotients = np.array([limits.max // divisor for divisor in divisors.tolist()], dtype)
    multiples = quotients * divisors
    check_one("Div", np.stack((multiples, multiples - 1, np.full_like(multiples, limits.max))), divisors)


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED, ids=str)
def test_remainders_of_integers(dtype: np.dtype[Any]) -> None:
    a, b = samples(dtype, (4, 60)), samples(dtype, (4, 60), 1)
    check_one("Mod", a, b)
    check_one("Mod", a, b, fmod=1)


@pytest.mark.parametrize("dtype", [F32, F64, F16], ids=str)
@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_of_floats(dtype: np.dtype[Any], fmod: int) -> None:
    check_one("Mod", samples(dtype, (4, 30)), samples(dtype, (4, 30), 1), fmod=fmod)


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16], ids=str)
@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_of_any_bits_are_exact(dtype: np.dtype[Any], fmod: int) -> None:
    bits = np.random.default_rng(5).integers(0, 256, (2, 40_000, dtype.itemsize), np.uint8).view(dtype)[..., 0]
    a, b = bits
    b[:200] = np.array([0.0, -0.0, np.inf, -np.inf], dtype)[np.arange(200) % 4]
    b[200:9000] *= dtype.type(0.0009)  # subnormal numbers among them
    b[9000:12000] = a[9000:12000] / np.arange(1, 3001).astype(dtype)  # remainders of or near 0
    a[12000:20000] = (b[12000:20000] * np.exp2(np.linspace(0, 60, 8000))).astype(dtype)  # quotients of every size up to 2**60
    node = helper.make_node("Mod", ["a", "b"], ["y"], fmod=fmod)
    feeds = {"a": a, "b": b}
    assert_native_agrees(model([node], feeds, {"y": dtype}), feeds, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        (F32, F32), (F64, F64), (F16, F16), (BF16, F32), (F32, I64), (F32, I8), (F64, I32), (I32, I32), (I64, I64), (I64, I8),
    ],
    ids=str,
)  # fmt: skip
def test_powers_of_all_types(base: np.dtype[Any], exponent: np.dtype[Any]) -> None:
    powers = samples(exponent, (4, 60), 1)
    if exponent.kind == "i":
        powers = (powers % 11 - 4).astype(exponent)
    check_one("Pow", samples(base, (4, 60)), powers)


def test_an_integer_to_a_float_power_is_truncated() -> None:
    base = np.arange(-6, 30, dtype=np.int32)
    check_one("Pow", base, np.full(36, 1.5, np.float32))


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0, 0.5, -0.5, -1.0, -2.0, 2.5])
@pytest.mark.parametrize("dtype", [F32, F64, F16], ids=str)
def test_powers_with_a_constant_exponent(dtype: np.dtype[Any], exponent: float) -> None:
    x = samples(dtype, (100,))
    x = x[x != -np.inf]  # NumPy takes the square root of this one if the exponent is 0.5
    node = helper.make_node("Pow", ["x", "e"], ["y"])
    tolerance = 4e-3 if dtype == F16 else 1e-5
    made = model([node], {"x": x}, {"y": dtype}, constants={"e": np.array(exponent, dtype)})
    assert_native_agrees(made, {"x": x}, rtol=tolerance)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("name", ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
def test_comparisons(name: str, dtype: np.dtype[Any]) -> None:
    a = samples(dtype, (3, 40))
    check_one(name, a, np.where(samples(BOOL, a.shape), a, samples(dtype, a.shape, 1)), out=bool)


@pytest.mark.parametrize("name", ["And", "Or", "Xor", "Equal"])
def test_logic(name: str) -> None:
    check_one(name, samples(BOOL, (5, 90)), samples(BOOL, (90,), 1))
    check_one("Not", samples(BOOL, (77,)))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bits(name: str, dtype: np.dtype[Any]) -> None:
    check_one(name, samples(dtype, (3, 70)), samples(dtype, (3, 70), 1))


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_by_any_amount(dtype: np.dtype[Any], direction: str) -> None:
    amounts = (np.arange(140) % 70 - (3 if dtype in SIGNED else 0)).astype(dtype)
    check_one("BitShift", samples(dtype, (140,)), amounts, direction=direction, opset=28)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + (BOOL,), ids=str)
def test_selection(dtype: np.dtype[Any]) -> None:
    check_one("Where", samples(BOOL, (3, 1)), samples(dtype, (3, 30)), samples(dtype, (30,), 1), out=dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_variadic_operators(dtype: np.dtype[Any]) -> None:
    three = [samples(dtype, shape, seed) for seed, shape in enumerate([(3, 20), (20,), (3, 1)])]
    for name in ("Sum", "Mean", "Max", "Min"):
        check_one(name, *three)
        check_one(name, three[0])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_questions_about_floats(dtype: np.dtype[Any]) -> None:
    x = samples(dtype, (90,))
    check_one("IsNaN", x, out=bool)
    for negative in (0, 1):
        for positive in (0, 1):
            check_one("IsInf", x, out=bool, detect_negative=negative, detect_positive=positive)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_clip_with_and_without_bounds(dtype: np.dtype[Any]) -> None:
    x = samples(dtype, (80,))
    low, high = np.array(1, dtype), np.array(5, dtype)
    check_one("Clip", x)
    check_one("Clip", x, low)
    check_one("Clip", x, low, high)
    check_one("Clip", x, high, low)
    nodes = [helper.make_node("Clip", ["x", "", "high"], ["y"])]
    assert_native_agrees(model(nodes, {"x": x}, {"y": dtype}, constants={"high": high}), {"x": x})


def test_parametric_relu_with_slopes_of_any_shape() -> None:
    x = samples(F32, (2, 5, 9))
    for shape in ((1,), (5, 1), (2, 5, 9)):
        check_one("PRelu", x, samples(F32, shape, 1))


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_broadcasts_of_any_shape(data: st.DataObject) -> None:
    full = data.draw(st.lists(st.integers(0, 18), min_size=0, max_size=4))
    shapes = []
    for _ in range(2):
        kept = data.draw(st.integers(0, len(full)))
        shapes.append(tuple(size if data.draw(st.booleans()) else 1 for size in full[len(full) - kept :]))
    a, b = (samples(F32, shape, seed) for seed, shape in enumerate(shapes))
    check_one("Sub", a, b, symbolic=data.draw(st.booleans()))


def test_a_chain_becomes_one_kernel() -> None:
    x, z = samples(F32, (4, 33)), samples(F32, (33,), 1)
    nodes = [
        helper.make_node("Mul", ["x", "z"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=10),
    ]
    made = model(nodes, {"x": x, "z": z}, {"y": F16, "b": F32})
    assert_native_agrees(made, {"x": x, "z": z}, rtol=2e-3)
    _, compiled = compile_native(made.SerializeToString())
    assert [step.label for step in compiled.lowered.steps if isinstance(step, KernelStep)] == ["Mul+Sigmoid+Add+Cast"]


def test_a_cast_to_half_precision_rounds_even_inside_a_kernel() -> None:
    x = samples(F32, (50,))
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=10), helper.make_node("Cast", ["h"], ["y"], to=1)]
    assert_native_agrees(model(nodes, {"x": x}, {"y": F32}), {"x": x}, rtol=0, atol=0)
