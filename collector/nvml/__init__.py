"""Counters of NVIDIA devices through nvidia-ml-py, which is imported at the first sample and not before."""

from rooflens.collector.nvml.probe import NvmlProbe

__all__ = ["NvmlProbe"]
