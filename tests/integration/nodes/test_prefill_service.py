"""``Run`` over real gRPC: what is refused, and that a call that ends early holds no page."""

import asyncio

import grpc
import pytest

from fake_engine import VOCAB
from kvtransfer.limits import MODES, Starts
from loopback_nodes import LoopbackNode, decode_node, eventually, prefill, prefill_node, run_request
from pdcore.errors import PdspanError
from pdcore.generation import GenerationRequest
from pdcore.rpc_errors import error_from_rpc
from pdcore.settings import TransferSettings
from pdwire.v1 import prefill_pb2
from prefill_node.chunks import Route
from prefill_node.queue import Job
from sample_request import request


async def error_of(call: object) -> PdspanError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return error_from_rpc(caught.value, "prefill")


def message(
    node: LoopbackNode, num_prompt: int = 9, salt: str = "", **others: object
) -> prefill_pb2.RunRequest:
    """For a decode node that nobody needs to reach."""
    asked = request(num_prompt, 3, request_id=f"r{salt}", cache_salt=salt)
    return run_request(asked, node, **others)


async def test_another_epoch_is_refused_by_name() -> None:
    async with prefill_node() as node:
        error = await error_of(prefill(node, message(node, epoch=21)))
        assert type(error).__name__ == "EpochMismatch"
        assert "prefill has epoch 22, the request means 21" in str(error)
        await node.is_empty()


async def test_a_node_that_drains_refuses() -> None:
    async with prefill_node() as node:
        await node.drain.finish(timeout_s=1)
        error = await error_of(prefill(node, message(node)))
        assert type(error).__name__ == "NodeDraining"
        assert "prefill is stopping" in str(error)


async def test_an_unknown_mode_is_refused_with_those_that_exist() -> None:
    async with prefill_node() as node:
        error = await error_of(prefill(node, message(node, mode="teleport")))
        assert type(error).__name__ == "InvalidRequest"
        assert "'teleport'; known: sequential_layer" in str(error)
        assert error.param == "kv_transfer_params.mode"
        await node.is_empty()


async def test_a_prompt_that_can_never_fit_is_refused_with_numbers() -> None:
    async with prefill_node(num_pages=2) as node:
        error = await error_of(prefill(node, message(node)))
        assert type(error).__name__ == "PromptTooLong"
        assert "9 tokens need 3 KV pages; the prefill node has 2" in str(error)
        await node.is_empty()


async def test_a_full_queue_refuses() -> None:
    async with prefill_node(max_queued=0) as node:
        error = await error_of(prefill(node, message(node)))
        assert type(error).__name__ == "NoCapacity"


async def test_a_request_that_no_router_would_send_is_refused() -> None:
    async with prefill_node() as node:
        wrong = message(node)
        wrong.request.max_tokens = 0
        assert type(await error_of(prefill(node, wrong))).__name__ == "InvalidRequest"


async def test_a_token_that_the_model_does_not_have_is_refused() -> None:
    async with prefill_node() as node:
        wrong = message(node)
        wrong.request.prompt_token_ids.append(VOCAB)
        error = await error_of(prefill(node, wrong))
        assert type(error).__name__ == "InvalidRequest"
        assert f"token id {VOCAB}" in str(error)
        assert not node.engine.steps


async def test_hanging_up_while_a_step_is_in_flight() -> None:
    async with prefill_node() as node:
        node.compute.hold()
        call = prefill(node, message(node))
        await node.compute.in_step.wait()
        call.cancel()
        await eventually(lambda: node.engine.pool.counts().draining == 3)
        node.compute.let_go()
        await node.is_empty()


async def test_hanging_up_while_it_waits_for_pages() -> None:
    async with prefill_node(num_pages=3) as node:
        node.compute.hold()
        first = prefill(node, message(node, salt="a"))
        await node.compute.in_step.wait()
        second = asyncio.ensure_future(error_of(prefill(node, message(node, salt="b"))))
        await eventually(lambda: node.worker.num_queued == 1)
        second.cancel()
        await eventually(lambda: node.worker.num_queued == 0)
        first.cancel()
        node.compute.let_go()
        await node.is_empty()


async def test_hanging_up_while_pages_wait_to_be_sent() -> None:
    """Computed, with a decode node that has announced nothing."""
    async with decode_node() as decode, prefill_node() as node:
        asked = request(9, 3)
        call = prefill(node, run_request(asked, decode))
        await eventually(lambda: node.worker.num_running == 0 and node.in_use == 3)
        call.cancel()
        await node.is_empty()
        await decode.is_empty()


async def test_a_defect_in_a_step_ends_the_node_with_its_name() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with prefill_node() as node:
            node.engine.fail_next = ZeroDivisionError()
            await prefill(node, message(node))
    assert caught.group_contains(ZeroDivisionError)


@pytest.mark.parametrize("taper", [True, False])
@pytest.mark.parametrize("mode", MODES)
async def test_chunks_mind_the_path_only_where_pages_leave_during_prefill(
    mode: str, taper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    routes: list[Route | None] = []
    async with prefill_node(transfer=TransferSettings(taper=taper, resume_s=0.05)) as node:
        submit = node.worker.submit

        def seen(asked: GenerationRequest, route: Route | None) -> Job:
            routes.append(route)
            job: Job = submit(asked, route)
            return job

        monkeypatch.setattr(node.worker, "submit", seen)
        await error_of(prefill(node, message(node, mode=mode, decode_address="127.0.0.1:1")))
        assert node.pairs is not None
        path = node.pairs.open("127.0.0.1:1").path
        is_early = MODES[mode].starts is Starts.WHILE_PREFILL_RUNS
        assert routes == [path if is_early and taper else None]
