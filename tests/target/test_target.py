"""What is known of a machine, and that it is asked for as what decides."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sardonyx.codegen import host as host_module
from sardonyx.codegen import llvm
from sardonyx.codegen.host import host
from sardonyx.target import machine
from sardonyx.target.target import Caches, Target, describe
from targets import NEOVERSE, described

SOURCE = Path(__file__).parent.parent.parent / "src/sardonyx"


def test_levels_of_x86_differ_in_what_decides() -> None:
    narrow, usual, wide = (described(lanes) for lanes in (4, 8, 16))
    assert [(each.vector_bits, each.registers) for each in (narrow, usual, wide)] == [(128, 16), (256, 16), (512, 32)]
    assert [each.has_fma for each in (narrow, usual, wide)] == [False, True, True]
    assert [each.has_broadcast_operands for each in (narrow, usual, wide)] == [False, False, True]
    assert [each.lanes_of(64) for each in (narrow, usual, wide)] == [2, 4, 8]
    assert [each.lanes_of(8) for each in (narrow, usual, wide)] == [16, 32, 64]


@pytest.mark.parametrize(
    ("triple", "features", "fact"),
    [
        ("x86_64", "+avx512vnni", "has_int8_dot"),
        ("x86_64", "+avx512vbmi", "has_byte_permute"),
        ("x86_64", "+avxvnni", "has_int8_dot"),
        ("x86_64", "+avx512bf16", "has_bf16_dot"),
        ("x86_64", "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512cd,+fma,+avx2", "has_float_permute"),
        ("x86_64", "+f16c", "has_f16_conversion"),
        ("aarch64", "+dotprod", "has_int8_dot"),
        ("aarch64", "+i8mm", "has_int8_tiles"),
        ("aarch64", "+bf16", "has_bf16_dot"),
    ],
)
def test_instructions_are_named_facts(triple: str, features: str, fact: str) -> None:
    assert getattr(describe(f"{triple}-unknown-linux-gnu", "", features), fact)
    assert not getattr(describe(f"{triple}-unknown-linux-gnu", "", features.replace("+", "-")), fact)


def test_processors_with_whole_vectors_compute_more() -> None:
    wide = described(16)
    rates = [describe(wide.triple, cpu, wide.features).flops_per_ns for cpu in ("znver4", "sapphirerapids", "znver5")]
    assert rates == sorted(set(rates))
    assert describe(wide.triple, "znver5", "+avx2,+fma").flops_per_ns == rates[0]


def test_weights_come_as_fast_as_was_measured_and_else_as_before() -> None:
    wide = described(16)
    known, other = (describe(wide.triple, cpu, wide.features) for cpu in ("znver5", "znver4"))
    assert (other.shared_cache_bytes_per_ns, other.memory_bytes_per_ns) == (40, 12)
    assert known.shared_cache_bytes_per_ns > 40
    assert other.memory_bytes_per_ns < known.memory_bytes_per_ns < known.shared_cache_bytes_per_ns


def test_registers_do_not_follow_from_the_width() -> None:
    assert (NEOVERSE.lanes, NEOVERSE.registers) == (4, 32)
    assert NEOVERSE.has_fma
    assert not NEOVERSE.has_masked_accesses


def test_the_key_names_all_that_code_depends_on() -> None:
    target = described(16)
    others = [
        replace(target, features="+sse2"),
        replace(target, cpu="znver4"),
        replace(target, triple="x86_64-apple-darwin"),
        replace(target, vector_bits=256),
        replace(target, registers=16),
    ]
    assert len({target.key, *(other.key for other in others)}) == 6
    assert replace(target, caches=Caches(l3=1)).key == target.key


def test_emitters_do_not_ask_for_cache_sizes() -> None:
    asking = [str(path) for path in (SOURCE / "codegen").rglob("*.py") if re.search(r"\.caches\b|flops_per_ns", path.read_text())]
    assert asking == []  # they are no part of the key


def test_nothing_asks_for_the_machine_but_its_own_package() -> None:
    pattern = re.compile(r"platform\.(machine|processor)|lanes *(>=?|==) *(8|16)\b|registers_of|uname\(")
    asking = [str(path) for path in SOURCE.rglob("*.py") if path.parent.name != "target" and pattern.search(path.read_text())]
    assert asking == []


def test_cache_sizes_are_what_the_system_tells(tmp_path: Path) -> None:
    reported = [("Data", 1, "48K"), ("Instruction", 1, "64K"), ("Unified", 2, "2M"), ("Unified", 3, "1G")]
    for index, (kind, level, size) in enumerate(reported):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, content in (("type", kind), ("level", level), ("size", size)):
            (folder / name).write_text(f"{content}\n")
    assert machine.cache_bytes(str(tmp_path)) == {1: 48 << 10, 2: 2 << 20, 3: 1 << 30}
    (tmp_path / "index2/size").write_text("")
    assert machine.cache_bytes(str(tmp_path)) == {1: 48 << 10, 3: 1 << 30}
    assert machine.cache_bytes(str(tmp_path / "none")) == {}


@pytest.mark.parametrize(
    "damaged", [b"", b"{}", b"7", b'["x86_64"]', b'["a", "b", 3, 1, 1, 1]', b'["a", "b", "c", "d"]', b"\xff"]
)
def test_a_machine_is_remembered_and_a_damaged_note_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes
) -> None:
    asked: list[int] = []
    real = llvm.host_description

    def asking() -> tuple[str, str, str]:
        asked.append(1)
        return real()

    monkeypatch.setattr(host_module, "cache_bytes", lambda: {2: 3 << 20})
    monkeypatch.setattr(llvm, "host_description", asking)

    def found() -> Target:
        host.cache_clear()
        return host(tmp_path)

    try:
        first = found()
        assert first.caches == Caches(l2=3 << 20)
        assert found() == first
        assert asked == [1]
        (note,) = tmp_path.glob("*.target")
        note.write_bytes(damaged)
        assert found() == first
        assert asked == [1, 1]
    finally:
        host.cache_clear()
