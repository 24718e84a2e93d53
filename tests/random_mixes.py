"""Random models of a few kinds of nodes each, taken from all there are, over inputs of small and larger sizes."""

from __future__ import annotations

import random

from random_attributes import ATTRIBUTE_STEPS
from random_models import BOOL, FLOATS, INTEGERS, Grower, RandomModel
from random_steps import INPUTS, STEPS, ended
from random_views import VIEW_STEPS

LARGER: tuple[tuple[int | str, ...], ...] = (
    ("N", 16, 9, 9), ("S", 64), (1, "S", 48), ("N", 32, "S"), (3, 32, 8), (1, 24, 7, 11), ("N", 3, 4, 5, 4), (17, 33), ("S", "S"),
    ("N", 2, "T", 16), (1, 16, 1, 1), ("T", 1, 6), (5, 5),
)  # fmt: skip


def random_mix(seed: int, steps: int = 14, *, symbolic: bool = True) -> RandomModel:
    """The model of a seed. The same seed with fewer steps gives the same nodes, as far as they go."""
    g = Grower(random.Random(f"mix {seed}"), symbolic)
    main = g.random.choice(FLOATS) if g.chance(5) else FLOATS[0]
    for shape in g.random.sample((*INPUTS, *LARGER), 4):
        g.add_input(shape, main)
    g.add_input(g.random.choice((*INPUTS, *LARGER)), g.random.choice(INTEGERS))
    g.add_input(g.random.choice(INPUTS), BOOL)
    kinds = [*g.random.sample(STEPS, 4), *g.random.sample(VIEW_STEPS, 4), *g.random.sample(ATTRIBUTE_STEPS, 4)]
    for _ in range(steps):
        try:
            g.random.choice(kinds)(g)
        except StopIteration:
            continue
    return ended(g, random.Random(f"outputs {seed}"))
