"""A cluster file (TOML) and ``--set a.b=value`` become frozen dataclasses.

An unknown key, a wrong type or an impossible value is a ``ConfigError`` that names the key, where
it was found and what would be right. One file describes a whole cluster; each process reads the
same file and is told which node it is. A node may carry its own ``engine`` table, laid over the
shared one.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pdcore.cluster import NodeRole
from pdcore.errors import ConfigError
from pdcore.typed_table import OneOf, Within, merged, read_table

Count = Annotated[int, Within(1)]
Bytes = Annotated[int, Within(1)]
BytesOrNone = Annotated[int, Within(0)]  # 0: not at all
Seconds = Annotated[float, Within(0, above=True)]

MAX_STRIPES = 64  # a receiver refuses more, whatever its own setting


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """``path`` is a directory, a name that ``pdspan models list`` shows, or a hub id."""

    path: str = "smollm2-135m-instruct"
    served_name: str | None = None  # what clients call it; the last part of ``path`` if None

    @property
    def public_name(self) -> str:
        return self.served_name or Path(self.path).name


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """``dtype`` is that of activations, KV and, unless they are int8, weights; "auto": bfloat16
    where the device has instructions for it, else float32.
    """

    dtype: Annotated[str, OneOf(("auto", "bfloat16", "float32", "float16"))] = "auto"
    weights: Annotated[str, OneOf(("full", "int8"))] = "full"
    device: Annotated[str, OneOf(("auto", "cpu", "cuda"))] = "auto"
    attention: str = "auto"  # a key of pdengine.attention.BACKENDS, or auto
    schedule: str = "workqueue"  # one of pdengine.attention.schedules.SCHEDULES
    threads: Count | None = None  # torch's intra-op threads; None: as many as torch likes
    page_tokens: Count = 16
    num_pages: Annotated[int, Within(2)] | None = None  # None: as many as fit in kv_memory_bytes
    kv_memory_bytes: Bytes = 512 * 2**20
    step_tokens: Count = 512  # most tokens that one step computes (chunk and batch budget)
    max_sequences: Count = 64  # most sequences that one decode step holds
    prefix_cache: bool = True
    # What a decode node sets aside for a request: a key of decode_node.reservations.ADMISSIONS
    admission: Annotated[str, OneOf(("on_demand", "reserve_max"))] = "on_demand"


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """``mode`` is a row of ``kvtransfer.limits.MODES``; the byte numbers fill that row in."""

    mode: str = "auto"
    taper: bool = True  # a prompt's last chunk in smaller parts, where pages leave during prefill
    frame_bytes: Bytes = 2 * 2**20
    window_bytes: Bytes = 64 * 2**20
    stripes: Annotated[int, Within(1, MAX_STRIPES)] = 4  # connections of a transfer by striped
    credit_bytes: Bytes = 256 * 2**20  # a receiver's standing credit for one sender, all transfers
    park_s: Seconds = 5.0  # how long Push may wait for the Generate that it overtook
    park_streams: Count = 64  # most Push streams of one peer that wait so
    resume_s: Seconds = 2.0  # how long a broken connection may take to come back
    stall_s: Seconds = 10.0  # no byte acknowledged for so long, though it could: the transfer fails
    warmup_bytes: BytesOrNone = 64 * 2**20  # most of one warm-up of a pair; 0: none
    accept_warmup_bytes: BytesOrNone = 256 * 2**20  # taken of one connection within 10 s
    slow_s: Seconds = 0.25  # a transfer that takes so much longer than auto would, is logged
    trace: str | None = None  # a file that gets one JSON line per event of a transfer


@dataclass(frozen=True, slots=True)
class RouterSettings:
    placement: str = "round_robin"  # a key of router.placement.POLICIES
    max_queued: Count = 256  # requests in the router at once; more are refused with 503
    default_timeout_s: Seconds | None = None
    max_choices: Count = 16
    max_body_bytes: Bytes = 2 * 2**20  # room for the token ids of 128 Ki tokens, or their text


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Bounds of one prefill or decode node."""

    max_queued: Count = 128  # requests that wait for pages; more are refused
    drain_s: Annotated[float, Within(0)] = 30.0  # how long SIGTERM waits for running requests


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files. With ``cert`` and ``key`` every server speaks TLS; ``ca`` verifies the peer.

    ``mutual`` makes servers demand a certificate that ``ca`` signed. Every node's certificate must
    name the host part of its advertised address.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    mutual: bool = False
    mutual_http: bool = True  # with ``mutual``: the router's HTTP clients need a certificate too

    @property
    def enabled(self) -> bool:
        return self.cert is not None


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """``bind`` is where the node listens, ``advertise`` how the others reach it (default: bind).

    For a router both are the HTTP address. ``metrics`` is an HTTP address for Prometheus on a
    prefill or decode node (None: no such server; a router serves ``/metrics`` on ``bind``).
    """

    name: str
    role: NodeRole
    bind: str
    advertise: str | None = None
    metrics: str | None = None
    engine: EngineSettings = field(default_factory=EngineSettings)

    @property
    def address(self) -> str:
        return self.advertise or self.bind


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """``static``: the file's own nodes. ``dns``: the addresses that the two names resolve to."""

    kind: str = "static"
    prefill_dns: str | None = None  # host:port, e.g. a Kubernetes headless service
    decode_dns: str | None = None
    refresh_s: Seconds = 5.0


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    name: str = "pdspan"
    insecure: bool = False  # allow plain text on an address that is not loopback
    log_level: Annotated[str, OneOf(("debug", "info", "warning", "error"))] = "info"
    model: ModelSettings = field(default_factory=ModelSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    transfer: TransferSettings = field(default_factory=TransferSettings)
    router: RouterSettings = field(default_factory=RouterSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    discovery: DiscoverySettings = field(default_factory=DiscoverySettings)
    nodes: tuple[NodeSettings, ...] = ()

    def node(self, name: str) -> NodeSettings:
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes) or "none"
        raise ConfigError(f"no node named {name!r} in the cluster file; it has: {known}")

    def nodes_of(self, role: NodeRole) -> tuple[NodeSettings, ...]:
        return tuple(node for node in self.nodes if node.role is role)


def load_cluster(path: Path, overrides: Sequence[str] = ()) -> ClusterSettings:
    """Read ``path`` and lay ``overrides`` (``"transfer.mode=bulk"``) over it."""
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"no cluster file at {path}") from None
    except OSError as error:
        raise ConfigError(f"cannot read the cluster file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    return cluster_from_table(table, overrides, origin=str(path))


def cluster_from_table(
    table: Mapping[str, Any], overrides: Sequence[str] = (), *, origin: str = "cluster"
) -> ClusterSettings:
    """Build and check the settings; each node's ``engine`` is laid over the shared ``engine``."""
    for override in overrides:
        table = merged(table, _override_table(override))
    settings = read_table(ClusterSettings, _with_shared_engine(table), origin)
    _check(settings, origin)
    return settings


def _with_shared_engine(table: Mapping[str, Any]) -> dict[str, Any]:
    """Each node's ``engine`` over the shared one. A value of the wrong shape is left as it is, so
    that reading the table names the mistake."""
    shared, nodes = table.get("engine", {}), table.get("nodes", [])
    if not (isinstance(shared, Mapping) and isinstance(nodes, list)):
        return dict(table)
    return {**table, "nodes": [_laid_over(node, shared) for node in nodes]}


def _laid_over(node: Any, shared: Mapping[str, Any]) -> Any:
    own = node.get("engine", {}) if isinstance(node, Mapping) else None
    return {**node, "engine": merged(shared, own)} if isinstance(own, Mapping) else node


def _override_table(override: str) -> dict[str, Any]:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set {override}: expected key=value, e.g. transfer.mode=bulk")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word is a string
    table: Any = value
    for part in reversed(key.strip().split(".")):
        table = {part: table}
    return dict(table)


def _check(settings: ClusterSettings, origin: str) -> None:
    names = [node.name for node in settings.nodes]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ConfigError(f"{origin}: two nodes named {sorted(repeated)[0]!r}; names must differ")
    tls = settings.tls
    if (tls.cert is None) != (tls.key is None):
        raise ConfigError(f"{origin}: tls.cert and tls.key go together; one is missing")
    if tls.mutual and tls.ca is None:
        raise ConfigError(f"{origin}: tls.mutual needs tls.ca, to verify the peers with")


def with_insecure(settings: ClusterSettings) -> ClusterSettings:
    """The same cluster with plain text allowed on any address (``--insecure``)."""
    return replace(settings, insecure=True)
