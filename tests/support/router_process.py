"""``router.app.serve`` with a tiny model directory, as a process runs it, in this event loop."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from fake_nodes import Pair, eventually, until
from pdcore.cluster import NodeRole
from pdcore.settings import ClusterSettings, ModelSettings, NodeSettings, QueueSettings
from router.app import serve
from tiny_text import EOS, TOKENIZER_CONFIG, byte_level_tokenizer


def write_model_dir(directory: Path) -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    config = {
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": 64,
        "eos_token_id": tokenizer.token_to_id(EOS),
    }
    (directory / "config.json").write_text(json.dumps(config))


def settings_for(pair: Pair, **changes: object) -> ClusterSettings:
    nodes = [
        NodeSettings("router", NodeRole.ROUTER, f"127.0.0.1:{free_port()}"),
        NodeSettings("p0", NodeRole.PREFILL, pair.prefill.address),
        NodeSettings("d0", NodeRole.DECODE, pair.decode.address),
    ]
    settings = ClusterSettings(
        model=ModelSettings(served_name="tiny"),
        queue=QueueSettings(drain_s=5),
        nodes=tuple(nodes),
    )
    return replace(settings, **changes)  # type: ignore[arg-type]


@dataclass
class RunningRouter:
    url: str
    stop: asyncio.Event
    pair: Pair

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@asynccontextmanager
async def running_router(
    pair: Pair, model_dir: Path, settings: ClusterSettings | None = None
) -> AsyncIterator[RunningRouter]:
    """Healthy on entry; stopped, whether or not the test did it, on exit."""
    settings = settings or settings_for(pair)
    node = settings.node("router")
    write_model_dir(model_dir)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(settings, node, model_dir, stop))
        url = f"http://{node.bind}"
        async with httpx.AsyncClient() as client:
            await eventually(lambda: is_healthy(client, url))
        yield RunningRouter(url, stop, pair)
        stop.set()
    await until(lambda: not pair.decode.still_open)


async def is_healthy(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(f"{url}/health")).status_code == 200
    except httpx.TransportError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
