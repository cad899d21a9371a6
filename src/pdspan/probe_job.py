"""What ``pdspan probe`` was asked for, checked before anything is sent, and the way to a report."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace

import httpx
from prometheus_client.parser import text_string_to_metric_families

from kvtransfer.path_prediction import Model
from pdcore.cluster import NodeInfo, NodeRole
from pdcore.discovery import open_discovery
from pdcore.errors import ConfigError
from pdcore.kv_layout import DTYPE_BYTES, KvLayout
from pdcore.rpc import split_address
from pdcore.settings import (
    ClusterSettings,
    NodeSettings,
    TlsSettings,
    cluster_from_table,
    load_cluster,
)
from pdlab.quantities import parse_bits_per_s, parse_bytes
from pdspan.cluster_checks import check_mode
from pdspan.probe import Effort, Report, measure
from pdspan.probe_report import ProbeReport, Question, report_on

SCRAPE_S = 5.0
MIN_BYTES = 2**20
MIN_COUNTED_TOKENS = 1024  # of fewer, the rate is that of starting up and of short prompts
GIVEN_DTYPE = "float16"  # of pages of which only the size is given


@dataclass(frozen=True, slots=True)
class PrefillRate:
    """``tokens_per_s`` None: not known."""

    tokens_per_s: float | None
    source: str


@dataclass(frozen=True, slots=True)
class ProbeJob:
    """``target`` None: every decode node of the cluster file. ``page_...`` None: the node's own."""

    settings: ClusterSettings
    target: str | None
    tls: TlsSettings
    effort: Effort
    num_tokens: int
    page_bytes: int | None
    page_tokens: int | None
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None

    async def addresses(self) -> Sequence[str]:
        """Raises ConfigError when there is none."""
        if self.target is not None:
            return [self.target]
        async for snapshot in open_discovery(self.settings).watch():
            found = sorted(p.address for p in snapshot if p.role is NodeRole.DECODE)
            if not found:
                raise ConfigError(f"the cluster {self.settings.name!r} has no decode node")
            return found
        raise AssertionError("a discovery yields at least one snapshot")

    async def prefill_rate(self) -> PrefillRate:
        """As given, or as the cluster's prefill nodes have counted: tokens over time in steps."""
        if self.prefill_tokens_per_s is not None:
            return PrefillRate(self.prefill_tokens_per_s, "given")
        if self.target is not None:
            return PrefillRate(None, "unknown: not given")
        num_tokens = seconds = 0.0
        for node in self.settings.nodes_of(NodeRole.PREFILL):
            counted = await _prefilled(node, self.settings.tls)
            num_tokens, seconds = num_tokens + counted[0], seconds + counted[1]
        return counted_rate(num_tokens, seconds)

    async def probe(self, address: str, prefill: PrefillRate, report: Report) -> ProbeReport:
        """Raises what keeps the target from being measured."""
        measured = await measure(address, self.tls, self.effort, report)
        question = Question(
            num_tokens=self.num_tokens,
            mode=self.settings.transfer.mode,
            model=self._model(measured.node, prefill),
            decode_tokens_per_s=self.decode_tokens_per_s,
            rate_source=prefill.source,
            settings=self.settings.transfer,
        )
        return report_on(address, measured, question)

    def _model(self, node: NodeInfo, prefill: PrefillRate) -> Model:
        layout, max_tokens = node.layout, node.max_tokens
        if self.page_bytes is not None or self.page_tokens is not None:
            layout = _layout_of(self.page_bytes, self.page_tokens, node.layout)
            max_tokens = max(max_tokens, self.num_tokens)
        if self.num_tokens > max_tokens:
            raise ConfigError(
                f"--tokens {self.num_tokens}: {node.name} holds at most {max_tokens} tokens of one"
                " request"
            )
        return Model(layout, max_tokens, self._step_tokens(), prefill.tokens_per_s)

    def _step_tokens(self) -> int:
        nodes = self.settings.nodes_of(NodeRole.PREFILL)
        return nodes[0].engine.step_tokens if nodes else self.settings.engine.step_tokens


