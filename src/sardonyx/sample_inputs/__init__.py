"""Made-up inputs for a model, so that it can be run without data.

    random_inputs(session.get_inputs(), shapes={"image": (1, 3, 224, 224)})   from the declared types alone
    fitting_inputs("model.onnx", session_run)                                 sizes and contents that the graph demands

`random_values` draws values of a type, `sizes` finds sizes for dimensions that are left open, `contents` what a graph demands of
the numbers and strings themselves, `fitting` puts these together and tries them.
"""

from __future__ import annotations

from sardonyx.sample_inputs.fitting import Fitted, fitting_inputs, fitting_shapes
from sardonyx.sample_inputs.random_values import InputDescription, input_shapes, random_inputs

__all__ = ["Fitted", "InputDescription", "fitting_inputs", "fitting_shapes", "input_shapes", "random_inputs"]
