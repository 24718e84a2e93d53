"""SARDONYX_TARGET: less than the machine has, with the same answers, and apart from everything else in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx import errors
from sardonyx.codegen import llvm
from sardonyx.codegen.emit import kernel_ir
from sardonyx.codegen.host import host
from sardonyx.compile import assemble
from sardonyx.kernel.expr import load
from sardonyx.kernel.loops import LoopKernel, Operand
from sardonyx.target.levels import LEVELS, generic, level_of, levels_within
from sardonyx.target.target import describe
from session_agreement import REFERENCE, difference, same_bits, session
from small_nets import NETS
from targets import NEOVERSE, described

SUM = LoopKernel(axes=1, operands=(Operand("f32", "unit"),) * 3, stores=((2, load(0, "f32") + load(1, "f32")),))


def chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in levels_within(host()):
        pytest.skip(f"this machine does not have {name}")
    monkeypatch.setenv("SARDONYX_TARGET", name)


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("net", NETS)
def test_small_nets_agree_with_the_reference_at_every_level(net: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(name, monkeypatch)
    content, feeds = NETS[net]()
    expected = session(content, providers=REFERENCE).run(None, feeds)
    alone = session(content).run(None, feeds)
    for actual, wanted in zip(alone, expected, strict=True):
        assert not difference(actual, wanted)
    for actual, wanted in zip(session(content, threads=2).run(None, feeds), alone, strict=True):
        assert same_bits(actual, wanted)


@pytest.mark.parametrize(("name", "wide"), [("x86-64-v2", "xmm"), ("x86-64-v3", "ymm"), ("x86-64-v4", "zmm")])
def test_code_of_a_level_has_its_vectors_and_no_wider(name: str, wide: str) -> None:
    if name not in levels_within(host()):
        pytest.skip(f"this machine does not have {name}")
    target = level_of(host(), name)
    text = llvm.assembly(kernel_ir(SUM, target), target)
    assert wide in text
    assert not any(wider in text for wider in ("ymm", "zmm") if wider > wide)


def test_a_machine_has_the_levels_below_its_own() -> None:
    assert levels_within(described(8)) == ["x86-64-v2", "x86-64-v3"]
    assert levels_within(NEOVERSE) == ["aarch64"]
    assert level_of(described(16), "x86-64-v3") == described(8)
    assert level_of(NEOVERSE, "native") is NEOVERSE


@pytest.mark.parametrize("name", ["x86-64-v9", "haswell", "x86-64-V3"])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_TARGET", name)
    with pytest.raises(errors.InvalidArgument, match=f"SARDONYX_TARGET is '{name}', which is not the name of a target") as caught:
        session(NETS["chain"]()[0])
    assert "native" in caught.value.hint


def test_a_level_that_the_machine_lacks_is_an_error() -> None:
    with pytest.raises(errors.InvalidArgument, match="lacks avx512bw, avx512cd, avx512dq, avx512f, avx512vl") as caught:
        level_of(described(8), "x86-64-v4")
    assert "native, x86-64-v2, x86-64-v3" in caught.value.hint
    with pytest.raises(errors.InvalidArgument, match="lacks the instructions of x86_64"):
        level_of(NEOVERSE, "x86-64-v2")


def test_every_level_is_a_processor_that_llvm_knows_with_these_features() -> None:
    for name, (architecture, features) in LEVELS.items():
        triple = f"{architecture}-unknown-linux-gnu"
        by_name = describe(triple, generic(name).cpu, "")
        by_features = describe(triple, generic(name).cpu, ",".join(f"+{feature}" for feature in features))
        assert llvm.assembly(kernel_ir(SUM, by_features), by_features) == llvm.assembly(kernel_ir(SUM, by_features), by_name)


def test_saved_programs_and_kernels_are_kept_by_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen("x86-64-v2", monkeypatch)
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    content, feeds = NETS["chain"]()
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    def run() -> tuple[list[Any], int]:
        results = sardonyx.InferenceSession(path).run(None, feeds)
        return results, len(list(tmp_path.glob("*.program")))

    old, programs = run()
    assert programs == 1
    compiled = assemble.library(tmp_path).compiled
    assert compiled
    assert run()[1] == 1
    monkeypatch.delenv("SARDONYX_TARGET")
    new, programs = run()
    assert programs == 2
    assert assemble.library(tmp_path).compiled == compiled
    np.testing.assert_allclose(old[0], new[0], rtol=1e-5, atol=1e-6)
    monkeypatch.setenv("SARDONYX_TARGET", "native")
    assert run()[1] == 2
