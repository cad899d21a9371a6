"""A prefill and a decode node together: the tokens of one machine, and both pools end empty."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from fake_engine import VOCAB, alone
from kvtransfer.limits import MODES, limits_for
from kvtransfer.sender import KvSender, OutgoingTransfer
from loopback_nodes import (
    LoopbackNode,
    call_run,
    decode_node,
    eventually,
    generate,
    prefill,
    prefill_node,
    run_request,
)
from pdcore.errors import InternalError, PdspanError
from pdcore.generation import GenerationRequest, TransferId
from pdcore.rpc_errors import error_from_rpc
from pdcore.settings import TransferSettings
from sample_request import request


@asynccontextmanager
async def two_nodes(
    transfer: TransferSettings | None = None, **prefill_settings: int
) -> AsyncIterator[tuple[LoopbackNode, LoopbackNode]]:
    async with (
        decode_node(transfer=transfer) as decode,
        prefill_node(transfer=transfer, **prefill_settings) as there,
    ):
        yield there, decode


async def error_of(call: object) -> PdspanError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return error_from_rpc(caught.value, "prefill")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("num_prompt", "num_choices"), [(1, 1), (4, 2), (21, 1)])
async def test_every_mode_gives_the_tokens_of_one_machine(
    mode: str, num_prompt: int, num_choices: int
) -> None:
    asked = request(num_prompt, 5, num_choices=num_choices)
    async with two_nodes(step_tokens=8) as (there, decode):
        answer = await generate(decode, asked, local_prefill=False)
        result = await prefill(there, run_request(asked, decode, mode))
        await answer.to_the_end()
        for choice in range(num_choices):
            expected = alone(asked, choice)
            assert (answer.outputs[choice], answer.reasons[choice]) == expected
        assert answer.usage is not None and answer.usage.prompt_tokens == num_prompt
        assert result.timeline.transfer.mode == mode
        assert [span.name for span in result.timeline.spans] == ["queue", "prefill"]
        await there.is_empty()
        await decode.is_empty()


@pytest.mark.parametrize("first", ["prefill", "decode"])
async def test_whichever_call_comes_first(first: str) -> None:
    asked = request(9, 3)
    async with two_nodes() as (there, decode):
        if first == "prefill":
            running = asyncio.ensure_future(prefill(there, run_request(asked, decode)))
            await eventually(lambda: there.worker.num_running == 0 and there.in_use > 0)
            answer = await generate(decode, asked, local_prefill=False)
        else:
            answer = await generate(decode, asked, local_prefill=False)
            await answer.next()
            running = asyncio.ensure_future(prefill(there, run_request(asked, decode)))
        await answer.to_the_end()
        await running
        assert answer.outputs[0] == alone(asked, 0)[0]
        assert transfers(there, "pipelined", "committed") == 1
        await there.is_empty()
        await decode.is_empty()


async def test_what_prefill_found_in_its_cache_is_the_clients_cached_tokens() -> None:
    async with two_nodes() as (there, decode):
        for number, num_cached in enumerate((0, 8)):
            asked = request(9, 2, request_id=str(number))
            answer = await generate(decode, asked, local_prefill=False)
            result = await prefill(there, run_request(asked, decode))
            await answer.to_the_end()
            assert result.cached_tokens == num_cached
            assert answer.usage is not None and answer.usage.cached_tokens == num_cached
            assert answer.outputs[0] == alone(asked, 0)[0]


async def test_many_transfers_at_once_do_not_mix() -> None:
    async with two_nodes(step_tokens=8) as (there, decode):

        async def client(number: int) -> None:
            asked = request(1 + number % 13, 3, request_id=str(number), seed=number)
            answer = await generate(decode, asked, local_prefill=False)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(awaited(prefill(there, run_request(asked, decode))))
                tasks.create_task(answer.to_the_end())
            assert answer.outputs[0] == alone(asked, 0)[0]

        async with asyncio.TaskGroup() as tasks:
            for number in range(8):
                tasks.create_task(client(number))
        await there.is_empty()
        await decode.is_empty()


def transfers(node: LoopbackNode, mode: str, outcome: str) -> float | None:
    return node.metrics.registry.get_sample_value(
        "pdspan_transfers_total", {"mode": mode, "outcome": outcome}
    )


async def awaited(call: object) -> None:
    await call  # type: ignore[misc]


async def test_hanging_up_on_both_while_pages_are_on_their_way() -> None:
    async with two_nodes(step_tokens=4) as (there, decode):
        asked = request(12, 3)
        answer = await generate(decode, asked, local_prefill=False)
        there.compute.hold()
        running = prefill(there, run_request(asked, decode))
        await there.compute.in_step.wait()
        running.cancel()
        answer.call.cancel()
        there.compute.let_go()
        await there.is_empty()
        await decode.is_empty()
        assert transfers(there, "pipelined", "CancelledError") == 1


async def test_decode_giving_up_ends_the_transfer_by_name() -> None:
    async with two_nodes(step_tokens=4) as (there, decode):
        asked = request(12, 3)
        answer = await generate(decode, asked, local_prefill=False)
        running = prefill(there, run_request(asked, decode))
        there.compute.hold()
        await eventually(lambda: decode.engine.pool.counts().reserved > 0)
        answer.call.cancel()
        there.compute.let_go()
        error = await error_of(running)
        assert type(error).__name__ == "TransferFailed", error
        await there.is_empty()
        await decode.is_empty()


async def test_nobody_announced_the_transfer() -> None:
    async with two_nodes(TransferSettings(park_s=0.2)) as (there, decode):
        error = await error_of(prefill(there, run_request(request(9, 3), decode)))
        assert type(error).__name__ == "UnknownTransfer"
        assert transfers(there, "pipelined", "UnknownTransfer") == 1
        await there.is_empty()
        await decode.is_empty()


async def test_a_decode_node_of_another_epoch_is_refused_by_name() -> None:
    async with two_nodes() as (there, decode):
        message = run_request(request(9, 3), decode, decode_epoch=12)
        error = await error_of(prefill(there, message))
        assert type(error).__name__ == "EpochMismatch"
        await there.is_empty()


async def test_a_decode_node_that_is_not_there() -> None:
    async with two_nodes(TransferSettings(resume_s=0.2)) as (there, decode):
        message = run_request(request(9, 3), decode, decode_address="127.0.0.1:1")
        error = await error_of(prefill(there, message))
        assert type(error).__name__ == "PeerUnavailable"
        assert "127.0.0.1:1" in str(error)
        await there.is_empty()


async def test_a_decode_node_that_discovery_has_not_found() -> None:
    """Refused before anything is computed; no connection is opened to where a request says."""
    async with two_nodes() as (there, decode):
        for _ in range(2):
            error = await error_of(call_run(there, run_request(request(9, 3), decode)))
            assert type(error).__name__ == "PeerUnavailable"
            assert "prefill has no connection to decode (epoch b)" in str(error)
        assert not there.engine.steps
        await there.is_empty()


async def test_a_decode_node_that_discovery_finds_at_another_address() -> None:
    """As with DNS: a pod's own address here, a name in what the node says of itself."""
    asked = request(9, 3)
    async with two_nodes() as (there, decode):
        assert there.pairs is not None
        await there.pairs.open(decode.info.address).attached(decode.info.epoch, 5)
        answer = await generate(decode, asked, local_prefill=False)
        message = run_request(asked, decode, decode_address="decode.example:7001")
        await call_run(there, message)
        await answer.to_the_end()
        assert answer.outputs[0] == alone(asked, 0)[0]


