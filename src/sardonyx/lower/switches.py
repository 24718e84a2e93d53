"""The steps that decide which side of an If runs.

    steps on the sides of an If  =>  a switch step before the first of them gives those of one side nothing to do

The switch of an inner If is itself a step on a side of the outer one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir.graph import Node
from sardonyx.kernel.indexing.switch import SwitchKernel
from sardonyx.lower.groups import Group, Region
from sardonyx.program.steps import Address, KernelStep, Lowered, Step, View


def insert_switches(lowered: Lowered, ifs: Sequence[tuple[Group, View]]) -> None:
    """Put the switches of all Ifs, each given with where its condition lies, between the steps."""
    if ifs:
        _Switches(ifs).insert(lowered)


class _Switches:
    def __init__(self, ifs: Sequence[tuple[Group, View]]) -> None:
        self._ifs = {group.nodes[0]: (group, condition) for group, condition in ifs}
        self._made: dict[Node, KernelStep] = {}
        self._decided: dict[tuple[Node, bool], list[KernelStep]] = {}

    def insert(self, lowered: Lowered) -> None:
        """One walk over all steps."""
        rows: list[tuple[Step, Group | None, Region]] = []
        for step, group, region in zip(lowered.steps, lowered.groups, lowered.regions):
            if isinstance(step, KernelStep):
                for depth, (node, _) in enumerate(region):
                    if node in self._ifs and node not in self._made:
                        rows.append((self._new_switch(node, region[:depth]), self._ifs[node][0], region[:depth]))
                self._note(step, region)
            rows.append((step, group, region))
        for node, switch in self._made.items():
            then, other = (self._decided.get((node, side), []) for side in (True, False))
            _, condition = self._ifs[node]
            where = Address(condition.buffer, condition.offset)
            switch.arguments = SwitchKernel().arguments.entries(condition=where, first=len(then), second=len(other))
            switch.work = 10 + len(then) + len(other)
            switch.decides = (*then, *other)
        lowered.steps[:] = [step for step, _, _ in rows]
        lowered.groups[:] = [group for _, group, _ in rows]
        lowered.regions[:] = [region for _, _, region in rows]

    def _new_switch(self, node: Node, region: Region) -> KernelStep:
        """The switch of an If, before it is known what it decides on."""
        _, condition = self._ifs[node]
        switch = KernelStep(SwitchKernel(), (), 1, 0, (condition.buffer,), (), "switch", (node.label,))
        self._made[node] = switch
        self._note(switch, region)
        return switch

    def _note(self, step: KernelStep, region: Region) -> None:
        """Let the Ifs around a step decide on it."""
        for where in region:
            self._decided.setdefault(where, []).append(step)
