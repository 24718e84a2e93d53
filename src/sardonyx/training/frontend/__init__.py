"""The front end: a PyTorch module and its inputs become a graph.

`export_module` is the whole interface. What stands behind it today is torch's TorchScript exporter (`torchscript.py`), which
keeps every size of the inputs open; `torch.export` fixes sizes that a module compares with constants, and unrolls recurrent
layers. `patches.py` has what the exporter cannot do by itself, `finish.py` what the graph needs before it is differentiated.

Nothing is imported here: `ExportedGraph` is in `exported.py`.
"""
