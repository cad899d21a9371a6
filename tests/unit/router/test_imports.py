"""The router is small: it starts without torch, numpy or transformers."""

import subprocess
import sys


def test_importing_the_router_loads_no_torch() -> None:
    code = (
        "import sys, router.app\n"
        "print([name for name in ('torch', 'numpy', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
