"""The tables of the ORT format, with their fields in the order of their slots.

`tests/formats/test_ort_read.py` compares this with what ONNX Runtime's own Python package says. `-` is a slot that older
versions used.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final

IDENTIFIER: Final = b"ORTM"
CURRENT_VERSION: Final = 6
FIRST_WITH_RESOLVER: Final = 5  # kernels were found by hashes before
MISSING_NODE: Final = 0xFFFFFFFF  # in a record of a runtime optimisation: an optional node that is not there

ASSIGNED_TO: Final = "CPUExecutionProvider"  # what files say of nodes that no other execution provider claims

# kinds of TypeInfo.value
TENSOR_TYPE: Final = 1
SEQUENCE_TYPE: Final = 2
MAP_TYPE: Final = 3
# DimensionValueType
DIM_VALUE: Final = 1
DIM_PARAM: Final = 2
# NodeType
FUSED: Final = 1

_TABLES: Final = {
    "InferenceSession": "ort_version model - kernel_type_str_resolver",
    "Model": "ir_version opset_import producer_name producer_version domain model_version doc_string graph graph_doc_string "
    "metadata_props",
    "OperatorSetId": "domain version",
    "StringStringEntry": "key value",
    "Graph": "initializers node_args nodes max_node_index node_edges inputs outputs sparse_initializers runtime_optimizations",
    "Node": "name doc_string domain since_version index op_type type execution_provider_type inputs outputs attributes "
    "input_arg_counts implicit_inputs",
    "NodeEdge": "node_index input_edges output_edges",
    "Attribute": "name doc_string type f i s t g floats ints strings tensors graphs",
    "Tensor": "name doc_string dims data_type raw_data string_data external_data_offset",
    "SparseTensor": "values indices dims",
    "ValueInfo": "name doc_string type",
    "TypeInfo": "denotation value_type value",
    "TensorTypeAndShape": "elem_type shape",
    "SequenceType": "elem_type",
    "MapType": "key_type value_type",
    "Shape": "dim",
    "Dimension": "value denotation",
    "DimensionValue": "dim_type dim_value dim_param",
    "RuntimeOptimizations": "records",
    "RuntimeOptimizationRecordContainerEntry": "optimizer_name runtime_optimization_records",
    "RuntimeOptimizationRecord": "action_id nodes_to_optimize_indices - produced_op_ids",
    "NodesToOptimizeIndices": "node_indices num_inputs num_outputs has_variadic_input has_variadic_output num_variadic_inputs "
    "num_variadic_outputs",
    "KernelTypeStrResolver": "op_kernel_type_str_args",
    "OpIdKernelTypeStrArgsEntry": "op_id kernel_type_str_args",
    "KernelTypeStrArgsEntry": "kernel_type_str args",
    "ArgTypeAndIndex": "arg_type index",
    # of checkpoints
    "Checkpoint": "version module_state optimizer_groups property_bag",
    "ModuleState": "requires_grad_params frozen_params is_nominal_state has_external_data",
    "OptimizerGroup": "group_name step initial_learning_rate optimizer_states",
    "ParameterOptimizerState": "param_name momentums",
    "PropertyBag": "ints floats strings",
    "IntProperty": "name value",
    "FloatProperty": "name value",
    "StringProperty": "name value",
}


def slots(table: str) -> SimpleNamespace:
    """The slots of a table by the names of its fields."""
    return SimpleNamespace(**{name: slot for slot, name in enumerate(_TABLES[table].split()) if name != "-"})


def tables() -> dict[str, dict[str, int]]:
    """All tables with their fields."""
    return {name: vars(slots(name)) for name in _TABLES}
