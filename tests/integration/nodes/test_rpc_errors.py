"""An error of ours crosses gRPC as itself; what gRPC says by itself gets a name of ours."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from pdcore import rpc
from pdcore.errors import InternalError, InvalidRequest, NoCapacity, PdspanError, RequestCancelled
from pdcore.rpc import new_server, open_channel
from pdcore.rpc_errors import aborting, error_from_rpc
from pdcore.settings import TlsSettings
from pdwire.v1 import prefill_pb2, prefill_pb2_grpc
from pdwire.v1.generation_pb2 import GenerationRequest

Behaviour = Callable[[], Awaitable[Any]]


def tree(cls: type[PdspanError] = PdspanError) -> list[type[PdspanError]]:
    return [cls, *(deeper for child in cls.__subclasses__() for deeper in tree(child))]


class Service:
    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self.ended_with: BaseException | None = None

    async def Run(self, _: prefill_pb2.RunRequest, context: Any) -> prefill_pb2.RunResult:
        try:
            async with aborting(context, "request-7"):
                await self._behaviour()
        except BaseException as error:
            self.ended_with = error
            raise
        return prefill_pb2.RunResult()


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[tuple[Any, Service, grpc.aio.Server]]:
    server, service = new_server(), Service(behaviour)
    prefill_pb2_grpc.add_PrefillServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}", TlsSettings()) as channel:
            yield prefill_pb2_grpc.PrefillStub(channel).Run, service, server
    finally:
        await server.stop(None)


async def received(call: Any) -> PdspanError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value, "prefill-1")


def raising(error: BaseException) -> Behaviour:
    async def behaviour() -> None:
        raise error

    return behaviour


async def crossed(error: BaseException) -> PdspanError:
    async with serving(raising(error)) as (run, _, _):
        return await received(run(prefill_pb2.RunRequest()))


@pytest.mark.parametrize("cls", tree())
async def test_every_class_crosses_as_itself(cls: type[PdspanError]) -> None:
    error = await crossed(cls("what was wrong, and what would be right"))
    assert type(error) is cls
    assert error.message == "what was wrong, and what would be right"
    assert error.param is None


async def test_the_field_crosses_too() -> None:
    assert (await crossed(InvalidRequest("no", param="kv_transfer_params.mode"))).param == (
        "kv_transfer_params.mode"
    )


@pytest.mark.parametrize("message", ["é ↯ 漢", "two\nlines", "50 % of 'x' \"y\"", ""])
async def test_any_text_crosses(message: str) -> None:
    error = await crossed(NoCapacity(message))
    assert type(error) is NoCapacity
    assert error.message == message or (not message and error.message == "RESOURCE_EXHAUSTED")


async def test_a_long_message_crosses_as_its_class() -> None:
    error = await crossed(InvalidRequest("é" * 20_000))
    assert type(error) is InvalidRequest
    assert error.message.startswith("ééé") and error.message.endswith("é ...")


async def test_a_task_group_crosses_as_its_cause() -> None:
    group = ExceptionGroup("tasks", [RequestCancelled("an echo"), NoCapacity("no room")])
    error = await crossed(group)
    assert (type(error), error.message) == (NoCapacity, "no room")


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_defect_crosses_as_an_internal_error_and_its_traceback_stays(
    grouped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    defect: Exception = KeyError("secret")
    error = await crossed(ExceptionGroup("tasks", [defect]) if grouped else defect)
    assert type(error) is InternalError
    assert error.message == "KeyError in this node; see its log"
    (record,) = [record for record in caplog.records if record.name == "pdcore.rpc_errors"]
    assert record.request_id == "request-7" and record.exc_info  # type: ignore[attr-defined]


async def test_a_call_that_is_cancelled_is_cancelled_inside() -> None:
    started = asyncio.Event()

    async def behaviour() -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    async with serving(behaviour) as (run, service, _):
        call = run(prefill_pb2.RunRequest())
        await started.wait()
        call.cancel()
        async with asyncio.timeout(10):
            while service.ended_with is None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert isinstance(service.ended_with, asyncio.CancelledError)


async def test_a_deadline_is_the_clients_deadline() -> None:
    async def behaviour() -> None:
        await asyncio.get_running_loop().create_future()

    async with serving(behaviour) as (run, _, _):
        error = await received(run(prefill_pb2.RunRequest(), timeout=0.05))
    assert type(error).__name__ == "DeadlineExceeded"
    assert "prefill-1" in str(error)


async def test_a_node_that_is_gone_is_named() -> None:
    async with serving(raising(NoCapacity("x"))) as (run, _, server):
        await server.stop(None)
        error = await received(run(prefill_pb2.RunRequest()))
    assert type(error).__name__ == "PeerUnavailable"
    assert str(error).startswith("prefill-1 cannot be reached or died")


async def test_a_node_that_dies_in_a_call_is_named() -> None:
    started = asyncio.Event()

    async def behaviour() -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    async with serving(behaviour) as (run, _, server):
        call = run(prefill_pb2.RunRequest())
        await started.wait()
        await server.stop(None)
        assert type(await received(call)).__name__ in ("PeerUnavailable", "RequestCancelled")


async def test_a_message_that_is_too_large_is_the_requests_fault() -> None:
    request = GenerationRequest(prompt_token_ids=[2**31] * (rpc.MAX_MESSAGE_BYTES // 5 + 100))
    async with serving(raising(NoCapacity("x"))) as (run, _, _):
        error = await received(run(prefill_pb2.RunRequest(request=request)))
    assert type(error).__name__ == "InvalidRequest"
    assert "prefill-1 refused a message" in str(error)


async def test_an_unknown_method_is_an_internal_error_with_its_status() -> None:
    server = new_server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}", TlsSettings()) as channel:
        error = await received(channel.unary_unary("/pdwire.v1.Prefill/Walk")(b""))
    await server.stop(None)
    assert type(error) is InternalError
    assert "UNIMPLEMENTED" in str(error)
