"""Forks while other threads open sessions; each child opens and runs one. `python fork_stress.py SEED FORKS [SECONDS]`

A child that does not end in time prints where it hangs. Nothing is imported ahead: the first fork may come while the first
session is still importing the compiler.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import random
import sys
import threading
import time

import numpy as np

import sardonyx
from model_text import model

OPERATORS = ("Sin", "Exp", "Tanh", "Erf", "Sqrt", "Abs", "Neg", "Sigmoid", "Relu", "Softplus", "Ceil", "Floor", "Cos")
FEED = {"v0": np.ones((4, 16), np.float32), "w": np.eye(16, dtype=np.float32)}


def net(rng: random.Random, depth: int) -> bytes:
    chain = "".join(f"v{i + 1} = {rng.choice(OPERATORS)}(v{i}) " for i in range(depth))
    end = f"m = MatMul(v{depth}, w) s = Softmax<axis=-1>(m) y = ReduceSum(s)"
    return model(f"(float[N,16] v0, float[16,16] w) => (float y) {{ {chain} {end} }}", 17)


def child(content: bytes, seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)
    sardonyx.InferenceSession(content).run(None, FEED)
    os._exit(0)


def main(seed: int, forks: int, seconds: float = 60.0) -> int:
    rng = random.Random(seed)
    nets = [net(rng, rng.randint(2, 8)) for _ in range(40)]
    own = net(rng, 3)
    stopped = threading.Event()

    def work(first: int) -> None:
        for iteration in itertools.count(first):
            if stopped.is_set():
                return
            sardonyx.InferenceSession(nets[iteration % len(nets)]).run(None, FEED)

    threads = [threading.Thread(target=work, args=(7 * number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    failed = 0
    for iteration in range(forks):
        time.sleep(rng.uniform(0, 0.1 if iteration else 0.5))
        pid = os.fork()
        if pid == 0:
            child(own, seconds)
        failed += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0
    stopped.set()
    for thread in threads:
        thread.join(seconds)
    return int(failed > 0 or any(thread.is_alive() for thread in threads))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:])))
