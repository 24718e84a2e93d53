"""Shapes of all values of a model, as expressions of its named dimensions: `onnxruntime.tools.symbolic_shape_infer`.

python -m onnxruntime.tools.symbolic_shape_infer --input model.onnx --output shaped.onnx
"""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.formats.onnx import load
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

logger = logging.getLogger(__name__)
_NAMELESS: Final = re.compile(r"\?\w*")  # a size that nobody named
_EXTERNAL: Final = 1  # TensorProto.DataLocation


class SymbolicShapeInference:
    """Infers the types and shapes of all values; sizes that follow from no input are called `unk__0` and so on."""

    def __init__(
        self,
        int_max: int = 2**31 - 1,
        auto_merge: bool = False,
        guess_output_rank: bool = False,
        verbose: int = 0,
        prefix: str = "",
    ) -> None:
        """`guess_output_rank` takes a model of which not all shapes can be told; the other arguments change nothing.

        A size is never limited by `int_max`, sizes that must be the same are merged whatever `auto_merge` says.
        """
        self.guess_output_rank_ = guess_output_rank
        self.verbose_ = verbose
        self.prefix_ = prefix
        self._unknown: dict[str, str] = {}
        self._types: Mapping[Value, Type | None] = {}

    @staticmethod
    def infer_shapes(
        in_mp: Any, int_max: int = 2**31 - 1, auto_merge: bool = False, guess_output_rank: bool = False, verbose: int = 0
    ) -> Any:
        """A copy of a model in which every value has a type and a shape; an Exception if some cannot be told."""
        return SymbolicShapeInference(int_max, auto_merge, guess_output_rank, verbose).run(in_mp)

    def run(self, model: Any) -> Any:
        """The same for one model."""
        outside = [each.name for each in _initializers(model.graph) if each.data_location == _EXTERNAL]
        read = load(model.SerializeToString(), replaced=outside)
        report = infer_shapes(read)
        self._types = report.types
        for problem in report.problems:
            logger.log(logging.INFO if self.verbose_ else logging.DEBUG, "%s", problem)
        result = type(model)()
        result.CopyFrom(model)
        missing = self._describe(result.graph, read.graph)
        if missing and not self.guess_output_rank_:
            logger.warning("shapes that cannot be told: %s", ", ".join(missing[:10]))
            raise Exception("Incomplete symbolic shape inference")
        return result

    def _describe(self, proto: Any, graph: Graph) -> list[str]:
        """Write the types of a graph's values into its message; the names of those that have none."""
        values = {value.name: value for node in graph.nodes for value in node.outputs if value.name}
        known = {info.name: info for info in (*proto.value_info, *proto.output)}
        inputs = {info.name for info in proto.input}
        missing = []
        for name, value in values.items():
            info = known.get(name)
            type_ = self._types.get(value, value.type)
            if not _is_shaped(type_):
                missing.append(name)
            if type_ is None or name in inputs:
                continue
            if info is None:
                info = proto.value_info.add()
                info.name = name
            self._type(info.type, type_)
        nodes: Mapping[str, Node] = {name: value.producer for name, value in values.items() if value.producer is not None}
        for node in proto.node:
            found = next((nodes[name] for name in node.output if name in nodes), None)
            for attribute in node.attribute if found is not None else ():
                missing += self._attribute(attribute, found)
        return missing

    def _attribute(self, attribute: Any, node: Node | None) -> list[str]:
        held = None if node is None else node.attr(attribute.name)
        if isinstance(held, Graph):
            return self._describe(attribute.g, held)
        if isinstance(held, tuple) and held and isinstance(held[0], Graph):
            return [name for proto, graph in zip(attribute.graphs, held) for name in self._describe(proto, graph)]
        return []

    def _type(self, proto: Any, type_: Type) -> None:
        if isinstance(type_, SequenceType):
            self._type(proto.sequence_type.elem_type, type_.element)
        elif isinstance(type_, OptionalType):
            self._type(proto.optional_type.elem_type, type_.element)
        elif isinstance(type_, MapType):
            proto.map_type.key_type = type_.key.onnx
            self._type(proto.map_type.value_type, type_.value)
        else:
            part = proto.sparse_tensor_type if isinstance(type_, SparseTensorType) else proto.tensor_type
            part.elem_type = type_.dtype.onnx
            if type_.shape is not None:
                self._shape(part.shape, type_.shape)

    def _shape(self, proto: Any, shape: Sequence[Dim]) -> None:
        del proto.dim[:]
        for dim in shape:
            entry = proto.dim.add()
            if isinstance(dim, int):
                entry.dim_value = dim
            else:
                entry.dim_param = self._named(str(dim))

    def _named(self, text: str) -> str:
        """An expression in which what nobody named has a name."""
        return _NAMELESS.sub(
            lambda found: self._unknown.setdefault(found[0], f"unk_{self.prefix_}_{len(self._unknown)}"),
            text,
        )


def _initializers(graph: Any) -> list[Any]:
    found = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                found += _initializers(inner)
    return found


def _is_shaped(type_: Type | None) -> bool:
    return type_ is not None and not (isinstance(type_, TensorType) and type_.shape is None)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Infer the shapes of all values of a model.")
    parser.add_argument("--input", required=True, help="the model")
    parser.add_argument("--output", help="where the model with shapes is written")
    parser.add_argument("--auto_merge", action="store_true", help="accepted: sizes that must be the same always are merged")
    parser.add_argument("--int_max", type=int, default=2**31 - 1, help="accepted: sizes are not limited")
    parser.add_argument("--guess_output_rank", action="store_true", help="take a model of which not all shapes can be told")
    parser.add_argument("--verbose", type=int, default=0, help="0: warnings, 1: remarks, 3: everything")
    parser.add_argument("--save_as_external_data", action="store_true", help="write the weights to a file of their own")
    parser.add_argument("--all_tensors_to_one_file", action="store_true", help="all weights in one file")
    parser.add_argument("--external_data_location", default="./", help="the name of that file")
    parser.add_argument("--external_data_size_threshold", type=int, default=1024, help="bytes from which on weights go there")
    return parser.parse_args()


def main() -> None:
    """Run the command line."""
    import onnx

    args = parse_arguments()
    shaped = SymbolicShapeInference.infer_shapes(
        onnx.load(args.input), args.int_max, args.auto_merge, args.guess_output_rank, args.verbose
    )
    if args.output:
        if args.save_as_external_data:
            onnx.save_model(
                shaped,
                args.output,
                save_as_external_data=True,
                all_tensors_to_one_file=args.all_tensors_to_one_file,
                location=args.external_data_location,
                size_threshold=args.external_data_size_threshold,
                convert_attribute=False,
            )
        else:
            onnx.save(shaped, args.output)


if __name__ == "__main__":
    main()
