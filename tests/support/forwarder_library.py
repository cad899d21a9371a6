"""The parts of the link's forwarder that need no device, as a library that Python calls."""

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from pdlab.link.compiled_forwarder import SOURCE_DIR

PARTS = ("packet.c", "ring.c", "impairments.c")


class Packet(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("header_size", ctypes.c_uint32),
        ("segment_size", ctypes.c_uint32),
        ("num_segments", ctypes.c_uint32),
    )


class Entry(ctypes.Structure):
    """Its bytes follow it."""

    _fields_ = (
        ("next", ctypes.c_void_p),
        ("arrived_ns", ctypes.c_int64),
        ("due_ns", ctypes.c_int64),
        ("wire_bytes", ctypes.c_uint64),
        ("size", ctypes.c_size_t),
    )


class Ring(ctypes.Structure):
    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("reserved", ctypes.c_size_t),
        ("limit", ctypes.c_size_t),
        ("head", ctypes.c_size_t),
        ("oldest", ctypes.c_void_p),
        ("queued", ctypes.c_void_p),
        ("newest", ctypes.c_void_p),
    )


class Rate(ctypes.Structure):
    _fields_ = (("bits_per_s", ctypes.c_double), ("free_ns", ctypes.c_int64))


class Loss(ctypes.Structure):
    _fields_ = (
        ("share", ctypes.c_double),
        ("random", ctypes.c_uint64),
        ("num_spared", ctypes.c_uint64),
    )


class Delay(ctypes.Structure):
    _fields_ = (
        ("delay_ns", ctypes.c_int64),
        ("jitter_ns", ctypes.c_int64),
        ("last_due_ns", ctypes.c_int64),
        ("random", ctypes.c_uint64),
    )


@cache
def forwarder_library() -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    directory = Path(mkdtemp(prefix="pdspan-test-"))
    try:
        path = directory / "forwarder.so"
        sources = [str(SOURCE_DIR / part) for part in PARTS]
        command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *sources]
        subprocess.run([*command, "-lm", "-o", str(path)], check=True)
        library = ctypes.CDLL(str(path))
    finally:
        shutil.rmtree(directory)
    library.packet_parse.restype = Packet
    library.packet_parse.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.packet_wire_bytes.restype = ctypes.c_uint64
    library.packet_cut.restype = ctypes.c_size_t
    library.ring_reserve.restype = ctypes.c_void_p
    library.ring_reserve.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.ring_open.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.ring_set_limit.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.ring_push.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.ring_flying.restype = ctypes.c_void_p
    library.rate_leaves_ns.restype = ctypes.c_int64
    library.rate_leaves_ns.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64)
    library.loss_set.argtypes = (ctypes.c_void_p, ctypes.c_double)
    library.loss_spares.restype = ctypes.c_uint32
    library.delay_due_ns.restype = ctypes.c_int64
    library.delay_due_ns.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    return library
