"""Kernels for a CPU in C++, compiled for the processor that they run on, at first use."""
