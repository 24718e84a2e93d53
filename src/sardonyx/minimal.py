"""Sessions on models in the ORT format, without the operator table and without the reader of ONNX models.

    session = sardonyx.minimal.InferenceSession("model.ort")
    [y] = session.run(None, {"x": x})

The file says of every node which version its operator has, all its attributes, and the types of all values. So a kernel is found
by (operator, domain, version) and the types that the file's `KernelTypeStrResolver` points at, and only the modules of the
model's operators are imported. Kernels are the NumPy definitions: nothing is compiled or rewritten. A model that was opened by
a full session before has a compiled program in the cache: that is used, and needs none of this.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from sardonyx import errors
from sardonyx.formats import ort
from sardonyx.formats.ort.schema import FIRST_WITH_RESOLVER
from sardonyx.ir.attributes import attribute_value
from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.region import NodeName
from sardonyx.matching.definitions import DefinitionTable
from sardonyx.matching.kernels import KernelTable
from sardonyx.matching.type_strings import KernelTypeStrResolver
from sardonyx.options import SessionOptions
from sardonyx.passes.apply_overrides import (
    free_sequence_elements,
    override_dimensions,
    override_initializers,
    settle_initializers,
)
from sardonyx.program.calls import HostNode
from sardonyx.provider_names import CPU_PROVIDER
from sardonyx.runtime import saved
from sardonyx.runtime.ports import ModelDescription, ModelMetadata
from sardonyx.runtime.profile import Profiler
from sardonyx.runtime.reference_model import Evaluated, ReferenceModel
from sardonyx.session import inference_session
from sardonyx.session.opening import Opened, Opening, ProviderSettings

__all__ = ["InferenceSession", "MinimalSession"]


class _MinimalOpening(Opening):
    """Opens the file itself: what the file says is all that is known."""

    def _open_fully(
        self, options: SessionOptions, providers: ProviderSettings, entry: saved.CacheEntry | None, *, is_saved: bool
    ) -> Opened:
        _refuse_options(options, providers)
        model = ort.load(self.source, least_version=FIRST_WITH_RESOLVER)
        self.stop_if_cancelled()
        assert model.type_arguments is not None, "files since that version have them"
        settle_initializers(model)
        free_sequence_elements(model.graph)
        override_initializers(model.graph, options.initializers_for(model.graph.initializers))
        override_dimensions(model.graph, options.dimension_overrides[0])
        kernels = DefinitionTable(KernelTypeStrResolver(model.type_arguments))

        program = ReferenceModel(model.graph, partial(_described, kernels), _file_order)
        declared = {value.name: value.type for value in model.graph.outputs}
        written = {value.name: value.metadata for value in (*model.graph.inputs, *model.graph.outputs) if value.metadata}
        ports = program.inputs, program.outputs, program.overridable_initializers
        description = ModelDescription.of(ports, declared, written, ModelMetadata.of(model))
        profiler = Profiler(options.profile_file_prefix) if options.enable_profiling else None
        return Opened(options, providers, program, lambda: description, profiler)


class MinimalSession(inference_session.InferenceSession):
    """A model in the ORT format, of version 5 or later, ready to run. It has the methods of `sardonyx.InferenceSession`."""

    _how_to_open: ClassVar[type[Opening]] = _MinimalOpening


InferenceSession = MinimalSession


def _refuse_options(options: SessionOptions, providers: ProviderSettings) -> None:
    """What needs the compiler is refused, rather than left out."""
    if options.optimized_model_filepath:
        text = "a minimal session rewrites no model, so there is none to write to optimized_model_filepath"
        raise errors.InvalidArgument(text, hint="use sardonyx.InferenceSession")
    others = [name for name in providers if name != CPU_PROVIDER]
    if others:
        text = f"a minimal session runs on {CPU_PROVIDER}, not on {others[0]}"
        raise errors.InvalidArgument(text, hint="use sardonyx.InferenceSession")


def _file_order(graph: Graph) -> list[Node]:
    return list(graph.nodes)


def _described(kernels: KernelTable, node: Node) -> Evaluated:
    """A node, and the kernel that was found for it."""
    found = kernels.find(node)
    if found is None:
        raise errors.NotImplemented(f"{node.label}: {'; '.join(kernels.mismatches(node))}")
    values = {attr.name: attribute_value(attr) for attr in node.attrs.values() if not isinstance(attr.value, Graph)}
    graphs = tuple(attr.name for attr in node.attrs.values() if isinstance(attr.value, Graph))
    wanted = tuple(bool(output.name) for output in node.outputs)
    plain = HostNode(
        node.domain, node.op_type, node.version, node.name, node.label, wanted, values, graphs, CPU_PROVIDER, (NodeName.of(node),)
    )
    return plain, found.kernel
