"""Rules after which more is known of the sizes of values than before."""

from __future__ import annotations

from sardonyx.ir.graph import Model
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.protocol import M, PassResult, Rule


class ShapingRule(Rule[M]):
    """A rule whose changes are followed by inferring all shapes anew: those behind a loop that became operators, and the like."""

    def run(self, model: Model) -> PassResult:
        """Apply the rule wherever it matches, and infer shapes if it did."""
        result = super().run(model)
        if result.modified:
            infer_from_inputs(model)
        return result
