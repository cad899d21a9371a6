"""Fixtures and rules for all tests: what a marked test needs, and the default model."""

import os
import shutil
from pathlib import Path

import pytest

from pdspan.arguments import DEFAULT_MODEL
from pdspan.models import resolve_model


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _has_gpu():
        pytest.skip("needs an NVIDIA GPU")
    if item.get_closest_marker("netns") and not _may_have_namespaces():
        pytest.skip("needs root and the ip command")
    if item.get_closest_marker("tun") and not (
        _may_have_namespaces() and Path("/dev/net/tun").exists() and shutil.which("cc")
    ):
        pytest.skip("needs root, the ip command, /dev/net/tun and cc")


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The directory of the default model; `make test` has fetched it."""
    return resolve_model(DEFAULT_MODEL, lambda task, fraction: None)


def _may_have_namespaces() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
