"""Regions that execution providers compute, and copies between the memory of the host and that of devices.

No model has these nodes: they are put into a graph when it is divided between providers, each with what computes it as its
attribute. Types and shapes of a region follow from the nodes inside (`analysis.shapes` infers them as those of a call); what a
region computes is nobody else's business, so it is never computed ahead nor merged with an equal one.
"""

from __future__ import annotations

from typing import Any

from sardonyx.ir.region import DOMAIN, FROM_HOST, REGION, TO_HOST, ProviderRegion
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult


def _run(*inputs: Any, region: ProviderRegion) -> Any:
    return region.run(inputs)


def _same_type(ctx: InferContext) -> InferResult:
    return ctx.type(0)


def _unknown(ctx: InferContext) -> InferResult:
    return [None] * ctx.outputs


op(REGION, domain=DOMAIN, eval=_run, infer=_unknown, traits=Trait.RANDOM)
op(FROM_HOST, domain=DOMAIN, eval=_run, infer=_same_type, traits=Trait.RANDOM)
op(TO_HOST, domain=DOMAIN, eval=_run, infer=_same_type, traits=Trait.RANDOM)