def counted_rate(num_tokens: float, seconds: float) -> PrefillRate:
    """Of prompt tokens that prefill nodes have computed, over the seconds of their steps."""
    if not num_tokens:
        return PrefillRate(None, "unknown: no prefill node has counted a prompt, or none answers")
    if num_tokens < MIN_COUNTED_TOKENS or not seconds:
        return PrefillRate(None, f"unknown: only {num_tokens:.0f} prompt tokens computed so far")
    return PrefillRate(num_tokens / seconds, "counted by the cluster's prefill nodes so far")


def read_job(arguments: Namespace) -> ProbeJob:
    """Raises ConfigError for what cannot be meant."""
    if (arguments.target is None) == (arguments.cluster is None):
        raise ConfigError("say what to probe: a decode node's host:port, or --cluster FILE")
    if arguments.target is not None:
        split_address(arguments.target)
    settings = _settings(arguments)
    check_mode(settings)
    return ProbeJob(
        settings=settings,
        target=arguments.target,
        tls=settings.tls,
        effort=Effort(
            seconds=_positive("--seconds", arguments.seconds),
            max_bytes=_enough("--bytes", parse_bytes(arguments.bytes)),
            num_connections=arguments.connections,
            rate_bytes_per_s=_rate(arguments.rate),
        ),
        num_tokens=arguments.tokens,
        page_bytes=None if arguments.page_bytes is None else parse_bytes(arguments.page_bytes),
        page_tokens=arguments.page_tokens,
        prefill_tokens_per_s=_given("--prefill-tokens-per-s", arguments.prefill_tokens_per_s),
        decode_tokens_per_s=_given("--decode-tokens-per-s", arguments.decode_tokens_per_s),
    )


def _settings(arguments: Namespace) -> ClusterSettings:
    if arguments.cluster is not None:
        settings = load_cluster(arguments.cluster, arguments.overrides)
    else:
        settings = cluster_from_table({}, arguments.overrides)
    given = {name: getattr(arguments, name) for name in ("ca", "cert", "key")}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return settings
    if ("cert" in given) != ("key" in given):
        raise ConfigError("--cert and --key go together; one is missing")
    return replace(settings, tls=TlsSettings(**given, mutual="cert" in given))


def _rate(text: str | None) -> float | None:
    return None if text is None else _positive("--rate", parse_bits_per_s(text)) / 8


def _given(option: str, value: float | None) -> float | None:
    return None if value is None else _positive(option, value)


def _enough(option: str, nbytes: int) -> int:
    if nbytes < MIN_BYTES:
        raise ConfigError(f"{option} {nbytes}: a rate takes at least {MIN_BYTES} bytes")
    return nbytes


def _positive(option: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise ConfigError(f"{option} {value:g}: must be more than 0")
    return value


def _layout_of(page_bytes: int | None, page_tokens: int | None, node: KvLayout) -> KvLayout:
    """Pages of another model, cut into as many layers as the node's where that divides."""
    page_bytes = node.page_bytes if page_bytes is None else page_bytes
    page_tokens = node.page_tokens if page_tokens is None else page_tokens
    num_layers = next(
        (count for count in range(node.num_layers, 0, -1) if page_bytes % count == 0), 1
    )
    row_bytes = 2 * page_tokens * DTYPE_BYTES[GIVEN_DTYPE]
    if page_bytes < 1 or page_bytes // num_layers % row_bytes:
        raise ConfigError(
            f"pages of {page_bytes} bytes for {page_tokens} tokens: --page-bytes must be a"
            f" multiple of {row_bytes * num_layers}"
        )
    head_dim = page_bytes // num_layers // row_bytes
    return KvLayout("given", num_layers, 1, head_dim, page_tokens, GIVEN_DTYPE)


async def _prefilled(node: NodeSettings, tls: TlsSettings) -> tuple[float, float]:
    """Prompt tokens that ``node`` has computed, and the seconds of its steps; none if it cannot
    be asked: the report says then that the rate is not known."""
    if node.metrics is None:
        return 0.0, 0.0
    url = f"{'https' if tls.enabled else 'http'}://{node.metrics}/metrics"
    try:
        async with httpx.AsyncClient(
            verify=tls.ca or True, trust_env=False, timeout=SCRAPE_S
        ) as http:
            text = (await http.get(url)).text
    except (httpx.HTTPError, OSError):
        return 0.0, 0.0
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    tokens = samples.get("pdspan_prompt_tokens_total", 0.0)
    return tokens, samples.get("pdspan_step_seconds_sum", 0.0)
