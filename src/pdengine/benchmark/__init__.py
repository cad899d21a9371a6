"""Benchmarks of the engine alone, as commands that the laboratory runs as subprocesses."""
