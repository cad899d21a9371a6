"""How every channel and server of the cluster is built: limits, keepalive, TLS, bind rules.

The numbers stand here once. Frames are 1 to 4 MiB, so the message limit leaves room for a page that
is larger than a frame, and nothing more. Keepalive finds a peer that was stopped or unplugged; the
server's minimum ping interval matches it, else it answers too_many_pings.
"""

import ipaddress
from pathlib import Path

import grpc

from pdcore.errors import ConfigError
from pdcore.settings import ClusterSettings, NodeSettings, TlsSettings

MAX_MESSAGE_BYTES = 32 * 2**20
KEEPALIVE_S = 5
KEEPALIVE_TIMEOUT_S = 5

_SHARED_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_S * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
)
# One connection per channel: channels to one address would otherwise share one.
CHANNEL_OPTIONS = (
    *_SHARED_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.client_idle_timeout_ms", 2**31 - 1),  # never: a connection that was opened is kept
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # How long one attempt may take, TLS over a long path included.
    ("grpc.min_reconnect_backoff_ms", 10_000),
)
# Without so_reuseport=0 two nodes could share a port in silence.
SERVER_OPTIONS = (
    *_SHARED_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_S * 500),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_S * 500),
)


def open_channel(address: str, tls: TlsSettings) -> grpc.aio.Channel:
    """A channel with a connection of its own; it connects when first used, and again by itself."""
    return channel_to(address, channel_credentials(tls))


def channel_to(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    """The same with credentials that were read before. None: plain text."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)


def channel_credentials(tls: TlsSettings) -> grpc.ChannelCredentials | None:
    """None: plain text. A file that cannot be read: ConfigError."""
    if not tls.enabled and tls.ca is None:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=_pem(tls.ca, "tls.ca"),
        private_key=_pem(tls.key, "tls.key") if tls.mutual else None,
        certificate_chain=_pem(tls.cert, "tls.cert") if tls.mutual else None,
    )


def new_server() -> grpc.aio.Server:
    return grpc.aio.server(options=SERVER_OPTIONS)


def bind_server(server: grpc.aio.Server, node: NodeSettings, tls: TlsSettings) -> None:
    """Add the node's port. A port that is taken, or an address that is not ours: ConfigError."""
    try:
        if tls.enabled:
            server.add_secure_port(node.bind, _server_credentials(tls))
        else:
            server.add_insecure_port(node.bind)
    except RuntimeError:
        raise ConfigError(
            f"{node.name}: cannot listen on {node.bind}: the port is taken or the address is not"
            " this machine's"
        ) from None


def check_bind(settings: ClusterSettings, node: NodeSettings) -> None:
    """Refuse plain text on an address that other machines can reach, unless it is asked for."""
    for address in filter(None, (node.bind, node.metrics)):
        if not (settings.tls.enabled or settings.insecure or is_loopback(address)):
            raise ConfigError(
                f"{node.name}: {address} is not a loopback address and TLS is off: set tls.cert,"
                " tls.key and tls.ca, or say --insecure to send KV pages and prompts in plain text"
            )


def is_loopback(address: str) -> bool:
    host = split_address(address)[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` -> (host, port); ConfigError when it is neither."""
    host, _, port = address.rpartition(":")
    is_v6 = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_v6 else host
    if not host or (":" in host) != is_v6 or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{address!r} is not host:port, e.g. 127.0.0.1:7001 or [::1]:7001")
    return host, int(port)


def _server_credentials(tls: TlsSettings) -> grpc.ServerCredentials:
    key, cert = _pem(tls.key, "tls.key"), _pem(tls.cert, "tls.cert")
    assert key is not None and cert is not None, "enabled means that cert and key are set"
    return grpc.ssl_server_credentials(
        [(key, cert)],
        root_certificates=_pem(tls.ca, "tls.ca") if tls.mutual else None,
        require_client_auth=tls.mutual,
    )


def _pem(path: str | None, setting: str) -> bytes | None:
    if path is None:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {path}: {error.strerror}") from None
    if b"-----BEGIN " not in content:
        raise ConfigError(f"{setting}: {path} is not a PEM file")
    return content
