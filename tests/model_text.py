"""Models out of a line of ONNX text, for tests of lowering."""

from __future__ import annotations

from onnx import parser


def model(graph: str, opset: int = 24) -> bytes:
    """`(float[N,4] x) => (float[...] y) { y = Relu(x) }` as a model; what it says about the shapes of outputs is left out."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> graph {graph}')
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    content: bytes = proto.SerializeToString()
    return content
