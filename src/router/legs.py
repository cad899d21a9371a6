"""The two calls of one request, with their failures as errors of ours.

A leg owns its call: leaving it, however, cancels what still runs at the other end, and the node's
``finally`` gives back what it holds. Which leg starts when, and what one's failure means for the
other, is the relay's business.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress

import grpc

from pdcore.cluster import NodeView
from pdcore.errors import PeerUnavailable
from pdcore.rpc_errors import error_from_rpc
from pdwire.v1 import decode_pb2, decode_pb2_grpc, prefill_pb2, prefill_pb2_grpc


class GenerateLeg:
    """An open ``Decode.Generate``."""

    def __init__(self, channel: grpc.aio.Channel, node: NodeView) -> None:
        self._peer = _name(node)
        self._call = decode_pb2_grpc.DecodeStub(channel).Generate()  # type: ignore[no-untyped-call]

    def __enter__(self) -> "GenerateLeg":
        return self

    def __exit__(self, *_: object) -> None:
        self._call.cancel()

    async def open(self, opening: decode_pb2.GenerateCommand.Open) -> None:
        await self._send(decode_pb2.GenerateCommand(open=opening))

    async def stop_choice(self, choice: int) -> None:
        stop = decode_pb2.GenerateCommand.StopChoice(choice=choice)
        await self._send(decode_pb2.GenerateCommand(stop_choice=stop))

    async def events(self) -> AsyncGenerator[decode_pb2.GenerateEvent, None]:
        """Until the node ends the call well; raises the PdspanError that it ended with."""
        with _our_errors(self._peer):
            async for event in self._call:
                yield event

    async def _send(self, command: decode_pb2.GenerateCommand) -> None:
        # A call that is over takes no command; ``events`` tells how it ended.
        with _our_errors(self._peer), suppress(asyncio.InvalidStateError):
            await self._call.write(command)


async def run_prefill(
    channel: grpc.aio.Channel, node: NodeView, request: prefill_pb2.RunRequest
) -> prefill_pb2.RunResult:
    """``Prefill.Run``, until the decode node has committed the pages."""
    stub = prefill_pb2_grpc.PrefillStub(channel)  # type: ignore[no-untyped-call]
    with _our_errors(_name(node)):
        result: prefill_pb2.RunResult = await stub.Run(request)
        return result


@contextmanager
def _our_errors(peer: str) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise error_from_rpc(error, peer) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Nobody cancelled this task: its channel was closed under it.
        raise PeerUnavailable(f"the connection to {peer} was closed") from None


def _name(node: NodeView) -> str:
    return f"{node.info.role} node {node.info.name}"
