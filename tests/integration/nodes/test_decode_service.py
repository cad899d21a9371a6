"""``Generate`` over gRPC: however a call ends, its pages come back, and its error has a name."""

import asyncio

import grpc
import pytest

from fake_engine import VOCAB, alone
from loopback_nodes import (
    Command,
    LoopbackNode,
    call_generate,
    decode_node,
    eventually,
    generate,
    open_command,
)
from pdcore.errors import InternalError, PdspanError
from pdcore.generation import FinishReason
from pdcore.rpc_errors import error_from_rpc
from sample_request import request

LONG = 200  # tokens; a pool of 64 pages of 4 tokens holds such a request


async def refusal(call: object) -> PdspanError:
    """The error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
            pass
    return error_from_rpc(caught.value, "decode")


@pytest.mark.parametrize("num_choices", [1, 3])
async def test_a_colocated_request_from_prompt_to_usage(num_choices: int) -> None:
    asked = request(6, 5, num_choices=num_choices)
    async with decode_node() as node:
        answer = await generate(node, asked)
        assert await answer.next() == "accepted"
        kinds = await answer.to_the_end()
        assert set(kinds[:-1]) == {"tokens"} and kinds[-1] == "finished"
        for choice in range(num_choices):
            expected = alone(asked, choice)
            assert (answer.outputs[choice], answer.reasons[choice]) == expected
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 6
        assert answer.usage.completion_tokens == 5 * num_choices
        assert answer.node == "decode"
        assert answer.spans == ("first_token", "prefill", "first_step", "generate")
        await node.is_empty()


async def test_a_prompt_seen_before_is_taken_from_the_cache() -> None:
    async with decode_node() as node:
        for num_cached in (0, 4):
            answer = await generate(node, request(6, 2))
            await answer.to_the_end()
            assert answer.usage is not None and answer.usage.cached_tokens == num_cached
        await node.is_empty()


async def test_a_stop_string_ends_one_choice() -> None:
    asked = request(4, 20, num_choices=2)
    async with decode_node() as node:
        node.compute.hold(after=2)
        answer = await generate(node, asked)
        while len(answer.outputs[0]) < 2:
            await answer.next()
        await answer.stop_choice(0)
        await eventually(lambda: node.worker.num_running == 1)
        node.compute.let_go()
        await answer.to_the_end()
        assert answer.reasons == [FinishReason.STOP, FinishReason.LENGTH]
        assert answer.outputs[0] == alone(asked, 0)[0][:2]
        assert answer.outputs[1] == alone(asked, 1)[0]
        await node.is_empty()


async def test_another_epoch_is_refused_by_name() -> None:
    async with decode_node() as node:
        call = call_generate(node)
        await call.write(open_command(request(), local_prefill=True, epoch=10))
        error = await refusal(call)
        assert type(error).__name__ == "EpochMismatch"
        assert "decode has epoch 11, the request means 10" in str(error)
        await node.is_empty()


async def test_a_node_that_drains_refuses_and_finishes_what_runs() -> None:
    async with decode_node() as node:
        node.compute.hold()
        running = await generate(node, request(4, 3))
        await running.next()
        finishing = asyncio.ensure_future(node.drain.finish(timeout_s=30))
        await asyncio.sleep(0)
        refused = await generate(node, request())
        error = await refusal(refused.call)
        assert type(error).__name__ == "NodeDraining"
        assert "decode is stopping" in str(error)
        node.compute.let_go()
        assert (await running.to_the_end())[-1] == "finished"
        assert await finishing


@pytest.mark.parametrize("first", [None, Command(stop_choice=Command.StopChoice()), Command()])
async def test_the_first_command_must_open(first: Command | None) -> None:
    async with decode_node() as node:
        call = call_generate(node)
        if first is not None:
            await call.write(first)
        await call.done_writing()
        error = await refusal(call)
        assert type(error).__name__ == "InvalidRequest"
        assert "must be `open`" in str(error)
        await node.is_empty()


@pytest.mark.parametrize("local_prefill", [True, False])
async def test_a_second_opening_ends_the_request(local_prefill: bool) -> None:
    async with decode_node() as node:
        node.compute.hold()
        answer = await generate(node, request(4, LONG), local_prefill=local_prefill)
        await answer.next()
        await answer.call.write(open_command(request(), local_prefill=True))
        error = await refusal(answer.call)
        assert type(error).__name__ == "InvalidRequest"
        assert "only `stop_choice`" in str(error)
        node.compute.let_go()
        await node.is_empty()


async def test_a_request_that_no_router_would_send_is_refused() -> None:
    async with decode_node() as node:
        command = open_command(request(), local_prefill=True)
        command.open.request.ClearField("prompt_token_ids")
        call = call_generate(node)
        await call.write(command)
        assert type(await refusal(call)).__name__ == "InvalidRequest"


@pytest.mark.parametrize("local_prefill", [True, False])
async def test_a_token_that_the_model_does_not_have_is_refused(local_prefill: bool) -> None:
    """Before anything is computed: in a step it would be a defect, and end the node."""
    async with decode_node() as node:
        answer = await generate(node, request((1, VOCAB), 3), local_prefill=local_prefill)
        error = await refusal(answer.call)
        assert type(error).__name__ == "InvalidRequest"
        assert f"token id {VOCAB}" in str(error)
        assert not node.engine.steps
        await node.is_empty()


@pytest.mark.parametrize("local_prefill", [True, False])
async def test_without_room_a_request_is_refused_at_once(local_prefill: bool) -> None:
    async with decode_node(num_pages=4) as node:
        held = node.engine.pool.take(3)
        assert held is not None
        answer = await generate(node, request(7, 1), local_prefill=local_prefill)
        error = await refusal(answer.call)
        assert not answer.accepted and type(error).__name__ == "NoCapacity"
        node.engine.pool.release(held)
        await node.is_empty()


@pytest.mark.parametrize("local_prefill", [True, False])
async def test_what_can_never_fit_is_refused_with_numbers(local_prefill: bool) -> None:
    async with decode_node(num_pages=4) as node:
        answer = await generate(node, request(12, 5), local_prefill=local_prefill)
        error = await refusal(answer.call)
        assert type(error).__name__ == "PromptTooLong"
        assert "need 5 KV pages; the decode node has 4" in str(error)
        await node.is_empty()


async def test_while_preempted_ones_wait_newcomers_are_refused() -> None:
    async with decode_node(num_pages=6, page_tokens=2) as node:
        held = node.engine.pool.take(3)
        assert held is not None
        answer = await generate(node, request(3, 8))
        await eventually(lambda: node.worker.num_preempted == 1)
        error = await refusal((await generate(node, request(1, 1))).call)
        assert type(error).__name__ == "NoCapacity"
        assert "preempted" in str(error)
        node.engine.pool.release(held)
        node.worker.wake()
        await answer.to_the_end()
        assert (answer.outputs[0], answer.reasons[0]) == alone(answer.request, 0)
        await node.is_empty()


async def test_hanging_up_while_pages_are_only_promised() -> None:
    async with decode_node() as node:
        answer = await generate(node, request(8, 9), local_prefill=False)
        await answer.next()
        assert node.engine.pool.counts().promised > 0
        assert node.service.num_receiving == 1
        answer.call.cancel()
        await node.is_empty()
        assert node.service.num_receiving == 0


async def test_hanging_up_while_a_step_is_in_flight() -> None:
    async with decode_node() as node:
        node.compute.hold()
        answer = await generate(node, request(8, 9))
        await node.compute.in_step.wait()
        answer.call.cancel()
        await eventually(lambda: node.engine.pool.counts().draining == 3)
        node.compute.let_go()
        await node.is_empty()


async def test_hanging_up_while_it_generates() -> None:
    async with decode_node() as node:
        answer = await generate(node, request(8, LONG))
        for _ in range(5):
            await answer.next()
        answer.call.cancel()
        await node.is_empty()


@pytest.mark.parametrize("local_prefill", [True, False])
async def test_the_deadline_ends_a_request(local_prefill: bool) -> None:
    async with decode_node() as node:
        node.compute.hold()
        answer = await generate(node, request(8, 9), local_prefill=local_prefill, timeout_s=0.2)
        error = await refusal(answer.call)
        assert type(error).__name__ == "DeadlineExceeded"
        node.compute.let_go()
        await node.is_empty()


async def test_a_failing_step_fails_its_request_only(caplog: pytest.LogCaptureFixture) -> None:
    async with decode_node(max_sequences=1) as node:
        node.compute.hold()
        failing = await generate(node, request(4, 5, cache_salt="a", request_id="failing"))
        waiting = await generate(node, request(4, 5, cache_salt="b"))
        for answer in (failing, waiting):
            await answer.next()
        node.engine.fail_next = InternalError("no token can be sampled at position 4")
        node.compute.let_go()
        error = await refusal(failing.call)
        assert (type(error), str(error)) == (
            InternalError,
            "no token can be sampled at position 4",
        )
        assert "failing" in {getattr(record, "request_id", None) for record in caplog.records}
        assert (await waiting.to_the_end())[-1] == "finished"
        assert waiting.outputs[0] == alone(waiting.request, 0)[0]
        await node.is_empty()


async def test_a_defect_in_a_step_ends_the_node_with_its_name() -> None:
    """It is not swallowed: no state can be trusted after it."""
    with pytest.raises(ExceptionGroup) as caught:
        async with decode_node() as node:
            node.engine.fail_next = ZeroDivisionError()
            answer = await generate(node, request(4, 5))
            await answer.to_the_end()
    assert caught.group_contains(ZeroDivisionError)


async def test_many_at_once_each_get_their_own_tokens() -> None:
    async with decode_node(num_pages=24, step_tokens=16) as node:

        async def client(number: int) -> None:
            asked = request(1 + number % 6, 1 + number % 9, request_id=str(number), seed=number)
            while True:
                answer = await generate(node, asked)
                try:
                    await answer.to_the_end()
                except grpc.aio.AioRpcError as error:
                    assert type(error_from_rpc(error, "decode")).__name__ == "NoCapacity"
                    await asyncio.sleep(0.01)
                    continue
                assert (answer.outputs[0], answer.reasons[0]) == alone(asked, 0)
                return

        async with asyncio.TaskGroup() as tasks:
            for number in range(40):
                tasks.create_task(client(number))
        await node.is_empty()
        assert_counted(node, finished=40)


def assert_counted(node: LoopbackNode, finished: int) -> None:
    value = node.metrics.registry.get_sample_value("pdspan_requests_total", {"outcome": "finished"})
    assert value == finished
