"""The tables of an ORT file by short names: slots of their fields, for the reader and the writer alike."""

import struct
from typing import Final

from sardonyx.formats.ort.schema import slots

SESSION, MODEL, OPSET, ENTRY = slots("InferenceSession"), slots("Model"), slots("OperatorSetId"), slots("StringStringEntry")
GRAPH, NODE, EDGES, ATTRIBUTE = slots("Graph"), slots("Node"), slots("NodeEdge"), slots("Attribute")
TENSOR, SPARSE = slots("Tensor"), slots("SparseTensor")
VALUE, TYPE, TENSOR_TYPE = slots("ValueInfo"), slots("TypeInfo"), slots("TensorTypeAndShape")
SEQUENCE, MAP, SHAPE = slots("SequenceType"), slots("MapType"), slots("Shape")
DIMENSION, DIMENSION_VALUE = slots("Dimension"), slots("DimensionValue")
RUNTIME, CONTAINER = slots("RuntimeOptimizations"), slots("RuntimeOptimizationRecordContainerEntry")
RECORD, INDICES = slots("RuntimeOptimizationRecord"), slots("NodesToOptimizeIndices")
RESOLVER, OPERATOR = slots("KernelTypeStrResolver"), slots("OpIdKernelTypeStrArgsEntry")
TYPE_STRING, ARGUMENT = slots("KernelTypeStrArgsEntry"), slots("ArgTypeAndIndex")

EDGE_END: Final = struct.Struct("<Iii")  # node, output of it, input
