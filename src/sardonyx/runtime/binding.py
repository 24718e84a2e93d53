"""IOBinding: inputs and outputs fixed before a run, by array, OrtValue or address."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.runtime import dlpack
from sardonyx.runtime.devices import OrtDevice, require_cpu
from sardonyx.runtime.feeds import check_shape
from sardonyx.runtime.values import OrtValue, OrtValueVector, element_dtype

if TYPE_CHECKING:
    from sardonyx.runtime.executable import Executable

_REPEATED: Final = 4  # runs of the same binding after which they are made short
_NO_STRINGS = "Only binding non-string Tensors is currently supported"


class BoundSession(Protocol):
    """What a binding needs of its session."""

    def input_names(self) -> Sequence[str]:
        """Everything that may be fed."""
        ...


class BoundModel(Protocol):
    """What a binding needs of a model to run it in short."""

    def short_program(self, names: Sequence[str]) -> Executable | None: ...


class IOBinding:
    """Inputs and outputs of later `run_with_iobinding` calls; made by `session.io_binding()`."""

    def __init__(self, session: BoundSession) -> None:
        self._session = session
        self._inputs: dict[str, OrtValue] = {}
        self._targets: dict[str, OrtValue | None] = {}  # None: memory is made in the run
        self._results: list[OrtValue] = []
        self._repeats = 0  # runs since anything was bound
        self._again: tuple[Any, Callable[[], list[Any] | None]] | None = None  # a program, and another run of it

    @property
    def _iobinding(self) -> SessionIOBinding:
        """What ONNX Runtime's compiled module has below this class."""
        return SessionIOBinding.of(self)

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Read an input from this array at every run; its memory is shared, if it is contiguous."""
        if not isinstance(arr_on_cpu, np.ndarray):
            raise RuntimeError(f"Unable to create OrtValue from the given python object of type {type(arr_on_cpu).__name__}")
        self._bind_input(name, OrtValue.ortvalue_from_numpy(self._numeric(arr_on_cpu)))

    def bind_input(
        self,
        name: str,
        device_type: str | OrtDevice | Array,
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Read an input from memory at an address; whoever owns it must keep it until the runs are over."""
        if isinstance(device_type, np.ndarray):
            self.bind_cpu_input(name, device_type)
            return
        if element_type is None or shape is None or buffer_ptr is None:
            raise ValueError("`element_type`, `shape` and `buffer_ptr` are to be provided")
        self._bind_input(name, _at(device_type, device_id, element_type, shape, buffer_ptr))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Read an input from this value at every run."""
        self._bind_input(name, _ort_value(ortvalue))

    def _bind_input(self, name: str, value: OrtValue) -> None:
        if name not in self._session.input_names():
            raise errors.Fail(
                f"Failed to find NodeArg with name: {name} in the def list",
                hint=f"inputs: {', '.join(self._session.input_names())}",
            )
        self._inputs[name] = value
        self._change()

    def _change(self) -> None:
        """The next run is a first one."""
        self._again, self._repeats = None, 0

    @staticmethod
    def _numeric(array: Array) -> Array:
        if element_dtype(array.dtype) is dtypes.STRING:
            raise RuntimeError(_NO_STRINGS)
        return array

    def bind_output(
        self,
        name: str,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: written to memory at an address, or, without one, to memory made in the run."""
        if buffer_ptr is None:
            require_cpu(device_type, device_id)
            self._targets[name] = None
            self._change()
            return
        if element_type is None or shape is None:
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        self._targets[name] = _at(device_type, device_id, element_type, shape, buffer_ptr)
        self._change()

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write an output to this value's memory at every run."""
        self._targets[name] = _ort_value(ortvalue)
        self._change()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: copies to the CPU are done when they return."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for."""

    def get_outputs(self) -> list[OrtValue]:
        """The results of the last run, in the order the outputs were bound."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """The results of the last run."""
        return OrtValueVector(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The results of the last run as arrays (lists, dictionaries); copies of what is bound."""
        return [value.value.copy() if value.is_tensor() else value.value for value in self._results]

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()
        self._change()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs and the last results."""
        self._targets.clear()
        self._results.clear()
        self._change()

    @property
    def feeds(self) -> dict[str, OrtValue]:
        """The inputs by name."""
        return dict(self._inputs)

    @property
    def fetches(self) -> list[str]:
        """The names of the outputs, in the order they were bound."""
        return list(self._targets)

    def direct_targets(self) -> tuple[list[Array | None], dict[int, str]]:
        """For each output the bound memory, if it can be written while inputs are still being read; None if not.

        Memory that is exactly that of one input is given, too, with the name of the input by the position of the output: programs
        may be able to work there in place.
        """
        given = [(name, value.value) for name, value in self._inputs.items() if value.is_tensor()]
        reading = _Spans((_span(array), name) for name, array in given if array.size and array.dtype != object)
        written: list[tuple[int, int]] = []
        targets: list[Array | None] = []
        shared: dict[int, str] = {}
        for position, target in enumerate(self._targets.values()):
            memory = target.value if target is not None and target.is_tensor() else None
            if memory is None or not (memory.flags.carray and memory.dtype != object):  # in C order, aligned, writable
                targets.append(None)
                continue
            span = _span(memory)
            at = bisect_left(written, span)
            is_free = (at == 0 or written[at - 1][1] <= span[0]) and (at == len(written) or span[1] <= written[at][0])
            read = reading.touching(span)
            if is_free and read:  # exactly one input lies there, and nothing else
                shared[position] = read
            targets.append(memory if is_free and read != "" else None)
            if is_free:
                written.insert(at, span)
        return targets, shared

    def accept(self, results: Sequence[OrtValue]) -> None:
        """Put the results of a run where the outputs were bound to."""
        accepted = []
        for (name, target), result in zip(self._targets.items(), results):
            if target is not None and target.value is not result.value:  # else it was written there
                _write(name, target, result)
            accepted.append(result if target is None else target)
        self._results = accepted

    def repeat(self, model: BoundModel, targets: Sequence[Array | None]) -> None:
        """A run of a model has ended: after a few with the same arrays, others are short, if they can be.

        `targets` is what `direct_targets` said: memory that no other array of the binding has.
        """
        self._repeats += 1
        program = model.short_program(list(self._targets)) if self._repeats == _REPEATED else None
        feeds = {name: value.value for name, value in self._inputs.items()}
        if program is None:
            return
        memory = [target for target in targets if target is not None]
        if len(memory) == len(self._targets):
            again = program.bound_call(feeds, memory)
            self._again = None if again is None else (model, again)
        elif not any(target is not None for target in self._targets.values()):
            self._again = model, partial(program.run, feeds)

    def run_again(self, model: BoundModel) -> bool:
        """Run what is bound as it was run before; False if that cannot be."""
        if self._again is None or self._again[0] is not model:
            return False
        results = self._again[1]()
        if results is None:
            self._change()
            return False
        if results:  # else they were written where the outputs are bound to
            self._results = [OrtValue.of(result) for result in results]
        return True


def _span(array: Array) -> tuple[int, int]:
    """The first address of an array's memory, and the one behind it."""
    start = int(array.ctypes.data)
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides)]
    return start + sum(min(each, 0) for each in reach), start + sum(max(each, 0) for each in reach) + array.itemsize


