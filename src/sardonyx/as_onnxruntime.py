"""Run programs that `import onnxruntime` on Sardonyx, unchanged.

    python -m sardonyx.as_onnxruntime APP.py ARGUMENTS...
    python -m sardonyx.as_onnxruntime -m MODULE ARGUMENTS...

or, before anything imports onnxruntime: `sardonyx.install_as_onnxruntime()`. Processes that the program starts anew (not by
fork) do not inherit it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import runpy
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

ONNXRUNTIME_VERSION: Final = "1.31.1"  # the release whose interface is offered: programs compare versions
_NAME: Final = "onnxruntime"
_QUANTIZATION: Final = (  # modules of onnxruntime.quantization
    "base_quantizer",
    "calibrate",
    "execution_providers",
    "execution_providers.qnn",
    "execution_providers.qnn.fusion_lpnorm",
    "execution_providers.qnn.mixed_precision_overrides_utils",
    "execution_providers.qnn.preprocess",
    "execution_providers.qnn.quant_config",
    "fusions",
    "fusions.fusion",
    "matmul_bnb4_quantizer",
    "matmul_nbits_quantizer",
    "onnx_model",
    "onnx_quantizer",
    "preprocess",
    "qdq_loss_debug",
    "qdq_quantizer",
    "quant_utils",
    "quantize",
    "registry",
    "shape_inference",
    "static_quantize_runner",
    "tensor_quant_overrides",
)
_TRANSFORMERS: Final = (  # modules of onnxruntime.transformers
    "benchmark_helper",
    "dynamo_onnx_helper",
    "float16",
    "fusion_base",
    "fusion_options",
    "fusion_utils",
    "huggingface_models",
    "import_utils",
    "io_binding_helper",
    "onnx_model",
    "onnx_model_bert",
    "onnx_utils",
    "optimizer",
    "profile_result_processor",
    "shape_infer_helper",
)
_MODEL_KINDS: Final = (  # modules onnx_model_... of it, with a class each
    "bart", "bert_keras", "bert_tf", "clip", "conformer", "gpt2", "mmdit", "phi", "sam2", "t5", "tnlr", "unet", "vae",
)  # fmt: skip
_ALIASES: Final = {
    "onnxruntime.capi": "sardonyx.capi",
    "onnxruntime.capi._pybind_state": "sardonyx.capi._pybind_state",
    "onnxruntime.capi.onnxruntime_pybind11_state": "sardonyx.capi.onnxruntime_pybind11_state",
    "onnxruntime.capi.onnxruntime_inference_collection": "sardonyx.capi.onnxruntime_inference_collection",
    "onnxruntime.capi.onnxruntime_validation": "sardonyx.capi.onnxruntime_validation",
    "onnxruntime.backend": "sardonyx.backend",
    "onnxruntime.backend.backend": "sardonyx.backend.backend",
    "onnxruntime.backend.backend_rep": "sardonyx.backend.backend_rep",
    "onnxruntime.datasets": "sardonyx.datasets",
    "onnxruntime.quantization": "sardonyx.quantization",
    **{f"onnxruntime.quantization.{name}": f"sardonyx.quantization.{name}" for name in _QUANTIZATION},
    "onnxruntime.tools": "sardonyx.tools",
    "onnxruntime.tools.convert_onnx_models_to_ort": "sardonyx.tools.convert_onnx_models_to_ort",
    "onnxruntime.tools.file_utils": "sardonyx.tools.file_utils",
    "onnxruntime.tools.make_dynamic_shape_fixed": "sardonyx.tools.make_dynamic_shape_fixed",
    "onnxruntime.tools.onnx_model_utils": "sardonyx.tools.onnx_model_utils",
    "onnxruntime.tools.onnxruntime_test": "sardonyx.tools.onnxruntime_test",
    "onnxruntime.tools.optimize_onnx_model": "sardonyx.tools.optimize_onnx_model",
    "onnxruntime.tools.reduced_build_config_parser": "sardonyx.tools.reduced_build_config_parser",
    "onnxruntime.tools.remove_initializer_from_input": "sardonyx.tools.remove_initializer_from_input",
    "onnxruntime.tools.symbolic_shape_infer": "sardonyx.tools.symbolic_shape_infer",
    "onnxruntime.tools.update_onnx_opset": "sardonyx.tools.update_onnx_opset",
    "onnxruntime.training": "sardonyx.training",
    "onnxruntime.training.api": "sardonyx.training.api",
    "onnxruntime.training.api.checkpoint_state": "sardonyx.training.api.checkpoint_state",
    "onnxruntime.training.api.lr_scheduler": "sardonyx.training.api.lr_scheduler",
    "onnxruntime.training.api.module": "sardonyx.training.api.module",
    "onnxruntime.training.api.optimizer": "sardonyx.training.api.optimizer",
    "onnxruntime.training.artifacts": "sardonyx.training.artifacts",
    "onnxruntime.training.onnxblock": "sardonyx.training.onnxblock",
    "onnxruntime.training.onnxblock.blocks": "sardonyx.training.onnxblock.blocks",
    "onnxruntime.training.onnxblock.checkpoint_utils": "sardonyx.training.onnxblock.checkpoint_utils",
    "onnxruntime.training.onnxblock.loss": "sardonyx.training.onnxblock.loss",
    "onnxruntime.training.onnxblock.model_accessor": "sardonyx.training.onnxblock.model_accessor",
    "onnxruntime.training.onnxblock.onnxblock": "sardonyx.training.onnxblock.onnxblock",
    "onnxruntime.training.onnxblock.optim": "sardonyx.training.onnxblock.optim",
    "onnxruntime.training.optim": "sardonyx.training.optim.adam_modes",
    "onnxruntime.transformers": "sardonyx.transformers",
    **{f"onnxruntime.transformers.{name}": f"sardonyx.transformers.{name}" for name in _TRANSFORMERS},
    **{f"onnxruntime.transformers.onnx_model_{name}": "sardonyx.transformers.model_kinds" for name in _MODEL_KINDS},
}
_TRAINING: Final = (  # modules that stand below sardonyx.training by the same names
    "ortmodule",
    "ortmodule._custom_gradient_registry",
    "ortmodule._fallback",
    "ortmodule._graph_execution_manager_factory",
    "ortmodule._onnx_models",
    "ortmodule._utils",
    "ortmodule.options",
    "ortmodule.torch_cpp_extensions",
    "utils",
    "utils.hooks",
)
_ALIASES.update({f"onnxruntime.training.{name}": f"sardonyx.training.{name}" for name in _TRAINING})
_PACKAGES: Final = (
    _NAME, "onnxruntime.capi", "onnxruntime.backend", "onnxruntime.quantization",
    "onnxruntime.quantization.execution_providers", "onnxruntime.quantization.execution_providers.qnn",
    "onnxruntime.quantization.fusions", "onnxruntime.tools", "onnxruntime.transformers",
    "onnxruntime.training", "onnxruntime.training.api", "onnxruntime.training.onnxblock",
    "onnxruntime.training.ortmodule", "onnxruntime.training.utils",
)  # fmt: skip
_SHADOWED: Final = {"onnxruntime.quantization": "quantize"}  # package -> the function in it that hides the module of its name
_BUILD_INFO: Final = "onnxruntime.capi.build_and_package_info"
_MISSING: Final = {  # package, of which all or some modules are missing -> what to do instead
    "onnxruntime.quantization": "use it with onnxruntime itself, and run the quantized model with Sardonyx",
    "onnxruntime.tools": "use them with onnxruntime itself",
    "onnxruntime.training": "what there is stands in docs/training.md and docs/training-api.md",
    "onnxruntime.transformers": "optimize the model with onnxruntime itself, and run the result with Sardonyx",
}


class _Distribution(importlib.metadata.Distribution):
    """What importlib.metadata tells about the onnxruntime that Sardonyx stands for."""

    def read_text(self, filename: str) -> str | None:
        if filename not in ("METADATA", "PKG-INFO"):
            return None
        return f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {ONNXRUNTIME_VERSION}\nSummary: Sardonyx as {_NAME}\n"

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), path)


class _Finder(MetaPathFinder, Loader):
    """Answers every import of onnxruntime and of the submodules there are; others do not exist."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _NAME and fullname not in _ALIASES and fullname != _BUILD_INFO:
            advice = _MISSING.get(".".join(fullname.split(".")[:2]))
            if advice is not None and _is_import_statement():
                text = f"Sardonyx, which stands for onnxruntime here, has no {fullname}: {advice}"
                raise ModuleNotFoundError(text, name=fullname)
            return None
        return ModuleSpec(fullname, self, origin=f"Sardonyx as {_NAME}", is_package=fullname in _PACKAGES)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Alias(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__init__.py")
        if module.__name__ == _NAME:
            module.__dict__["__version__"] = ONNXRUNTIME_VERSION
            module.__dict__["get_version_string"] = lambda: ONNXRUNTIME_VERSION
            # What ONNX Runtime's own __init__ leaves behind, and programs read.
            module.__dict__.update(package_name=_NAME, version=ONNXRUNTIME_VERSION, cuda_version="", import_capi_exception=None)
        elif module.__name__ == _BUILD_INFO:
            module.__dict__.update(package_name=_NAME, __version__=ONNXRUNTIME_VERSION, cuda_version="")
        else:
            source = importlib.import_module(_ALIASES[module.__name__])
            if module.__name__ in _SHADOWED:
                name = _SHADOWED[module.__name__]
                importlib.import_module(f"{module.__name__}.{name}")  # or its later import would hide the function
                module.__dict__[name] = getattr(source, name)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        name = getattr(context, "name", None)
        return iter(()) if name is not None and name.replace("_", "-").lower() != _NAME else _one(_Distribution())


def _is_import_statement() -> bool:
    """Whether the finder was asked by an import; programs also ask, by importlib.util.find_spec, if a module is there."""
    asker = sys._getframe(3)
    return asker.f_code.co_name == "_find_and_load_unlocked"


def _one(distribution: importlib.metadata.Distribution) -> Iterator[importlib.metadata.Distribution]:
    yield distribution


class _Alias(ModuleType):
    """A module whose names are those of a module of Sardonyx, under ONNX Runtime's module name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__doc__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if self.__name__ == _NAME:
            submodule = f"{_NAME}.{name}"
            if submodule in _ALIASES:
                return importlib.import_module(submodule)
            if name == "onnxruntime_validation":  # ONNX Runtime's __init__ imports this module of capi
                return importlib.import_module(f"{_NAME}.capi.{name}")
            return getattr(importlib.import_module("sardonyx"), name)
        source = importlib.import_module(_ALIASES[self.__name__]) if self.__name__ in _ALIASES else None
        submodule = f"{self.__name__}.{name}"
        if submodule in _ALIASES or submodule == _BUILD_INFO:
            return importlib.import_module(submodule)
        try:
            return getattr(source, name)
        except AttributeError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} in Sardonyx") from None

    def __dir__(self) -> list[str]:
        if self.__name__ == _BUILD_INFO:
            return sorted(self.__dict__)
        return sorted({*self.__dict__, *dir(importlib.import_module(_ALIASES.get(self.__name__, "sardonyx")))})


def install_as_onnxruntime() -> None:
    """Make `import onnxruntime` give Sardonyx, in this process, from now on; RuntimeError if the real one was imported."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    real = sys.modules.get(_NAME)
    if real is not None:
        location = getattr(real, "__file__", None) or "an unknown place"
        raise RuntimeError(
            f"onnxruntime {getattr(real, '__version__', '')} is already imported from {location}: "
            "call sardonyx.install_as_onnxruntime() before anything imports onnxruntime"
        )
    sys.meta_path.insert(0, _Finder())
    importlib.invalidate_caches()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script or module with Sardonyx as onnxruntime; returns the exit status for wrong usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help") or (given[0] == "-m" and len(given) < 2):
        print(__doc__, file=sys.stdout if given and given[0] != "-m" else sys.stderr)
        return 0 if given and given[0] != "-m" else 2
    if given[0] != "-m" and not os.path.exists(given[0]):
        print(f"sardonyx.as_onnxruntime: there is no file {given[0]!r}", file=sys.stderr)
        return 2
    install_as_onnxruntime()
    if given[0] == "-m":
        sys.argv = given[1:]
        sys.path[0] = os.getcwd()
        # A module of onnxruntime is run by its name in Sardonyx: an alias has no code of its own.
        runpy.run_module(_ALIASES.get(given[1], given[1]), run_name="__main__", alter_sys=True)
    else:
        sys.argv = given
        sys.path[0] = os.path.dirname(os.path.abspath(given[0]))
        runpy.run_path(given[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    from sardonyx.as_onnxruntime import main as installed_main  # lazy: the module by its own name, which programs may import too

    sys.exit(installed_main())
