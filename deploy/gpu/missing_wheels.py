"""Which of a directory's wheels this Python needs: one requirement a line.

    python deploy/gpu/missing_wheels.py DIRECTORY

A wheel is needed when its package is not installed, or in an older version. Wheels for another
Python or machine are left out, with a word on standard error. A directory that does not exist has
none.
"""

import importlib.metadata
import sys
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from packaging.version import Version


def main(directory: Path) -> None:
    usable = frozenset(sys_tags())
    for wheel in sorted(directory.glob("*.whl")):
        name, version, _, tags = parse_wheel_filename(wheel.name)
        installed = installed_version(name)
        if tags.isdisjoint(usable):
            print(f"{wheel.name} is for another Python or machine", file=sys.stderr)
        elif installed is None or installed < version:
            print(f"{name}=={version}")


def installed_version(name: str) -> Version | None:
    try:
        return Version(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
