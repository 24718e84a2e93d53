"""Element types in the words of ONNX Runtime, NumPy and torch, and bindings of torch tensors to a session.

Types NumPy lacks are those of ml_dtypes here; ONNX Runtime has no NumPy form for them. torch is imported when it is first needed.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.options import RunOptions

if TYPE_CHECKING:
    from sardonyx.ir.tensor import Array
    from sardonyx.runtime.binding import IOBinding
    from sardonyx.runtime.ports import NodeArg
    from sardonyx.session.inference_session import InferenceSession

Shapes = Mapping[str, Sequence[int]]


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError("torch is needed to speak of its tensors and types; `pip install torch`", name="torch") from error
    return torch


def _element_type(ort_type: str) -> DType:
    """The element type of tensor(...)."""
    if ort_type.startswith("tensor(") and ort_type.endswith(")"):
        try:
            return dtypes.from_ort(ort_type.removeprefix("tensor(").removesuffix(")"))
        except ValueError:
            pass
    raise ValueError(f"{ort_type} not found in map: expected the type of a tensor, as in tensor(float)")


def _numpy_type(dtype: DType) -> type[Any]:
    if dtype is dtypes.STRING:
        raise ValueError("tensor(string) not found in map: strings have no NumPy type of a fixed width")
    return bool if dtype is dtypes.BOOL else dtype.numpy.type


def _torch_type(dtype: DType) -> Any:
    found = getattr(_torch(), dtype.numpy.name, None) if dtype is not dtypes.STRING else None
    if found is None:
        raise ValueError(f"tensor({dtype.ort}) not found in map: torch has no such type")
    return found


def _type_of(args: Iterable[NodeArg], kind: str, name: str) -> str:
    """ONNX Runtime's name for the type of an input or output."""
    types = {arg.name: arg.type for arg in args}
    if name not in types:
        raise ValueError(f"{kind} name {name} not found; the model has {', '.join(types)}")
    return types[name]


def _io_types(session: InferenceSession) -> dict[str, str]:
    return {arg.name: arg.type for arg in (*session.get_inputs(), *session.get_outputs())}


class TypeHelper:
    """Names of element types: tensor(float), TensorProto.FLOAT, numpy.float32, torch.float32."""

    @staticmethod
    def get_input_type(ort_session: InferenceSession, name: str) -> str:
        """The type of an input, as in tensor(float)."""
        return _type_of(ort_session.get_inputs(), "input", name)

    @staticmethod
    def get_output_type(ort_session: InferenceSession, name: str) -> str:
        """The type of an output, as in tensor(float)."""
        return _type_of(ort_session.get_outputs(), "output", name)

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> type[Any]:
        """tensor(float) to numpy.float32; tensor(bool) to bool."""
        return _numpy_type(_element_type(ort_type))

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> Any:
        """tensor(float) to torch.float32."""
        return _torch_type(_element_type(ort_type))

    @staticmethod
    def ort_type_to_onnx_type(ort_type: str) -> int:
        """tensor(float) to 1, which is TensorProto.FLOAT."""
        return _element_type(ort_type).onnx

    @staticmethod
    def numpy_type_to_torch_type(numpy_type: Any) -> Any:
        """numpy.float32 to torch.float32."""
        try:
            return _torch_type(dtypes.from_numpy(numpy_type))
        except (TypeError, ValueError):
            raise ValueError(f"{numpy_type} not found in map: torch has no such type") from None

    @staticmethod
    def torch_type_to_numpy_type(torch_type: Any) -> type[Any]:
        """torch.float32 to numpy.float32; torch.bool to bool."""
        torch = _torch()
        for dtype in dtypes.ALL:
            if dtype is not dtypes.STRING and getattr(torch, dtype.numpy.name, None) is torch_type:
                return _numpy_type(dtype)
        raise ValueError(f"{torch_type} not found in map: NumPy has no such type")

    @staticmethod
    def get_io_onnx_type_map(ort_session: InferenceSession) -> dict[str, int]:
        """The number of the element type of each input and output."""
        return {name: TypeHelper.ort_type_to_onnx_type(type) for name, type in _io_types(ort_session).items()}

    @staticmethod
    def get_io_numpy_type_map(ort_session: InferenceSession) -> dict[str, type[Any]]:
        """The NumPy type of each input and output."""
        return {name: TypeHelper.ort_type_to_numpy_type(type) for name, type in _io_types(ort_session).items()}

    @staticmethod
    def get_io_torch_type_map(ort_session: InferenceSession) -> dict[str, Any]:
        """The torch type of each input and output."""
        return {name: TypeHelper.ort_type_to_torch_type(type) for name, type in _io_types(ort_session).items()}


