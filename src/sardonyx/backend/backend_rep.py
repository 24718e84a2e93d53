"""A model that the backend interface has opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sardonyx.options import RunOptions
from sardonyx.session.inference_session import InferenceSession

_RUN_OPTIONS: Final = frozenset(("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches"))


def configure(options: Any, settings: Mapping[str, Any], allowed: frozenset[str]) -> None:
    """Set what is allowed, refuse what exists but is not, ignore the rest: it may be meant for the other kind of options."""
    for name, value in settings.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(type(options), name):
            raise RuntimeError(
                f"{type(options).__name__} attribute '{name}' is not permitted via the backend API. "
                f"Allowed attributes: {', '.join(sorted(allowed))}"
            )


class OnnxRuntimeBackendRep:
    """A model ready to run, as the ONNX backend interface has it."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """The outputs for a list of inputs in the model's order, or for the one input of a model with a single one."""
        options = RunOptions()
        configure(options, kwargs, _RUN_OPTIONS)
        arguments = self._session.get_inputs()
        if isinstance(inputs, (list, tuple)):
            if len(inputs) > len(arguments):
                raise RuntimeError(f"Model expect {len(arguments)} inputs, got {len(inputs)}")
            feed = {argument.name: value for argument, value in zip(arguments, inputs)}
        elif len(arguments) != 1:
            raise RuntimeError(f"Model expect {len(arguments)} inputs")
        else:
            feed = {arguments[0].name: inputs}
        return self._session.run(None, feed, options)
