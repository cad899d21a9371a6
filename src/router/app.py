"""The router as a web application and as a process.

``build_app`` wires the endpoints, ``serve`` runs them until told to stop: then ``/health`` answers
503, new requests are refused, and running ones finish (bounded by ``queue.drain_s``; those that
have not by then end with an error).
"""

import asyncio
import logging
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.routing import Route
from starlette.types import ASGIApp

from pdcore.discovery import open_discovery
from pdcore.drain import Drain
from pdcore.errors import ConfigError
from pdcore.rpc import split_address
from pdcore.settings import ClusterSettings, NodeSettings, TlsSettings
from router.endpoint import CHAT, COMPLETIONS, GenerationEndpoint, Service
from router.http_connection import ClientConnection
from router.http_errors import install_error_handlers
from router.info import InfoEndpoints
from router.membership import Membership
from router.metrics import RouterMetrics
from router.model_info import load_model_info
from router.placement import Placer, open_placer
from router.prepare import Preparer
from router.relay import Cluster, Relay
from router.request_body import BodyReader
from router.request_scope import RequestScope
from router.text import ModelText

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 75  # longer than clients keep an idle connection, so that they close it, not we
UNREAD_S = 60  # a client that has read nothing for so long, though it could, is disconnected
CLOSE_S = 2  # how long requests that are cut may take to say so and clean up


async def serve(
    settings: ClusterSettings, node: NodeSettings, model_dir: Path, stop: asyncio.Event
) -> None:
    """Run this router until ``stop`` is set and running requests have ended.

    Raises ConfigError when the model directory, a setting or the address is wrong.
    """
    placer = open_placer(settings.router.placement)
    membership = Membership(
        open_discovery(settings), settings.tls, settings.queue.drain_s, settings.model.public_name
    )
    service = open_service(settings, node, model_dir, membership, placer)
    server = _Server(uvicorn_config(build_app(service, placer), settings.tls))
    with _listen(node) as listener:
        async with asyncio.TaskGroup() as group:
            following = group.create_task(membership.run())
            group.create_task(server.serve([listener]))
            log.info("ready on %s", node.bind, extra={"event": "ready", "address": node.address})
            await stop.wait()
            if not await service.drain.finish(settings.queue.drain_s):
                log.warning("%d requests still ran and were cut", service.drain.num_running)
            service.cut.set()  # for those, and for requests whose bodies are still coming
            server.should_exit = True
            following.cancel()
    log.info("stopped", extra={"event": "stopped"})


def open_service(
    settings: ClusterSettings,
    node: NodeSettings,
    model_dir: Path,
    cluster: Cluster,
    placer: Placer,
) -> Service:
    """Load the tokenizer and put together what serves requests. Raises ConfigError."""
    preparer = Preparer(
        ModelText.load(model_dir), load_model_info(model_dir, settings.model), settings.router
    )
    _warn_of_unknown_tokens(preparer)
    return Service(
        name=node.name,
        settings=settings,
        preparer=preparer,
        cluster=cluster,
        relay=Relay(cluster, placer),
        drain=Drain("the router"),
        metrics=RouterMetrics(CollectorRegistry()),
        bodies=BodyReader(settings.router.max_body_bytes),
    )


def build_app(service: Service, placer: Placer) -> ASGIApp:
    """The whole HTTP surface; nothing of it depends on how the process runs."""
    app = FastAPI(title="pdspan", openapi_url=None, redirect_slashes=False)
    install_error_handlers(app)
    info = InfoEndpoints(service, placer, int(time.time()))
    for path, endpoint in (
        ("/v1/models", info.models),
        ("/v1/models/{model_id:path}", info.model),
        ("/health", info.health),
        ("/version", info.version),
        ("/metrics", info.metrics),
    ):
        app.add_api_route(path, endpoint, methods=["GET", "HEAD"])
    for path, kind in (("/v1/completions", COMPLETIONS), ("/v1/chat/completions", CHAT)):
        app.router.routes.append(Route(path, GenerationEndpoint(kind, service), methods=["POST"]))
    return RequestScope(app, service.metrics)


def _warn_of_unknown_tokens(preparer: Preparer) -> None:
    """No refusal: many fine-tunes add a padding token that no text ever becomes."""
    highest, vocab_size = preparer.text.highest_token_id, preparer.model.vocab_size
    if highest >= vocab_size:
        log.warning(
            "the tokenizer has ids up to %d, the model only up to %d: text that becomes one of"
            " those above is refused",
            highest,
            vocab_size - 1,
        )


class _Server(uvicorn.Server):
    """Signals belong to ``pdcore.runtime``, which sets ``stop``."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def uvicorn_config(app: ASGIApp, tls: TlsSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=ClientConnection,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_S,
        ssl_certfile=tls.cert,
        ssl_keyfile=tls.key,
        ssl_ca_certs=tls.ca if tls.mutual and tls.mutual_http else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls.mutual and tls.mutual_http else ssl.CERT_NONE,
    )


def _listen(node: NodeSettings) -> socket.socket:
    host, port = split_address(node.bind)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigError(
            f"{node.name}: cannot listen on {node.bind}: {error.strerror or error}"
        ) from None
    if sys.platform == "linux":  # connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_S * 1000)
    return listener
