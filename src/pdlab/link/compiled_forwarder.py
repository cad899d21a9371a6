"""The forwarding process's program."""

from pathlib import Path

from pdcore.compiled import Recipe, compiled

SOURCE_DIR = Path(__file__).with_name("forwarder")


def compiled_forwarder() -> Path:
    """ConfigError without a C compiler, or when it fails."""
    return compiled(
        Recipe(
            name="link/forwarder",
            sources=sorted(SOURCE_DIR.glob("*.c")),
            headers=sorted(SOURCE_DIR.glob("*.h")),
            compilers=("cc", "gcc", "clang"),
            options=("-O2", "-pthread"),
            libraries=("-lm",),
            purpose="an emulated link",
        )
    )
