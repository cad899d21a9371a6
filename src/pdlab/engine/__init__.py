"""Engines alone, compared on one machine: ours and vLLM's, each in a process of its own."""
