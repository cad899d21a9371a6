"""A port that is free on one address, for a server that opens it at once."""

import socket


def free_address(host: str) -> str:
    with socket.create_server((host, 0)) as probe:
        return f"{host}:{probe.getsockname()[1]}"