class _Spans:
    """Pieces of memory by address; those that overlap are one."""

    def __init__(self, spans: Iterable[tuple[tuple[int, int], str]]) -> None:
        self._starts: list[int] = []
        self._found: list[tuple[int, str]] = []  # its end, and the name of the only piece in it
        for (start, end), name in sorted(spans):
            if self._found and start < self._found[-1][0]:
                self._found[-1] = (max(end, self._found[-1][0]), "")
            else:
                self._starts.append(start)
                self._found.append((end, name))

    def touching(self, span: tuple[int, int]) -> str | None:
        """The name of the piece that lies exactly here; "" if it is another or there are several, None if there is none."""
        at = bisect_left(self._starts, span[1]) - 1
        if at < 0 or self._found[at][0] <= span[0] or span[0] == span[1]:
            return None
        end, name = self._found[at]
        return name if (self._starts[at], end) == span else ""


def _at(device: str | OrtDevice, device_id: int, element_type: Any, shape: Sequence[int], address: int) -> OrtValue:
    require_cpu(device, device_id)
    dtype = element_dtype(element_type)
    if dtype is dtypes.STRING:
        raise RuntimeError(_NO_STRINGS)
    if dtype.is_packed:
        raise RuntimeError(f"memory of tensor({dtype.ort}) cannot be bound by address: elements share bytes")
    sizes = [operator.index(size) for size in shape]
    try:
        return OrtValue.of(dlpack.array_at(int(address), dtype, sizes))
    except (ValueError, OverflowError) as error:
        raise errors.RuntimeException(f"no memory can hold a tensor of shape {sizes} at {address}: {error}") from None


def _ort_value(value: Any) -> OrtValue:
    if not isinstance(value, OrtValue):
        raise TypeError(f"expected an OrtValue, got {type(value).__name__}")
    return value


def _write(name: str, target: OrtValue, result: OrtValue) -> None:
    if target.data_type() != result.data_type():
        raise errors.InvalidArgument(
            f"Unexpected output data type. Actual: ({target.data_type()}) , expected: ({result.data_type()}) for output: {name}"
        )
    if not target.is_tensor():
        raise errors.InvalidArgument(
            f"output {name!r}: only tensors can be written to bound memory, this is {result.data_type()}"
        )
    memory, array = target.numpy(), result.numpy()
    check_shape(name, memory.shape, TensorType(dtypes.from_numpy(array.dtype), array.shape), "output")
    if not memory.flags.writeable:
        raise errors.InvalidArgument(f"output {name!r}: the bound memory is read-only")
    memory[...] = array


class SessionIOBinding:
    """The binding that ONNX Runtime's compiled module has below its IOBinding, with the arguments in its order."""

    def __init__(self, session: BoundSession) -> None:
        self.binding = IOBinding(session)

    @classmethod
    def of(cls, binding: IOBinding) -> SessionIOBinding:
        """The one below a binding."""
        made = cls.__new__(cls)
        made.binding = binding
        return made

    def bind_input(self, name: str, *where: Any) -> None:
        """An array, or where one lies: device, element type, shape, address."""
        if len(where) == 1:
            self.binding.bind_cpu_input(name, where[0])
        else:
            device, element_type, shape, address = where
            self.binding.bind_input(name, device, 0, element_type, shape, address)

    def bind_output(self, name: str, device: OrtDevice, *where: Any) -> None:
        """Ask for an output: in memory of the run's own, or at element type, shape, address."""
        if not where:
            self.binding.bind_output(name, device)
        else:
            element_type, shape, address = where
            self.binding.bind_output(name, device, 0, element_type, shape, address)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Read an input from this value at every run."""
        self.binding.bind_ortvalue_input(name, ortvalue)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write an output to this value's memory at every run."""
        self.binding.bind_ortvalue_output(name, ortvalue)

    def get_outputs(self) -> OrtValueVector:
        """The results of the last run, in the order the outputs were bound."""
        return self.binding.get_outputs_as_ortvaluevector()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The results of the last run as arrays."""
        return self.binding.copy_outputs_to_cpu()

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self.binding.clear_binding_inputs()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs and the last results."""
        self.binding.clear_binding_outputs()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for."""
