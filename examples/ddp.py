"""Train in several processes: each sees its own data, gradients are averaged, parameters stay the same everywhere.

torchrun --nproc_per_node 2 examples/ddp.py [--steps 60]
"""

import argparse
import os
import sys

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sardonyx


def batch(teacher: nn.Module, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random inputs, and what a network that is to be learned makes of them."""
    x = torch.randn(32, 8, generator=generator)
    with torch.no_grad():
        return x, teacher(x)


def main() -> None:
    """Train, and compare the parameters of all processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    for name, alone in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        os.environ.setdefault(name, alone)  # what torchrun sets; without it there is one process, at any free port
    torch.set_num_threads(1)  # the processes share the machine
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()

    torch.manual_seed(0)
    teacher = nn.Linear(8, 2)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
    model = DistributedDataParallel(sardonyx.training.TrainingModule(model))  # wrap first, then distribute
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(rank)  # every process has data of its own
    losses = []
    for _ in range(steps):
        x, y = batch(teacher, generator)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everywhere = [torch.empty_like(mine) for _ in range(world)]
    torch.distributed.all_gather(everywhere, mine)
    equal = all(torch.equal(mine, other) for other in everywhere)
    verdict = "equal" if equal else "DIFFERENT"
    # One write, so that the lines of several processes do not mix.
    sys.stdout.write(f"process {rank} of {world}: loss {losses[0]:.3f} -> {losses[-1]:.3f}, parameters {verdict}\n")
    torch.distributed.destroy_process_group()
    if not equal or losses[-1] > 0.5 * losses[0]:
        raise SystemExit("it has not learned, or not together")
    if world > 1:
        # In PyTorch 2.13 a thread of gloo now and then aborts a process that ends by itself, in plain PyTorch, too.
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
