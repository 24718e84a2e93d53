"""Saved packed weights and compiled models, time and memory: `python -m benchmarks.packed_weights [--model FILE]`.

For a model of matrix products with external data (or a model of yours), printed are

- the creation of a session that packs, against one that maps saved packed weights: as a whole, and the part of the weights alone;
  with the program that the session left that saved them, and without any
- the memory that 1 and 4 processes with mapped weights have taken of the machine after a run (the sum of their PSS: a page that
  n processes share counts 1/n for each), and what of it is their own (anonymous pages)
- what a second session in the process adds
- a bundle: its creation against onnxruntime's, and its private memory

Times are processor seconds, best of some attempts that take turns; kernels are in the cache of object code, programs are not, but
where it is said.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import sardonyx

from .weights import write_model

_PROGRAM: Final = """
import json, sys, time
import numpy
engine, path = sys.argv[1:3]
if engine == "onnxruntime":
    import onnxruntime as module
else:
    import sardonyx as module
    from sardonyx.runtime import weight_store
    load, spent = weight_store.WeightStore.load, [0.0]
    def timed(self, constants):
        start = time.thread_time()
        try:
            return load(self, constants)
        finally:
            spent[0] += time.thread_time() - start
    weight_store.WeightStore.load = timed
options = module.SessionOptions()
def own():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Anonymous")) / 1024
before = own()
start = time.process_time()
session = module.InferenceSession(path, options, providers=["CPUExecutionProvider"])
opened = time.process_time() - start
one = own()
second = module.InferenceSession(path, options, providers=["CPUExecutionProvider"])
both = own()
print(json.dumps([opened, 0.0 if engine == "onnxruntime" else spent[0], one - before, both - one, one]), flush=True)
if len(sys.argv) > 3:
    sizes = {each.name: [size if isinstance(size, int) else 1 for size in each.shape] for each in session.get_inputs()}
    session.run(None, {name: numpy.zeros(shape, numpy.float32) for name, shape in sizes.items()})
    print(own(), flush=True)
    sys.stdin.readline()
"""
_SAVING: Final = """
import sys
import sardonyx
options = sardonyx.SessionOptions()
options.optimized_model_filepath = sys.argv[2]
options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "packed.data")
options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")
sardonyx.InferenceSession(sys.argv[1], options)
"""


def _run(engine: str, model: Path, cache: Path, *, keeps: bool = False) -> list[float]:
    """Open a model in a process of its own; the program that it leaves is forgotten unless it is to be kept."""
    environment = {**os.environ, "SARDONYX_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, engine, str(model)], capture_output=True, text=True, check=True, env=environment
    )
    for each in [] if keeps else cache.glob("*.program"):
        each.unlink()
    found: list[float] = json.loads(done.stdout)
    return found


def _together(model: Path, cache: Path | str, count: int) -> tuple[float, float]:
    """The memory that some processes that have run the model have taken of the machine, and what of it is their own."""
    environment = {**os.environ, "SARDONYX_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", _PROGRAM, "sardonyx", str(model), "wait"]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(count)
    ]
    own = total = 0.0
    for each in running:
        assert each.stdout is not None
        each.stdout.readline()
        own += json.loads(each.stdout.readline())
    for each in running:
        lines = Path(f"/proc/{each.pid}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    for each in running:
        each.communicate("\n")
    return total, own


def _save(model: Path, folder: Path, cache: Path) -> Path:
    environment = {**os.environ, "SARDONYX_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-c", _SAVING, str(model), str(folder / "packed.onnx")], check=True, env=environment)
    return folder / "packed.onnx"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="saved packed weights and compiled models: time and memory")
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--model", type=Path, help="a model of yours in place of the matrix products")
    parser.add_argument("--attempts", type=int, default=3)
    args = parser.parse_args()
    compileall.compile_dir(Path(sardonyx.__file__).parent, quiet=1)  # as those of an installed package are
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = args.model
        if model is None:
            model = folder / "products.onnx"
            total = args.megabytes * 2**20 // (4 * 4096)
            write_model(model, [total // 4, total // 4, total // 2])
        bundle, cache, left = folder / "model.sdx", folder / "cache", folder / "left"
        packed = _save(model, folder, left)
        sardonyx.compile_bundle(model, bundle)
        best: dict[str, list[float]] = {}
        for _ in range(args.attempts + 1):  # the first fills the cache of object code
            for kind, engine, path, folder_of in (
                ("packing", "sardonyx", model, cache),
                ("mapped", "sardonyx", packed, cache),
                ("mapped, as left", "sardonyx", packed, left),
                ("bundle", "sardonyx", bundle, cache),
                ("onnxruntime", "onnxruntime", model, cache),
            ):
                one = _run(engine, path, folder_of, keeps=folder_of is left)
                best[kind] = [min(pair) for pair in zip(best.get(kind, one), one)]
        print(f"load {os.getloadavg()[0]:.1f}")
        print(f"{'':16s}{'creation s':>12s}{'weights s':>12s}{'adds MB':>12s}{'second adds MB':>16s}")
        for kind, (opened, weights, one_adds, second_adds, _) in best.items():
            print(f"{kind:16s}{opened:12.3f}{weights:12.3f}{one_adds:12.1f}{second_adds:16.1f}")
        packing = best["packing"][0]
        print(f"session creation, packing / mapped as the saving session left it: {packing / best['mapped, as left'][0]:.1f}")
        print(f"session creation, packing / mapped, without the program: {packing / best['mapped'][0]:.1f}")
        print(f"the weights alone, packing / mapped: {best['packing'][1] / max(best['mapped'][1], 1e-6):.1f}")
        print(f"session creation, bundle / onnxruntime: {best['bundle'][0] / best['onnxruntime'][0]:.3f}")
        for kind, path, where in (("map", packed, left), ("pack", model, "")):
            (alone, own), (four, own_of_four) = _together(path, where, 1), _together(path, where, 4)
            text = f"1 process {alone:.0f} MB ({own:.0f} its own), 4 together {four:.0f} ({own_of_four:.0f}): {four / alone:.2f}"
            print(f"memory after a run, processes that {kind}: {text}")


if __name__ == "__main__":
    main()