class IOBindingHelper:
    """Bindings of a decoder in the style of GPT-2: input_ids, position_ids, attention_mask, past_0 ... as torch tensors."""

    @staticmethod
    def get_output_buffers(ort_session: InferenceSession, output_shapes: Shapes, device: Any) -> dict[str, Any]:
        """For each output a flat tensor with room for its shape."""
        torch = _torch()
        types = {name: TypeHelper.get_output_type(ort_session, name) for name in output_shapes}
        return {
            name: torch.empty(math.prod(shape), dtype=TypeHelper.ort_type_to_torch_type(types[name]), device=device)
            for name, shape in output_shapes.items()
        }

    @staticmethod
    def prepare_io_binding(
        ort_session: InferenceSession,
        input_ids: Any,
        position_ids: Any,
        attention_mask: Any,
        past: Sequence[Any] | None,
        output_buffers: Mapping[str, Any],
        output_shapes: Shapes,
    ) -> IOBinding:
        """A binding that reads the tensors and writes the buffers; whoever owns them keeps them until the runs are over."""
        given = {"input_ids": input_ids, "position_ids": position_ids, "attention_mask": attention_mask}
        given.update((f"past_{layer}", tensor) for layer, tensor in enumerate(past or ()))
        types = TypeHelper.get_io_onnx_type_map(ort_session)
        binding = ort_session.io_binding()
        for name, tensor in given.items():
            if tensor is None:
                continue
            if not tensor.is_contiguous():
                raise ValueError(f"{name}: the tensor's memory is not contiguous; bind tensor.contiguous()")
            # An empty tensor (a past of length 0) may lie at address 0; nothing is read from the other address.
            address = tensor.data_ptr() or input_ids.data_ptr()
            binding.bind_input(name, tensor.device.type, 0, types[name], list(tensor.size()), address)
        for arg in ort_session.get_outputs():
            buffer = output_buffers[arg.name]
            binding.bind_output(arg.name, buffer.device.type, 0, types[arg.name], output_shapes[arg.name], buffer.data_ptr())
        return binding

    @staticmethod
    def get_outputs_from_io_binding_buffer(
        ort_session: InferenceSession,
        output_buffers: Mapping[str, Any],
        output_shapes: Shapes,
        return_numpy: bool = True,
    ) -> list[Array] | list[Any]:
        """Copies of the results, as arrays or as tensors."""
        results = []
        for arg in ort_session.get_outputs():
            shape = tuple(output_shapes[arg.name])
            copy = output_buffers[arg.name][: math.prod(shape)].reshape(shape).clone().detach()
            results.append(np.asarray(copy.cpu().numpy()) if return_numpy else copy)
        return results


