"""Transfers alone: two processes on one link move real pages from pool to pool, verified."""
