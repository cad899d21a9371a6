"""The link for real TCP: a TUN device in each of two namespaces, and a forwarder between them.

The devices take packets of up to 64 KiB (TSO) with checksums left open, so the forwarder carries
several Gbit/s. They live as long as it holds their file descriptors. Needs root, ``/dev/net/tun``
and, once, a C compiler.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pdcore.errors import ConfigError
from pdlab.link.compiled_forwarder import compiled_forwarder
from pdlab.link.forwarder_control import ForwarderControl
from pdlab.link.hosts import Host
from pdlab.link.namespaced import DEVICE, add_hosts, check_root, namespaced_hosts, start_devices
from pdlab.link.namespaces import ip
from pdlab.link.processes import start_process
from pdlab.link.state import LinkState, listener_of, update

TUN = Path("/dev/net/tun")

_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4 = 0x01, 0x02  # no TSO6: the hosts have no IPv6


class TunLink:
    def bring_up(self, state: LinkState, lifeline: int | None) -> LinkState:
        check_root("tun")
        if not TUN.exists():
            raise ConfigError(f"a tun link needs {TUN}, and this machine has none (modprobe tun)")
        program = compiled_forwarder()
        add_hosts(state)
        a, b = state.namespaces
        with _device(a) as device_a, _device(b) as device_b, listener_of(state) as listener:
            start_devices(state)
            fds = [device_a, device_b, listener] + ([] if lifeline is None else [lifeline])
            command = [str(program), *map(str, fds)]
            state = replace(state, forwarder=start_process(command, fds, state.log_path))
        update(state)
        self.control(state).apply(state.profile)
        return state

    def hosts(self, state: LinkState) -> tuple[Host, Host]:
        return namespaced_hosts(state)

    def control(self, state: LinkState) -> ForwarderControl:
        return ForwarderControl(state)


@contextmanager
def _device(namespace: str) -> Iterator[int]:
    """A new TUN device in ``namespace``. It goes when the last holder of the descriptor has closed
    it."""
    try:
        fd = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{TUN}: {error.strerror}; may this process use it?") from None
    try:
        ip("link", "set", _attached(fd), "netns", namespace, "name", DEVICE)
        yield fd
    finally:
        os.close(fd)


def _attached(fd: int) -> str:
    """The name of the device that ``fd`` now stands for, as the kernel chose it."""
    flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
    try:
        request = fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", b"pdlab%d", flags))
        fcntl.ioctl(fd, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4)
    except OSError as error:
        raise ConfigError(f"{TUN}: no TUN device: {error.strerror}") from None
    return request[:16].rstrip(b"\0").decode()
