"""ONNX Runtime's `onnxruntime.training.ortmodule._graph_execution_manager_factory`, by its name."""

from sardonyx.training.execution import ExecutionManagers as GraphExecutionManagerFactory

__all__ = ["GraphExecutionManagerFactory"]
