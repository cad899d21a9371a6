"""NIXL's own environment, with the packages that its ends import.

NIXL declares torch as a dependency, but only imports it where tensors are passed; without it the
environment takes 70 MB to fetch instead of gigabytes.
"""

from pathlib import Path

import pdlab
from pdlab.own_environment import OwnEnvironment
from pdlab.transfer.ends import Program

ENVIRONMENT = OwnEnvironment("NIXL", ("nixl-cu12==1.5.1", "numpy", "xxhash"))


def nixl_program(environment: OwnEnvironment = ENVIRONMENT) -> Program:
    """How NIXL's ends are started. Raises ConfigError when it cannot be installed."""
    command = (str(environment.python()), "-m", "pdlab.transfer.nixl_end")
    ours = str(Path(pdlab.__path__[0]).parent)
    return Program((*command, "sender"), (*command, "receiver"), {"PYTHONPATH": ours})
