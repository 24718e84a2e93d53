"""Tools that stand below `onnxruntime.tools`, by the same names. They work on messages of the onnx package, if it is there."""
