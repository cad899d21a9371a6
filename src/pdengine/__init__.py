"""The model and its memory: paged KV cache, batches, attention, sampling. It knows no network.

``Engine`` computes steps on one compute thread. ``PagePool``, ``PrefixCache`` and ``Sequence`` are
plain bookkeeping on the event loop's thread: they decide which pages a step may touch.
"""
