"""Run onnxruntime's own tests of ORTModule and of training without PyTorch on Sardonyx, on a CPU.

    python tools/run_ortmodule_tests.py CHECKOUT [FILE ...] [--select EXPRESSION] [--cases N] [--json RESULTS] [--minimum 85]

CHECKOUT is a checkout of onnxruntime's public repository, of which the tests in orttraining/orttraining/test/python are run, with
Sardonyx in onnxruntime's place; `--cases` runs some of the hundreds of cases that a few tests have (and that take 8 GB). Needs
torch, transformers, pytest, onnx and packaging. The files are copied, and changed only where they name a GPU or what newer
packages have no more (see REPLACED). NOT_FOR_US has the tests that make no sense here, with the reasons: they are not counted.
Prints the table that docs/training-internals.md shows; exits 1 if fewer than the minimum of the others pass.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FOLDER: Final = "orttraining/orttraining/test/python"
FILES: Final = (
    "orttraining_test_ortmodule_api.py",
    "orttraining_test_ortmodule_fallback.py",
    "orttraining_test_ortmodule_hooks.py",
    "orttraining_test_ortmodule_cache.py",
    "orttraining_test_ort_apis_onnxblock.py",
    "orttraining_test_ort_apis_py_bindings.py",
)
REPLACED: Final = (  # pattern, replacement, why
    (r'"cuda:\d"', '"cpu"', "there is no GPU"),
    (r'"cuda"', '"cpu"', "there is no GPU"),
    (r"\.cuda\(\)", ".cpu()", "there is no GPU"),
    (r"torch\.cuda\.synchronize\(\)", "pass", "there is no GPU"),
    (r'backend="nccl"', 'backend="gloo"', "there is no GPU"),
    (r'AutoConfig\.from_pretrained\(\s*"bert-base-uncased",', "BertForSequenceClassification.config_class(", "no network"),
    (r'\.from_pretrained\(\s*"bert-base-uncased",\s*config=config,?\s*\)', "(config)", "no network"),
    (
        r"from transformers import AdamW, ",
        "from torch.optim import AdamW\nfrom transformers import ",
        "transformers has it no more",
    ),
    (r"export_params=True,\n", "export_params=True, dynamo=False,\n", "torch's default is another exporter now"),
)
_GPU: Final = "is about GPUs: several devices, their memory, or their half-precision autocast"
_GRAPH: Final = "expects nodes of onnxruntime's own rewritings in the graph, or looks at private parts of its implementation"
_DATACLASS: Final = "expects that dataclasses are refused; here they are supported"
_DATA: Final = "decides by the data of a tensor in forward, which is refused here: a graph would keep what the first call decided"
_PACKAGES: Final = "needs packages that are not among those above"
NOT_FOR_US: Final[dict[str, str]] = {
    "test_forward_call_default_input": _DATA,
    "test_model_with_registered_buffer_and_dropped_parameters": _DATA,
    "test_hf_save_pretrained": _PACKAGES,
    "test_ortmodule_fused_adam_optimizer_correctness": "compares with the AdamW of transformers, which is gone",
    "test_model_without_device": _GPU,
    "test_model_with_multiple_devices_cpu_cuda": _GPU,
    "test_model_with_multiple_devices_to_to": _GPU,
    "test_model_with_multiple_devices_to_cpu": _GPU,
    "test_model_with_multiple_devices_to_cuda": _GPU,
    "test_forward_data_and_model_on_different_devices": _GPU,
    "test_gpu_reserved_memory_with_torch_no_grad": _GPU,
    "test_aten_conv_bf16": _GPU,
    "test_ortmodule_fallback_device__multiple": _GPU,
    "test_ortmodule_fallback_device__mismatch": _GPU,
    "test_ortmodule_fallback_warn_message": _GPU,
    "test_ortmodule_fallback_forward": _DATACLASS,
    "test_gradient_correctness_chunk": _GRAPH,
    "test_eval_onnx_models": _GRAPH,
    "test_eval_model_mode": _GRAPH,
    "test_aten_multinomial": "compares random samples with those of PyTorch's generator",
    "test_runtime_inspector_label_and_embed_sparsity_detection": _GRAPH,
    "test_ops_for_padding_elimination": _GRAPH,
    "test_e2e_padding_elimination": _GRAPH,
    "test_ortmodule_log_level_control": _GRAPH,
    "test_bert_memory_inspection": _GRAPH,
    "test_enable_layerwise_recompute": _GRAPH,
    "test_layerwise_recompute_pythonop_deterministic": _GRAPH,
    "test_overridden_softmax_export": _GRAPH,
    "test_cuda_execution_provider": _GPU,
    "test_ort_custom_ops": "needs a library of operators compiled from C++",
}
CONFTEST: Final = """
import json
import os
import pathlib
import sys

sys.path.insert(0, {source!r})
import torch

import sardonyx

sardonyx.install_as_onnxruntime()
torch.set_num_threads({threads})
RESULTS = pathlib.Path(os.environ.get("OUTCOMES", os.devnull))


def _write(*entry):
    with RESULTS.open("a") as file:
        file.write(json.dumps(entry) + "\\n")


