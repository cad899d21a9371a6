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

import numpy as np
import torch

from pdcore.compiled import Recipe, compiled
from pdcore.errors import ConfigError

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
ITEM_FIELDS = 7
MERGE_FIELDS = 5
TILE_FIELDS = 5
LANES = 16
MAX_HEAD_DIM = 256
MAX_GROUPS = 16
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


class Layer(ctypes.Structure):
    """See the structure of the same name in the source."""

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


@cache
def kernels() -> ctypes.CDLL:
    """Compiled at first use, in seconds. Raises ConfigError where that cannot be done."""
    library = ctypes.CDLL(str(compiled(_recipe())))
    table = np.ctypeslib.ndpointer(dtype=np.int32, flags="C_CONTIGUOUS")
    common = [POINTER(Layer), c_void_p, table, c_int64]
    for dtype in DTYPES.values():
        decode = getattr(library, f"pdspan_decode_{dtype}")
        decode.argtypes = [
            *common,
            *(table, c_int),  # items
            *(table, c_int),  # merges
            *(c_void_p, c_int, c_int, c_void_p),
        ]
        prefill = getattr(library, f"pdspan_prefill_{dtype}")
        prefill.argtypes = [*common, table, c_int, c_int, c_int, c_void_p]
        linear = getattr(library, f"pdspan_linear_{dtype}")
        linear.argtypes = [*(c_void_p,) * 3, *(c_int64,) * 3, c_int, c_void_p]
        linear8 = getattr(library, f"pdspan_linear_int8_{dtype}")
        linear8.argtypes = [*(c_void_p,) * 4, *(c_int64,) * 3, c_int, c_void_p]
        norm = getattr(library, f"pdspan_rms_norm_{dtype}")
        norm.argtypes = [*(c_void_p,) * 3, c_float, c_int64, c_int64, c_int, c_void_p]
        rotate = getattr(library, f"pdspan_rotate_{dtype}")
        rotate.argtypes = [c_void_p, c_int64, c_void_p, c_void_p, *(c_int64,) * 3, c_int]
        gated = getattr(library, f"pdspan_gated_{dtype}")
        gated.argtypes = [c_void_p, c_int64, c_int64, c_int, c_void_p]
        for function in (decode, prefill, linear, linear8, norm, rotate, gated):
            function.restype = None
    return library


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
        machine=f"{platform.machine()} {processor()} {torch.__version__}",
    )


def _openmp_of_torch() -> tuple[str, ...]:
    """By its path: a second runtime would be a second pool of threads."""
    folder = Path(torch.__file__).with_name("lib")
    return tuple(str(path) for path in sorted(folder.glob("libgomp*.so*")))


def processor() -> str:
    """Its model and instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return " ".join(sorted({line for line in lines if line.startswith(wanted)}))
