"""The terminal workbench for GPU training throughput."""

__version__ = "0.1.0"
