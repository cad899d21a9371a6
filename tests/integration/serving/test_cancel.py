"""A request cancelled at any moment of its life leaves no page in use.

The test is the router here: it opens both calls itself and cancels them at chosen points, then at
many moments spread over a whole request, so that every step of the handoff is met.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from uuid import uuid4

import grpc
import pytest

from pdcore.cluster import NodeView
from pdcore.generation import GenerationRequest, RequestId, SamplingParams
from pdcore.rpc import open_channel
from pdcore.settings import TlsSettings
from pdcore.wire import request_to_proto, status_from_proto
from pdwire.v1 import decode_pb2, decode_pb2_grpc, node_pb2, node_pb2_grpc, prefill_pb2
from pdwire.v1.prefill_pb2_grpc import PrefillStub
from serving import Cluster

PROMPT = tuple((9 + 31 * i) % 40000 + 20 for i in range(150))  # three chunks of 64, ten pages
NUM_MOMENTS = 24


@dataclass(frozen=True, slots=True)
class Legs:
    """One request's two open calls."""

    generate: grpc.aio.StreamStreamCall
    run: grpc.aio.UnaryUnaryCall

    async def next_event(self) -> str:
        event = await self.generate.read()
        return "end" if event is grpc.aio.EOF else event.WhichOneof("event")

    async def until_finished(self) -> None:
        while await self.next_event() != "finished":
            pass

    def cancel(self) -> None:
        self.generate.cancel()
        self.run.cancel()


@asynccontextmanager
async def request(cluster: Cluster, mode: str) -> AsyncIterator[Legs]:
    prefill, decode = cluster.node("prefill").address, cluster.node("decode").address
    async with (
        open_channel(prefill, TlsSettings()) as to_prefill,
        open_channel(decode, TlsSettings()) as to_decode,
    ):
        there, here = await view(to_prefill), await view(to_decode)
        yield await start(to_prefill, to_decode, there, here, mode)


async def start(
    to_prefill: grpc.aio.Channel,
    to_decode: grpc.aio.Channel,
    prefill: NodeView,
    decode: NodeView,
    mode: str,
) -> Legs:
    transfer_id = uuid4().hex
    asked = request_to_proto(
        GenerationRequest(
            request_id=RequestId(transfer_id),
            prompt_token_ids=PROMPT,
            sampling=SamplingParams(seed=0, temperature=0.0),
            max_tokens=4,
            num_choices=2,
            cache_salt=transfer_id,
        )
    )
    generate = decode_pb2_grpc.DecodeStub(to_decode).Generate()
    opening = decode_pb2.GenerateCommand.Open(
        transfer_id=transfer_id, request=asked, epoch=decode.info.epoch
    )
    await generate.write(decode_pb2.GenerateCommand(open=opening))
    run = PrefillStub(to_prefill).Run(
        prefill_pb2.RunRequest(
            transfer_id=transfer_id,
            request=asked,
            epoch=prefill.info.epoch,
            decode_node=decode.info.name,
            decode_address=decode.info.address,
            decode_epoch=decode.info.epoch,
            mode=mode,
        )
    )
    return Legs(generate, run)


async def view(channel: grpc.aio.Channel) -> NodeView:
    async for status in node_pb2_grpc.NodeStub(channel).Watch(node_pb2.WatchRequest()):
        return status_from_proto(status)
    raise AssertionError("the node said nothing")


async def once_promised(legs: Legs) -> None:
    assert await legs.next_event() == "accepted"


async def once_committed(legs: Legs) -> None:
    """The prefill node has heard the last acknowledgement: only then does ``Run`` answer."""
    assert (await legs.run).timeline.transfer.page_bytes > 0


async def once_first_tokens_came(legs: Legs) -> None:
    await once_promised(legs)
    assert await legs.next_event() == "tokens"


@pytest.mark.parametrize("mode", ["sequential_layer", "pipelined", "striped"])
@pytest.mark.parametrize("moment", [once_promised, once_first_tokens_came, once_committed])
def test_cancelled_at_a_known_moment(
    float32_cluster: Cluster, mode: str, moment: Callable[[Legs], Awaitable[None]]
) -> None:
    async def cancel_then() -> None:
        async with request(float32_cluster, mode) as legs:
            await moment(legs)
            legs.cancel()

    asyncio.run(cancel_then())
    float32_cluster.assert_no_page_in_use()


@pytest.mark.parametrize("mode", ["sequential", "pipelined"])
def test_cancelled_at_any_moment(float32_cluster: Cluster, mode: str) -> None:
    async def whole_request_s() -> float:
        async with request(float32_cluster, mode) as legs:
            start_s = monotonic()
            await legs.until_finished()
            return monotonic() - start_s

    async def cancel_after(seconds: float) -> None:
        async with request(float32_cluster, mode) as legs:
            await asyncio.sleep(seconds)
            legs.cancel()

    total_s = asyncio.run(whole_request_s())
    for number in range(NUM_MOMENTS):
        asyncio.run(cancel_after(total_s * number / NUM_MOMENTS))
    float32_cluster.assert_no_page_in_use()
    answer = float32_cluster.complete(prompt="The capital of France is", max_tokens=4)
    assert "Paris" in answer["choices"][0]["text"]
