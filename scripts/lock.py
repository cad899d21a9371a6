"""Writes constraints.txt: the newest set of versions that fit pyproject.toml together.

``make lock`` runs it. pip resolves in a dry run, so nothing is installed, and extras that this
machine cannot use (``gpu``) are pinned too. A local part of a version (``+cpu``) is left out: which
build of torch is right is decided by the pip configuration of whoever installs.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Chosen by hand: what the measured results were made with, and the newest FlashInfer whose
# dependencies stay small.
CHOSEN = ["torch==2.13.0", "flashinfer-python==0.5.3"]
BUILD = ["pip", "hatchling", "editables"]

HEADER = """\
# Exact versions of every direct and transitive dependency, for `pip install -c constraints.txt`.
# Written by `make lock`; do not edit by hand.
"""


def main() -> None:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--report", "-", *BUILD, *CHOSEN, "-e", f"{ROOT}[dev,gpu]"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = [item["metadata"] for item in report["install"]]
    lines = sorted(
        f"{package['name'].lower()}=={package['version'].partition('+')[0]}"
        for package in packages
        if package["name"] != "pdspan"
    )
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