def pytest_collection_modifyitems(items):
    lines = RESULTS.read_text().splitlines() if RESULTS.is_file() else []
    done = {{json.loads(line)[0] for line in lines}}
    cases = int(os.environ.get("CASES", "0"))
    of_test = {{}}
    for item in items:
        of_test.setdefault(item.name.split("[")[0], []).append(item)
    chosen = {{item for each in of_test.values() for item in each[:: max(1, len(each) // cases if cases else 1)]}}
    items[:] = [item for item in items if item.name not in done and item in chosen]


def pytest_runtest_logstart(nodeid, location):
    _write(nodeid.split("::")[-1], "started", "")


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        text = "" if report.outcome == "passed" else str(getattr(report.longrepr, "reprcrash", report.longrepr))
        _write(report.nodeid.split("::")[-1], report.outcome, " ".join(text.split())[:400])
"""


def laid_out(checkout: Path, folder: Path) -> None:
    """Copies of the tests, with what must be replaced."""
    source = checkout / FOLDER
    if not source.is_dir():
        raise SystemExit(f"{checkout} is no checkout of onnxruntime: it has no {FOLDER}")
    for path in source.glob("*.py"):
        text = path.read_text("utf-8")
        for pattern, replacement, _ in REPLACED:
            text = re.sub(pattern, replacement, text)
        (folder / path.name).write_text(text, "utf-8")
    root = Path(__file__).parents[1] / "src"
    (folder / "conftest.py").write_text(CONFTEST.format(source=str(root), threads=1), "utf-8")


def run_file(path: Path, select: str, timeout: float, cases: int = 0) -> dict[str, tuple[str, str]]:
    """What became of each test of a file: test -> outcome, failure. If the process dies, the file goes on behind the test."""
    if path.name.endswith("_cache.py"):  # a script, without test functions
        return {path.stem: _run_script(path, timeout)}
    written = path.with_suffix(".outcomes")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path.name, *(["-k", select] if select else [])]
    source = str(Path(__file__).parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OUTCOMES": str(written), "CASES": str(cases)}
    while True:
        try:
            code = subprocess.run(
                command, cwd=path.parent, env=environment, timeout=timeout, check=False, stdout=subprocess.DEVNULL
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
        outcomes: dict[str, tuple[str, str]] = {}
        for line in written.read_text().splitlines() if written.is_file() else ():
            name, outcome, detail = json.loads(line)
            if outcome != "started" or name not in outcomes:
                outcomes[name] = outcome, detail
        died = [name for name, (outcome, _) in outcomes.items() if outcome == "started"]
        if code in (0, 1, 5) or not died:  # passed, failed, nothing left
            return outcomes or {path.stem: ("failed", f"no test was run ({code})")}
        with written.open("a") as file:
            file.writelines(json.dumps([name, "failed", f"the process died ({code})"]) + "\n" for name in died)


def _run_script(path: Path, timeout: float) -> tuple[str, str]:
    program = f"import conftest, runpy; runpy.run_path({path.name!r}, run_name='__main__')"
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1] / "src"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29531",
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=path.parent,
            env=environment,
            timeout=timeout,
            check=False,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return "failed", f"not done after {timeout:.0f} s"
    return ("passed", "") if done.returncode == 0 else ("failed", (done.stderr.strip().splitlines() or [""])[-1][:400])


def reason_of(test: str) -> str | None:
    """Why a test (with its parameters, or without) is not for us."""
    return NOT_FOR_US.get(test) or NOT_FOR_US.get(test.split("[", maxsplit=1)[0])


def report(results: dict[str, dict[str, tuple[str, str]]], minimum: float) -> int:
    """Print the table, and what failed; 1 if too much did."""
    print("| file | tests | not for us | skipped by themselves | passed | failed |\n|---|---|---|---|---|---|")
    passed = total = 0
    failed: list[str] = []
    for file, outcomes in results.items():
        ours = {name: outcome for name, outcome in outcomes.items() if reason_of(name) is None}
        counts = {kind: sum(1 for outcome, _ in ours.values() if outcome == kind) for kind in ("passed", "failed", "skipped")}
        passed, total = passed + counts["passed"], total + counts["passed"] + counts["failed"]
        left_out = len(outcomes) - len(ours)
        print(f"| `{file}` | {len(outcomes)} | {left_out} | {counts['skipped']} | {counts['passed']} | {counts['failed']} |")
        failed += [f"{name}: {detail}" for name, (outcome, detail) in ours.items() if outcome == "failed"]
    share = 100 * passed / max(total, 1)
    print(f"\n{passed} of {total} passed: {share:.1f} %")
    print(*(f"failed: {each}" for each in failed), sep="\n")
    return 0 if total and share >= minimum else 1


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="onnxruntime's own tests of ORTModule, on Sardonyx")
    parser.add_argument("checkout", type=Path, help="a checkout of onnxruntime's repository")
    parser.add_argument("files", nargs="*", default=FILES, help="names of test files")
    parser.add_argument("--select", default="", help="only tests that match this expression of pytest's -k")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    parser.add_argument("--minimum", type=float, default=85.0, help="per cent that must pass (default 85)")
    parser.add_argument("--cases", type=int, default=0, help="about this many cases of each test (default: all)")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds a file may take")
    given = parser.parse_args(arguments)
    results: dict[str, dict[str, tuple[str, str]]] = {}
    with tempfile.TemporaryDirectory() as name:
        laid_out(given.checkout, Path(name))
        for file in given.files or FILES:
            results[file] = run_file(Path(name) / file, given.select, given.timeout, given.cases)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    return report(results, given.minimum)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
