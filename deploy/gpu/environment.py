"""What this machine has, as JSON on standard output; fails when something that is needed is not.

python deploy/gpu/environment.py cpu|cuda
"""

import importlib
import importlib.metadata
import json
import platform
import shutil
import sys

NEEDED = (
    "torch",
    "grpc",
    "grpc_health.v1",
    "google.protobuf",
    "fastapi",
    "uvicorn",
    "uvloop",
    "tokenizers",
    "safetensors",
    "xxhash",
    "prometheus_client",
    "httpx",
    "jinja2",
    "pytest",
)
SHOWN = ("torch", "triton", "flashinfer-python", "grpcio", "protobuf", "transformers", "numpy")


def main(device: str) -> int:
    missing = missing_modules([*NEEDED, *(["flashinfer"] if device == "cuda" else [])])
    found: dict[str, object] = {
        "python": platform.python_version(),
        "packages": {name: version_of(name) for name in SHOWN},
        "missing": missing,
        "nvcc": shutil.which("nvcc"),
    }
    problems = [f"cannot import {name}: {reason}" for name, reason in missing.items()]
    if device == "cuda" and "torch" not in missing:
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
            found["cuda"] = torch.version.cuda
        else:
            problems.append("torch finds no CUDA device (--cpu runs the same steps on the CPU)")
        if found["nvcc"] is None:
            problems.append("nvcc is not on the PATH; FlashInfer compiles its kernels with it")
    print(json.dumps(found))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def missing_modules(names: list[str]) -> dict[str, str]:
    """{module: why it cannot be imported}; importing finds what a look at metadata does not."""
    missing = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # a package that fails on this machine may raise anything
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return missing


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
