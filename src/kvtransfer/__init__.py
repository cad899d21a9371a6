"""Moves KV pages from one node's memory to another's. Knows bytes and page numbers, no model.

The two halves of the protocol are plain Python without I/O or clock (``frame_queue``,
``incoming``); ``sender``, ``receiver`` and ``channels`` drive them over gRPC.
``docs/wire-protocol.md`` has the state tables that both keep to.
"""
