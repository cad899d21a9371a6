"""Paged attention on a CPU: our own kernels, compiled for the processor that they run on."""

from pdengine.attention.cpu.backend import build_cpu, unsupported

__all__ = ["build_cpu", "unsupported"]
