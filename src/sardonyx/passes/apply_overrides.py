"""Put in what the user fixed when opening the model: data of initializers, sizes of free dimensions.

    w: f32[3,2] (initializer) + {"w": array}     =>   w with the array's data
    w: f32[3,2] (initializer), a parameter       =>   an input w: f32[3,2]; its data stay with the caller
    x: f32[N,3] + {"N": 8}                       =>   x: f32[8,3], everywhere N stands

Runs first, so that every later stage sees the final model. Refuses data whose type or shape is not the initializer's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.ir import tensor
from sardonyx.ir.dims import Dim, substitute
from sardonyx.ir.graph import Graph, Model, SparseConstant, Value, walk
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

_PRODUCTS: Final = (("", "MatMul"), ("", "Gemm"), ("com.microsoft", "FusedMatMul"))
_FREE_INITIALIZERS: Final = 4  # the IR version since which an initializer need not be an input


def settle_initializers(model: Model) -> None:
    """Before IR version 4 every initializer had to be listed as an input, too: that made none of them replaceable."""
    if model.ir_version < _FREE_INITIALIZERS:
        model.graph.inputs[:] = [value for value in model.graph.inputs if value.constant is None]
        model.ir_version = _FREE_INITIALIZERS  # what the model is now


def free_sequence_elements(graph: Graph) -> None:
    """Forget what shape a model states for the elements of sequences it takes: as in ONNX Runtime, feeds need not keep to it."""
    for value in graph.inputs:
        if value.type is not None:
            value.type = _with_free_elements(value.type)


def _with_free_elements(type_: Type) -> Type:
    if isinstance(type_, OptionalType):
        return OptionalType(_with_free_elements(type_.element))
    if isinstance(type_, SequenceType) and isinstance(type_.element, TensorType):
        return SequenceType(TensorType(type_.element.dtype))
    return type_


def override_initializers(graph: Graph, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Give initializers other data; a name that is no initializer is an error."""
    for name, array in arrays.items():
        value = graph.initializers.get(name)
        if value is None:
            raise errors.InvalidArgument(f"initializer override {name!r}: the model has no initializer of that name")
        known = value.constant
        found = (dtypes.from_numpy(array.dtype), tuple(array.shape))
        if known is not None:
            wanted = (known.values.dtype if isinstance(known, SparseConstant) else known.dtype, tuple(known.shape))
            if found != wanted:
                raise errors.InvalidArgument(
                    f"initializer override {name!r} is {found[0]}{list(found[1])}, the model has {wanted[0]}{list(wanted[1])}"
                )
        value.constant = tensor.from_numpy(array, name, tensor.CONTENT)
        value.type = TensorType(*found)


def free_parameters(graph: Graph, names: Collection[str]) -> None:
    """Make initializers plain inputs: nothing that is compiled can depend on what they hold now."""
    unknown = sorted(set(names) - graph.initializers.keys())
    if unknown:
        raise errors.InvalidArgument(
            f"no initializer of the model is called {', '.join(map(repr, unknown))}, so it cannot be a parameter"
        )
    for name in [name for name in graph.initializers if name in names]:
        value = graph.initializers.pop(name)
        held = value.constant
        if not isinstance(held, tensor.Tensor):
            raise errors.NotImplemented(f"the sparse initializer {name!r} cannot be a parameter: expected a dense one")
        value.type, value.constant = TensorType(held.dtype, held.shape), None
        if value not in graph.inputs:
            graph.inputs.append(value)


def leave_unpacked(graph: Graph) -> None:
    """Make the weights of matrix products inputs that stand for themselves: kernels read them as they lie in the model.

    Of those that something else reads, too, or that a body captures, packed copies are made as always.
    """
    own = set(graph.nodes)
    for value in graph.initializers.values():
        if value in graph.inputs or not isinstance(value.constant, tensor.Tensor) or not value.uses:
            continue
        if all((node.domain, node.op_type) in _PRODUCTS and index == 1 and node in own for node, index in value.uses):
            graph.inputs.append(value)


def override_dimensions(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Replace named dimensions by numbers in the types of all values."""
    if not sizes:
        return
    bindings: dict[str, Dim] = dict(sizes)
    for value in _values(graph):
        if value.type is not None:
            value.type = _bound(value.type, bindings)


def _values(graph: Graph) -> list[Value]:
    graphs = [graph]
    values: list[Value] = []
    for node in walk(graph):
        graphs.extend(node.subgraphs())
        values.extend(node.outputs)
    for each in graphs:
        values.extend(each.inputs)
    return values


def _bound(type_: Type, bindings: Mapping[str, Dim]) -> Type:
    if isinstance(type_, (TensorType, SparseTensorType)):
        if type_.shape is None:
            return type_
        return type(type_)(type_.dtype, tuple(substitute(dim, bindings) for dim in type_.shape))
    if isinstance(type_, MapType):
        return MapType(type_.key, _bound(type_.value, bindings))
    if isinstance(type_, SequenceType):
        return SequenceType(_bound(type_.element, bindings))
    return OptionalType(_bound(type_.element, bindings))