class CudaSession:
    """A session whose inputs and outputs are torch tensors, bound by address; of this device, though the name is of another."""

    def __init__(self, ort_session: InferenceSession, device: Any, enable_cuda_graph: bool = False) -> None:
        if enable_cuda_graph:
            raise ValueError("enable_cuda_graph: there are no CUDA graphs here; leave it False")
        self.ort_session = ort_session
        self.device = device
        self.enable_cuda_graph = enable_cuda_graph
        self.input_names = [arg.name for arg in ort_session.get_inputs()]
        self.output_names = [arg.name for arg in ort_session.get_outputs()]
        self.io_name_to_onnx_type = TypeHelper.get_io_onnx_type_map(ort_session)
        self.io_name_to_torch_type = TypeHelper.get_io_torch_type_map(ort_session)
        self.io_binding = ort_session.io_binding()
        self.input_tensors: OrderedDict[str, Any] = OrderedDict()
        self.output_tensors: OrderedDict[str, Any] = OrderedDict()
        self.buffer_sharing: dict[str, str] = {}  # an input to the output in its memory, and back

    def set_buffer_sharing(self, input_name: str, output_name: str) -> None:
        """Have an output written into the memory of an input."""
        for kind, name, names in (("input", input_name, self.input_names), ("output", output_name, self.output_names)):
            if name not in names:
                raise ValueError(f"{kind} name {name} not found; the model has {', '.join(names)}")
        self.buffer_sharing[input_name], self.buffer_sharing[output_name] = output_name, input_name

    def bind_input_and_buffer_sharing(self, name: str, tensor: Any) -> None:
        """Bind a tensor to an input, and to the output that shares its memory."""
        self._bind(self.io_binding.bind_input, name, tensor)
        self.input_tensors[name] = tensor  # the binding has the address alone
        output = self.buffer_sharing.get(name)
        if output is not None:
            self._bind(self.io_binding.bind_output, output, tensor)
            self.output_tensors[output] = tensor

    def allocate_buffers(self, shape_dict: Shapes) -> None:
        """Make and bind a tensor for each output of a shape that has none of it yet."""
        for name, shape in shape_dict.items():
            known = self.output_tensors.get(name)
            is_there = known is not None and tuple(known.shape) == tuple(shape)
            if name in self.output_names and name not in self.buffer_sharing and not is_there:
                tensor = _torch().empty(tuple(shape), dtype=self.io_name_to_torch_type[name], device=self.device)
                self.output_tensors[name] = tensor
                self._bind(self.io_binding.bind_output, name, tensor)

    def infer(self, feed_dict: Mapping[str, Any], run_options: RunOptions | None = None, synchronize: bool = True) -> Any:
        """The output tensors, for tensors by input name; names that the model does not have are left alone."""
        torch = _torch()
        for name, tensor in feed_dict.items():
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(f"{name}: expected a tensor of torch, found {type(tensor).__name__}")
            if not tensor.is_contiguous():
                raise ValueError(f"{name}: the tensor's memory is not contiguous; feed tensor.contiguous()")
            if name in self.input_names:
                self.bind_input_and_buffer_sharing(name, tensor)
        if synchronize:
            self.io_binding.synchronize_inputs()
        self.ort_session.run_with_iobinding(self.io_binding, run_options)
        if synchronize:
            self.io_binding.synchronize_outputs()
        return self.output_tensors

    def _bind(self, bind: Any, name: str, tensor: Any) -> None:
        shape = list(tensor.shape) or [1]
        bind(name, tensor.device.type, tensor.device.index or 0, self.io_name_to_onnx_type[name], shape, tensor.data_ptr())

    @staticmethod
    def get_cuda_provider_options(device_id: int, enable_cuda_graph: bool, stream: int = 0) -> dict[str, Any]:
        """Options of CUDAExecutionProvider, for programs that choose it where it is there."""
        options = {"device_id": device_id, "arena_extend_strategy": "kSameAsRequested", "enable_cuda_graph": enable_cuda_graph}
        return options if stream == 0 else {**options, "user_compute_stream": str(stream)}


class GpuBinding(CudaSession):
    """A session with tensors for outputs of some shapes."""

    def __init__(
        self,
        ort_session: InferenceSession,
        device: Any,
        shape_dict: Shapes,
        enable_gpu_graph: bool = False,
        gpu_graph_id: int = -1,
        stream: int = 0,
        buffer_sharing: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(ort_session, device, enable_gpu_graph)
        for input_name, output_name in (buffer_sharing or {}).items():
            self.set_buffer_sharing(input_name, output_name)
        self.allocate_buffers(shape_dict)
        self.gpu_graph_id, self.stream = gpu_graph_id, stream
        self.shape_dict: Shapes | None = None  # what a graph was captured for
        self.last_run_gpu_graph_id: int | None = None

    def get_run_options(self, disable_cuda_graph_in_run: bool = False) -> RunOptions:
        """Options that name the graph of a run."""
        options = RunOptions()
        self.last_run_gpu_graph_id = -1 if disable_cuda_graph_in_run else self.gpu_graph_id
        options.add_run_config_entry("gpu_graph_id", str(self.last_run_gpu_graph_id))
        return options

    def infer(  # type: ignore[override]  # as in ONNX Runtime
        self, feed_dict: Mapping[str, Any], disable_cuda_graph_in_run: bool = False
    ) -> Any:
        """The output tensors."""
        options = self.get_run_options(disable_cuda_graph_in_run)
        if self.stream:
            options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        return super().infer(feed_dict, options)


class GpuBindingManager:
    """One binding for all shapes: on this device there are no graphs that hold for one shape only."""

    def __init__(self, ort_session: InferenceSession, device: Any, stream: int = 0, max_cuda_graphs: int = 1) -> None:
        self.ort_session, self.device, self.stream, self.max_cuda_graphs = ort_session, device, stream, max_cuda_graphs
        self.graph_bindings: list[GpuBinding] = []
        self.no_graph_binding: GpuBinding | None = None

    def get_binding(
        self, shape_dict: Shapes, use_cuda_graph: bool = False, buffer_sharing: Mapping[str, str] | None = None
    ) -> GpuBinding:
        """The binding, with tensors for outputs of these shapes."""
        if use_cuda_graph:
            raise ValueError("use_cuda_graph: there are no CUDA graphs here; leave it False")
        if self.no_graph_binding is None:
            self.no_graph_binding = GpuBinding(
                self.ort_session, self.device, shape_dict, stream=self.stream, buffer_sharing=buffer_sharing
            )
        else:
            self.no_graph_binding.allocate_buffers(shape_dict)
        return self.no_graph_binding
