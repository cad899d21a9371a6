"""The compiled kernels, as Python sees them: structures and functions of the sources beside it.

The library is linked with the OpenMP runtime that torch brought along, so that both share one pool
of threads.
"""

import ctypes
import logging
import platform
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pdcore.compiled import Recipe, compiled
from pdcore.errors import ConfigError

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
ITEM_FIELDS = 5
MERGE_FIELDS = 3
TILE_FIELDS = 5
LANES = 16
PANEL = 16  # rows of a packed matrix that stand together
MAX_HEAD_DIM = 256
MAX_GROUPS = 16
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


# Each is described beside the structure of the same name in the sources.


class Layer(ctypes.Structure):
    _fields_ = (
        ("keys", c_void_p),
        ("page_stride", c_int64),
        ("token_stride", c_int64),
        ("value_offset", c_int64),
        ("page_tokens", c_int32),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("scale", c_float),
    )


class Plan(ctypes.Structure):
    _fields_ = (
        ("items", c_void_p),
        ("merges", c_void_p),
        ("tiles", c_void_p),
        ("partials", c_void_p),
        ("num_items", c_int32),
        ("num_merges", c_int32),
        ("num_tiles", c_int32),
        ("window", c_int32),
        ("takes_turns", c_int32),
    )


class Matrix(ctypes.Structure):
    _fields_ = (
        ("values", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
        ("num_in", c_int64),
        ("num_out", c_int64),
    )


class DecoderLayer(ctypes.Structure):
    _fields_ = (
        ("input_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("qkv", Matrix),
        ("output", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("plan", c_int32),
    )


class Decoder(ctypes.Structure):
    _fields_ = (
        ("layers", POINTER(DecoderLayer)),
        ("final_norm", c_void_p),
        ("layer_stride", c_int64),
        ("num_layers", c_int32),
        ("epsilon", c_float),
    )


class DecoderStep(ctypes.Structure):
    _fields_ = (
        ("x", c_void_p),
        ("normed", c_void_p),
        ("qkv", c_void_p),
        ("queries", c_void_p),
        ("attended", c_void_p),
        ("delta", c_void_p),
        ("gate_up", c_void_p),
        ("inner", c_void_p),
        ("cosine", c_void_p),
        ("sine", c_void_p),
        ("key_rows", c_void_p),
        ("tables", c_void_p),
        ("plans", POINTER(Plan)),
        ("table_stride", c_int64),
        ("num_rows", c_int64),
        ("num_threads", c_int32),
    )


@cache
def kernels() -> ctypes.CDLL:
    """Compiled at first use, in seconds. Raises ConfigError where that cannot be done."""
    path = compiled(_recipe())
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:  # a file system that runs nothing
        raise ConfigError(f"cannot load {path}: {error}; set PDSPAN_CACHE") from None
    for dtype in DTYPES.values():
        arguments = {
            "attend": [
                *(POINTER(Layer), c_void_p, c_void_p, c_int64),
                *(POINTER(Plan), c_int, c_void_p),
            ],
            "product": [POINTER(Matrix), c_void_p, c_int64, c_int, c_void_p],
            "rms_norm": [*(c_void_p,) * 3, c_float, c_int64, c_int64, c_int, c_void_p],
            "rotate": [c_void_p, c_int64, c_void_p, c_void_p, *(c_int64,) * 3, c_int],
            "gated": [c_void_p, c_int64, c_int64, c_int, c_void_p],
            "layers": [POINTER(Decoder), POINTER(Layer), POINTER(DecoderStep)],
        }
        for name, types in arguments.items():
            function = getattr(library, f"pdspan_{name}_{dtype}")
            function.argtypes, function.restype = types, None
    return library


def kernel(name: str, dtype: torch.dtype) -> Any:
    """The kernel ``name`` for ``dtype``, one of ``DTYPES``."""
    return getattr(kernels(), f"pdspan_{name}_{DTYPES[dtype]}")


def version() -> str:
    """Another for other sources, options or processors. Compiles them, or raises ConfigError."""
    return compiled(_recipe()).name


@cache
def unavailable() -> str | None:
    """Why there are no kernels here, or None. Compiles them; says once, in the log, why not."""
    try:
        kernels()
    except ConfigError as error:
        log.warning("torch computes what our own kernels would: %s", error.message)
        return error.message
    return None


def _recipe() -> Recipe:
    return Recipe(
        name="kernels/cpu",
        sources=sorted(FOLDER.glob("*.cpp")),
        headers=sorted(FOLDER.glob("*.h")),
        compilers=("c++", "g++"),
        options=(
            *("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-fopenmp"),
            *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"),
        ),
        libraries=_openmp_of_torch(),
        purpose="fast code for this CPU",
        language="C++",
        machine=f"{platform.machine()} {_processor()} {torch.__version__}",
    )


def _openmp_of_torch() -> tuple[str, ...]:
    """By its path: a second runtime would be a second pool of threads."""
    folder = Path(torch.__file__).with_name("lib")
    return tuple(str(path) for path in sorted(folder.glob("libgomp*.so*")))


def _processor() -> str:
    """Its model and instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return " ".join(sorted({line for line in lines if line.startswith(wanted)}))
