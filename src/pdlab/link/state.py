"""Which links are up on this machine: a small file each, so that nothing brought up is forgotten.

A file is written before its link is brought up and removed after it was taken down. It names the
process that the link lives with; when that is gone, the link is a leftover, and whoever brings up
the next one takes it down first.
"""

import fcntl
import json
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pdcore.errors import ConfigError
from pdlab.link.namespaces import namespace_names, remove_namespace
from pdlab.link.processes import Process
from pdlab.link.profile import LinkProfile, TcpSettings

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True, slots=True)
class LinkState:
    name: str
    kind: str
    profile: LinkProfile
    tcp: TcpSettings
    owner: Process | None
    """The link ends with it; None: it stays until it is taken down."""
    forwarder: Process | None = None

    @property
    def namespaces(self) -> tuple[str, str]:
        return f"pdlab-{self.name}-a", f"pdlab-{self.name}-b"

    @property
    def socket_path(self) -> Path:
        return state_dir() / f"{self.name}.sock"

    @property
    def log_path(self) -> Path:
        return state_dir() / f"{self.name}.log"

    @property
    def alive(self) -> bool:
        if self.forwarder is not None and not self.forwarder.alive:
            return False
        if self.owner is not None:
            return self.owner.alive
        return self.forwarder is not None or set(self.namespaces) <= namespace_names()


def state_dir() -> Path:
    """Root's is ``/run/pdspan/links``; others' is below ``$XDG_RUNTIME_DIR``, or in /tmp."""
    if os.geteuid() == 0:
        return Path("/run/pdspan/links")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = (
        Path(runtime, "pdspan") if runtime else Path(tempfile.gettempdir(), f"pdspan-{os.getuid()}")
    )
    return own / "links"


def register(state: LinkState) -> None:
    """Clear what killed runs left behind, then note ``state``; ConfigError for a name in use."""
    if not _NAME.fullmatch(state.name):
        raise ConfigError(
            f"{state.name!r} cannot be a link's name: up to 32 of a-z, 0-9 and -, such as 'wan'"
        )
    with _locked():
        clear_leftovers()
        if _read(path := _path(state.name)) is not None:
            raise ConfigError(
                f"a link {state.name!r} is already up; "
                f"'pdspan link down --name {state.name}' takes it down"
            )
        _write(path, state)


def update(state: LinkState) -> None:
    _write(_path(state.name), state)


def known_links() -> list[LinkState]:
    return [state for path in sorted(state_dir().glob("*.json")) if (state := _read(path))]


def take_down(state: LinkState) -> None:
    """End the link and everything on it, however far it had come up. Idempotent."""
    current = _read(_path(state.name)) or state
    if current.forwarder is not None:
        current.forwarder.end()
    if current.kind in NAMESPACED:
        for namespace in current.namespaces:
            remove_namespace(namespace)
    for path in (current.socket_path, current.log_path, _path(current.name)):
        path.unlink(missing_ok=True)


def clear_leftovers() -> list[str]:
    """Take down what no process owns any more; the names."""
    leftovers = [state for state in known_links() if not state.alive]
    for state in leftovers:
        take_down(state)
    return [state.name for state in leftovers]


@contextmanager
def listener_of(state: LinkState) -> Iterator[int]:
    """The unix socket on which the link's process will listen; this end of it is closed again."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state.socket_path))
        listener.listen()
        yield listener.fileno()


NAMESPACED = frozenset({"tun", "netem"})


@contextmanager
def _locked() -> Iterator[None]:
    """One process at a time looks for leftovers and notes a link."""
    state_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
    with (state_dir() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _path(name: str) -> Path:
    return state_dir() / f"{name}.json"


def _write(path: Path, state: LinkState) -> None:
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(json.dumps(asdict(state)))
    new.replace(path)


def _read(path: Path) -> LinkState | None:
    """None when it is gone, or of another version."""
    try:
        fields = json.loads(path.read_text())
        return LinkState(
            name=fields["name"],
            kind=fields["kind"],
            profile=LinkProfile(**fields["profile"]),
            tcp=TcpSettings(**fields["tcp"]),
            owner=_process(fields["owner"]),
            forwarder=_process(fields["forwarder"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _process(fields: dict[str, int] | None) -> Process | None:
    return None if fields is None else Process(**fields)
