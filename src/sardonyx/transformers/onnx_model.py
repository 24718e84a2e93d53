"""A ModelProto and what tools do with it: looking up, changing, pruning, saving. `onnxruntime.transformers.onnx_model`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sardonyx.transformers.float16 import convert_float_to_float16
from sardonyx.transformers.graph_changes import GraphChanges
from sardonyx.transformers.messages import package


class OnnxModel(GraphChanges):
    """A model as its message."""

    def __init__(self, model: Any) -> None:
        self.initialize(model)

    def initialize(self, model: Any) -> None:
        """Take another model."""
        self.model = model
        self.all_graphs: list[Any] | None = None
        self.enable_shape_infer = True
        self.shape_infer_helper = None
        self._node_name_suffix = {}
        self._dtype_dict = self._shape_dict = None

    def disable_shape_inference(self) -> None:
        """Do not infer shapes."""
        self.enable_shape_infer = False

    def convert_float_to_float16(self, use_symbolic_shape_infer: bool = True, **kwargs: Any) -> None:
        """Change the model to float16; arguments are those of `float16.convert_float_to_float16`. Inputs and outputs stay."""
        known = ("keep_io_types", "op_block_list", "node_block_list", "force_fp16_initializers", "force_fp16_inputs",
                 "min_positive_val", "max_finite_val", "use_bfloat16_as_blocked_nodes_dtype")  # fmt: skip
        given = {"keep_io_types": True, **{name: value for name, value in kwargs.items() if name in known}}
        self.initialize(convert_float_to_float16(self.model, **given))

    def convert_model_float32_to_float16(self, cast_input_output: bool = True) -> None:
        """The older name: `cast_input_output` keeps inputs and outputs."""
        self.convert_float_to_float16(keep_io_types=cast_input_output)

    @staticmethod
    def save(
        model: Any,
        output_path: str,
        save_as_external_data: bool = False,
        all_tensors_to_one_file: bool = True,
        size_threshold: int = 1024,
        convert_attribute: bool = False,
    ) -> None:
        """Write a model; weights beside it, if asked for."""
        onnx = package()
        Path(output_path).parent.mkdir(parents=True, exist_ok=True)
        if model.opset_import and not any(opset.domain == "com.microsoft" for opset in model.opset_import):
            model.opset_import.extend([onnx.helper.make_opsetid("com.microsoft", 1)])
        if not save_as_external_data:
            onnx.save(model, output_path)
            return
        location = Path(output_path).name + ".data"
        data = Path(output_path).with_name(location)
        if all_tensors_to_one_file and data.exists():  # saving would append to it
            data.unlink()
        onnx.save_model(
            model,
            output_path,
            save_as_external_data=True,
            all_tensors_to_one_file=all_tensors_to_one_file,
            location=location,
            size_threshold=size_threshold,
            convert_attribute=convert_attribute,
        )

    def save_model_to_file(
        self,
        output_path: str,
        use_external_data_format: bool = False,
        all_tensors_to_one_file: bool = True,
        size_threshold: int = 1024,
        convert_attribute: bool = False,
    ) -> None:
        """Write the model, its nodes in order."""
        self.topological_sort()
        self.save(self.model, output_path, use_external_data_format, all_tensors_to_one_file, size_threshold, convert_attribute)
