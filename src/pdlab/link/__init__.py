"""Emulated links on one machine: what real TCP runs over in an experiment.

``open_link(kind, profile, tcp)`` brings one up for a block of code and takes it down whatever
happens. ``LINKS`` has the kinds.
"""

from pdlab.link.hosts import Host
from pdlab.link.link import Counters, Link, LinkCounters, MeasuredLink
from pdlab.link.opening import LINKS, attach, find_link, keep_link, open_link
from pdlab.link.profile import BUFFERS, MTU_BYTES, PAYLOAD_SHARE, LinkProfile, TcpSettings
from pdlab.link.state import clear_leftovers, known_links, take_down

__all__ = [
    "open_link",
    "LINKS",
    "Link",
    "Host",
    "LinkProfile",
    "TcpSettings",
    "BUFFERS",
    "MTU_BYTES",
    "PAYLOAD_SHARE",
    "MeasuredLink",
    "LinkCounters",
    "Counters",
    "keep_link",
    "find_link",
    "attach",
    "take_down",
    "known_links",
    "clear_leftovers",
]