async def test_a_step_that_fails_in_mid_transfer_ends_it_and_names_the_step() -> None:
    async with two_nodes(step_tokens=4) as (there, decode):
        asked = request(12, 3)
        answer = await generate(decode, asked, local_prefill=False)
        there.engine.fail_next = InternalError("no token can be sampled")
        error = await error_of(prefill(there, run_request(asked, decode)))
        assert (type(error), str(error)) == (InternalError, "no token can be sampled")
        await there.is_empty()
        answer.call.cancel()
        await decode.is_empty()


@pytest.mark.parametrize("first_token_ids", [(1,), (1, 2, 3)])
async def test_a_handoff_with_another_number_of_first_tokens_is_a_violation(
    first_token_ids: tuple[int, ...],
) -> None:
    """A choice without a token would wait for ever."""
    asked = request(4, 3, num_choices=2)
    async with two_nodes() as (there, decode):
        answer = await generate(decode, asked, local_prefill=False)
        await answer.next()
        sender = sender_of(asked, there, decode)
        sender.pages_ready(1)
        sender.hand_off(first_token_ids, 0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sender.run())
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await answer.to_the_end()
        error = error_from_rpc(caught.value, "decode")
        assert type(error).__name__ == "ProtocolViolation"
        assert f"{len(first_token_ids)} first tokens for 2 choices" in str(error)
        await decode.is_empty()


async def test_a_first_token_that_the_model_does_not_have_ends_the_request() -> None:
    asked = request(4, 3)
    async with two_nodes() as (there, decode):
        answer = await generate(decode, asked, local_prefill=False)
        await answer.next()
        sender = sender_of(asked, there, decode)
        sender.pages_ready(1)
        sender.hand_off((VOCAB,), 0)
        await sender.run()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await answer.to_the_end()
        assert f"token id {VOCAB}" in str(error_from_rpc(caught.value, "decode"))
        assert not decode.engine.steps
        await decode.is_empty()


def sender_of(asked: GenerationRequest, there: LoopbackNode, decode: LoopbackNode) -> KvSender:
    """Pages that nobody computed, for a decode node that would believe anything."""
    assert there.pairs is not None
    num_tokens = len(asked.prompt_token_ids)
    outgoing = OutgoingTransfer(
        TransferId(asked.request_id),
        decode.info.epoch,
        tuple(range(there.engine.layout.num_pages(num_tokens))),
        num_tokens,
    )
    settings = TransferSettings()
    limits = limits_for("bulk", settings, there.engine.layout)
    pair = there.pairs.open(decode.info.address)
    return KvSender(pair, there.engine.kv, outgoing, limits, settings)
