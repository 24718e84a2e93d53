"""OrtValue: a value of any ONNX type with ONNX Runtime's methods. Tensors share the memory of the array they were made of.

A value of dtype bfloat16, float8 or int4 is an array of the ml_dtypes type; ONNX Runtime has no NumPy form for these.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.dtypes import DType
from sardonyx.ir.tensor import Array, codes_to_elements
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.runtime import dlpack
from sardonyx.runtime.devices import OrtDevice, OrtMemoryInfo, require_cpu
from sardonyx.runtime.sparse import SparseTensor

_NO_STRINGS = "Creation of OrtValues is currently only supported from non-string numpy arrays"


def element_dtype(element_type: Any) -> DType:
    """The element type for a NumPy type, its name, or an ONNX number; RuntimeError if there is none."""
    try:
        if isinstance(element_type, int) and not isinstance(element_type, bool):
            return dtypes.from_onnx(element_type)
        return dtypes.from_numpy(np.dtype(element_type))
    except (TypeError, ValueError) as error:
        raise RuntimeError(f"{element_type!r} is not a valid NumPy or ONNX element type: {error}") from None


class OrtValue:
    """A tensor, sparse tensor, sequence, map or absent optional value. Made by the class methods."""

    __slots__ = ("__weakref__", "_type", "_value")

    def __init__(self, ortvalue: OrtValue, numpy_obj: Array | None = None, session: Any = None) -> None:
        if not isinstance(ortvalue, OrtValue):
            raise ValueError(
                f"`Provided ortvalue` needs to be an OrtValue, got {type(ortvalue).__name__}: use ortvalue_from_numpy"
            )
        self._value: Any = ortvalue._value
        self._type: Type | None = ortvalue._type

    @classmethod
    def of(cls, value: Any, type: Type | None = None) -> OrtValue:
        """Wrap what a program computes or takes: an array, SparseTensor, list, dict or None; `type` helps where it is empty."""
        made = cls.__new__(cls)
        made._value = value
        made._type = type
        return made

    def __repr__(self) -> str:
        return f"OrtValue({self.data_type()}" + (f", {self.shape()})" if self.is_tensor() or self.is_sparse_tensor() else ")")

    @property
    def value(self) -> Any:
        """What it holds: an array, SparseTensor, list, dict or None."""
        return self._value

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, /, device_type: str | OrtDevice = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor over an array's memory; an array that is not contiguous is copied."""
        if not isinstance(numpy_obj, np.ndarray):
            raise RuntimeError(f"{_NO_STRINGS}, got {type(numpy_obj).__name__}")
        require_cpu(device_type, device_id, vendor_id)
        if element_dtype(numpy_obj.dtype) is dtypes.STRING:
            raise RuntimeError(_NO_STRINGS)
        return cls.of(_native(numpy_obj))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """A tensor over an array's memory whose elements are taken for another type of the same width."""
        if not isinstance(data, np.ndarray):
            raise TypeError(f"expected a NumPy array, got {type(data).__name__}")
        dtype = element_dtype(operator.index(onnx_element_type))
        if dtype is dtypes.STRING or data.dtype.itemsize != dtype.numpy.itemsize:
            width = "of no fixed width" if dtype is dtypes.STRING else f"{dtype.numpy.itemsize} bytes wide"
            raise RuntimeError(f"items of the array are {data.dtype.itemsize} bytes wide, {dtype.ort} is {width}")
        contiguous = np.ascontiguousarray(data).reshape(data.shape)
        if dtype.is_packed:
            return cls.of(codes_to_elements(contiguous.view(np.uint8), dtype))
        return cls.of(contiguous.view(dtype.numpy))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """A tensor of zeros; `element_type` is a NumPy type or an ONNX number."""
        if memory_info is None:
            require_cpu(device_type, device_id, vendor_id)
        else:
            memory_info.require_cpu()
            if (device_type, device_id, vendor_id) != ("cpu", 0, -1):
                warnings.warn("device_type, device_id, and vendor_id are ignored when memory_info is provided.", stacklevel=2)
        dtype = element_dtype(element_type)
        if dtype is dtypes.STRING:
            raise RuntimeError(_NO_STRINGS)
        sizes = tuple(operator.index(size) for size in shape)
        if any(size < 0 for size in sizes):
            raise RuntimeError(f"Tensor shape {list(sizes)} has a negative size")
        try:
            return cls.of(np.zeros(sizes, dtype.numpy))
        except (ValueError, MemoryError) as error:
            raise errors.RuntimeException(
                f"a tensor of shape {list(sizes)} and type {dtype.name} cannot be had: {error}"
            ) from None

    ortvalue_from_shape_and_onnx_type = ortvalue_from_shape_and_type

    @classmethod
    def ortvalue_from_shape_and_type_for_memory_info(
        cls, shape: Sequence[int], element_type: Any, memory_info: OrtMemoryInfo
    ) -> OrtValue:
        """A tensor of zeros in the memory described."""
        return cls.ortvalue_from_shape_and_type(shape, element_type, memory_info=memory_info)

    ortvalue_from_shape_and_onnx_type_for_memory_info = ortvalue_from_shape_and_type_for_memory_info

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """A value that holds this sparse tensor."""
        if not isinstance(sparse_tensor, SparseTensor):
            raise TypeError(f"expected a SparseTensor, got {type(sparse_tensor).__name__}")
        return cls.of(sparse_tensor)

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor it holds."""
        if not isinstance(self._value, SparseTensor):
            raise RuntimeError(f"This OrtValue does not contain SparseTensor. It is {self.data_type()}")
        return self._value

    def _tensor(self, purpose: str = "are currently supported") -> Array:
        if not isinstance(self._value, np.ndarray):
            raise RuntimeError(f"Only OrtValues that are Tensors {purpose}; this is {self.data_type()}")
        return self._value

    def data_ptr(self) -> int:
        """Address of the first element."""
        array = self._tensor()
        if array.dtype == object:
            raise RuntimeError("Only binding non-string Tensors is currently supported")
        return array.ctypes.data

    def device_name(self) -> str:
        """Always cpu."""
        return "cpu"

    def shape(self) -> list[int]:
        """The shape, for sparse tensors that of the dense one."""
        if isinstance(self._value, SparseTensor):
            return self._value.dense_shape()
        if not isinstance(self._value, np.ndarray):
            raise RuntimeError(
                f"Only OrtValues that are Tensors/SparseTensors are currently supported; this is {self.data_type()}"
            )
        return list(self._value.shape)

    def data_type(self) -> str:
        """The type in ONNX Runtime's words: tensor(float), seq(tensor(int64)) ..."""
        found = type_of(self._value)
        if found is None or (isinstance(self._value, list) and not self._value):
            found = self._type if self._type is not None else found
        if isinstance(found, OptionalType) and self._value is not None:
            found = found.element
        return found.ort if found is not None else "none"

    def element_type(self) -> int:
        """The ONNX number of the elements' type."""
        dtype = _element(type_of(self._value)) or _element(self._type)
        if dtype is None:
            raise RuntimeError(f"{self.data_type()} has no element type")
        return dtype.onnx

    def tensor_size_in_bytes(self) -> int:
        """Size of the data as ONNX Runtime would keep it: types narrower than a byte packed."""
        array = self._tensor()
        if array.dtype == object:
            raise RuntimeError("Only OrtValues that are non-string Tensors are currently supported")
        return dtypes.from_numpy(array.dtype).nbytes(array.size)

    def has_value(self) -> bool:
        """False for an optional value that is absent."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it holds a dense tensor."""
        return isinstance(self._value, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Whether it holds a sparse tensor."""
        return isinstance(self._value, SparseTensor)

    def is_tensor_sequence(self) -> bool:
        """Whether it holds a sequence of tensors."""
        return isinstance(self._value, list) and isinstance(type_of(self._value), SequenceType)

    def numpy(self) -> Array:
        """The tensor as an array over the same memory."""
        return self._tensor("are convertible to Numpy objects")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        if copy:
            return np.array(array, dtype=dtype, copy=True)
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"cannot give {array.dtype} as {np.dtype(dtype)} without a copy")
            return array.astype(dtype)
        return array

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over the tensor's memory."""
        if dl_device is not None and tuple(map(int, dl_device)) != (1, 0):
            raise BufferError(f"a tensor on the CPU cannot be exported to DLPack device {dl_device}")
        array = self._tensor("can be exported through DLPack")
        return dlpack.to_dlpack(array.copy() if copy else array, max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU, in DLPack's numbers."""
        return (1, 0)

    def to_dlpack(self) -> Any:
        """A DLPack capsule over the tensor's memory."""
        return self.__dlpack__()

    @classmethod
    def from_dlpack(cls, data: Any, /, is_bool_tensor: bool = False) -> OrtValue:
        """A tensor over the memory of a DLPack capsule, or of an object that exports one (a torch tensor, an array)."""
        array = data.numpy() if isinstance(data, OrtValue) else dlpack.writable(dlpack.from_dlpack(data))
        if is_bool_tensor and array.dtype == np.uint8:
            array = array.view(np.bool_)
        if not array.flags.c_contiguous:
            raise RuntimeError(f"only contiguous tensors can be shared; this one has strides {array.strides} for {array.shape}")
        return cls.of(array)

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Copy data into this tensor's memory; as many bytes as it has."""
        if isinstance(data, OrtValue):
            source = data._tensor()
        elif isinstance(data, np.ndarray):
            source = data
        else:
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        target = self._tensor()
        if dtypes.STRING in (dtypes.from_numpy(source.dtype), dtypes.from_numpy(target.dtype)):
            raise RuntimeError("Inplace update of OrtValues is currently only supported from non-string numpy arrays")
        if source.size != target.size:
            raise RuntimeError(
                "The input size of numpy arrays does not match the size of the OrtValue: "
                f"{source.size} and {target.size} elements"
            )
        if source.dtype != target.dtype:
            raise RuntimeError(f"the array is {source.dtype}, the OrtValue {target.dtype}")
        if not target.flags.writeable:
            raise RuntimeError("the memory of this OrtValue is read-only")
        target[...] = source.reshape(target.shape)


def _native(array: Array) -> Array:
    """The array in C order and the machine's byte order; itself if it is that already."""
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def type_of(value: Any) -> Type | None:
    """The ONNX type of a value as far as the value alone tells; ranks stay open."""
    if isinstance(value, np.ndarray):
        return TensorType(dtypes.from_numpy(value.dtype))
    if isinstance(value, SparseTensor):
        return SparseTensorType(dtypes.from_numpy(value.values().dtype))
    if isinstance(value, list):
        element = type_of(value[0]) if value else TensorType(dtypes.FLOAT32)
        return None if element is None else SequenceType(element)
    if isinstance(value, dict):
        key, item = next(iter(value.items()), ("", 0.0))
        return MapType(dtypes.STRING if isinstance(key, str) else dtypes.INT64, TensorType(_scalar(item), ()))
    return None


def _scalar(item: Any) -> DType:
    found = np.asarray(item).dtype
    return dtypes.FLOAT32 if found == np.float64 and not isinstance(item, np.float64) else dtypes.from_numpy(found)


def _element(type_: Type | None) -> DType | None:
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    if isinstance(type_, MapType):
        type_ = type_.value
    return type_.dtype if isinstance(type_, (TensorType, SparseTensorType)) else None


class OrtValueVector:
    """A growing list of values, as `run_with_ortvaluevector` takes and fills it."""

    def __init__(self, values: Iterable[OrtValue] = ()) -> None:
        self._values = list(values)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> OrtValue:
        return self._values[index]

    def __setitem__(self, index: int, value: OrtValue) -> None:
        self._values[index] = value

    def __iter__(self) -> Iterator[OrtValue]:
        return iter(self._values)

    def assign(self, values: Iterable[OrtValue]) -> None:
        """Hold these values and no others."""
        self._values[:] = values

    def push_back(self, value: Any, is_bool_tensor: bool = False) -> None:
        """Add an OrtValue, or whatever has a DLPack form."""
        self._values.append(value if isinstance(value, OrtValue) else OrtValue.from_dlpack(value, is_bool_tensor))

    def push_back_batch(
        self,
        tensors: Sequence[Any],
        data_ptrs: Sequence[int],
        element_types: Sequence[Any],
        shapes: Sequence[Sequence[int]],
        devices: Sequence[OrtDevice],
    ) -> None:
        """Add tensors by address; `tensors` own the memory and are kept alive."""
        for owner, address, element, shape, device in zip(tensors, data_ptrs, element_types, shapes, devices):
            require_cpu(device)
            self._values.append(OrtValue.of(dlpack.array_at(address, element_dtype(element), shape, owner)))

    def reserve(self, count: int) -> None:
        """Accepted for compatibility: a list grows by itself."""
        operator.index(count)

    def shrink_to_fit(self) -> None:
        """Accepted for compatibility."""

    def element_type_at(self, idx: int) -> int:
        """The ONNX number of a tensor's element type."""
        return self._values[idx].element_type()

    def bool_tensor_indices(self) -> list[int]:
        """Positions of the tensors of booleans."""
        return [index for index, value in enumerate(self._values) if value.data_type() == "tensor(bool)"]

    def dlpack_at(self, index: int) -> Any:
        """A DLPack capsule over one tensor's memory."""
        return self._values[index].to_dlpack()

    def to_dlpacks(self, to_tensor: Callable[[Any], Any] | None = None) -> list[Any]:
        """DLPack capsules of all tensors, each passed through `to_tensor` if that is given."""
        capsules = (value.to_dlpack() for value in self._values)
        return [capsule if to_tensor is None else to_tensor(capsule) for capsule in capsules]


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy tensors into the memory of others of the same type and size."""
    if len(src) != len(dst):
        raise RuntimeError(f"expected as many destinations as sources, got {len(dst)} and {len(src)}")
    for source, target in zip(src, dst):
        target.update_inplace(source)
