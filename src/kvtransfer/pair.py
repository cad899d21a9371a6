"""One decode node as this prefill node reaches it: stripes, the Attach stream, the pair's credit.

Known by its address; which node is there, that node says itself. Invariant: ``standing`` is there
exactly while the Attach stream lives and the node on its other end fits this one. What a transfer
has in flight outlives a broken Attach stream: it has its own clock.
"""

import asyncio
import logging
from copy import copy

import grpc

from kvtransfer.changes import Changes
from kvtransfer.credit import Credit
from kvtransfer.framing import decode_standing, encode_attach
from kvtransfer.handshake import PROTOCOL, check_epoch, check_standing
from kvtransfer.messages import AttachRequest, Identity, Standing
from pdcore.cluster import Epoch
from pdcore.errors import LayoutMismatch, PdspanError, PeerUnavailable, ProtocolViolation
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.rpc_errors import error_from_rpc

log = logging.getLogger(__name__)

ATTACH = "/pdwire.v1.KvTransfer/Attach"
PUSH = "/pdwire.v1.KvTransfer/Push"
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 2.0

AttachCallable = grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
PushCall = grpc.aio.StreamStreamCall[bytes, bytes]


class Pair:
    """Made and owned by ``Pairs``, which lets it ``run``."""

    def __init__(
        self,
        address: str,
        channels: list[grpc.aio.Channel],
        sender: Identity,
        layout: KvLayout,
        peers_changed: Changes,
    ) -> None:
        self.address = address
        self.sender = sender
        self.layout = layout
        self.credit = Credit()
        self.peer: Identity | None = None  # the node that answered last, fitting or not
        self.standing: Standing | None = None
        self._channels = channels
        self._forgotten = asyncio.Event()
        self._is_closed = False
        # Raised as a copy: every raise adds its caller's frames to the traceback.
        self._problem: PdspanError = PeerUnavailable(f"{address} is not connected yet")
        self._changed = Changes()
        self._peers_changed = peers_changed
        self._transfers: dict[TransferId, Changes] = {}

    @property
    def name(self) -> str:
        """For messages: the node, or its address while no node has answered there."""
        return self.address if self.peer is None else self.peer.node

    async def run(self) -> None:
        """Attached until it is forgotten, then open until it is idle."""
        try:
            async with asyncio.TaskGroup() as tasks:
                attached = tasks.create_task(self._keep_attached())
                await self._forgotten.wait()
                attached.cancel()
            self._detach(PeerUnavailable(f"{self.name} is no longer known"))
            await self._idle()
        finally:
            await self._close()

    def forget(self) -> None:
        """Nothing new is sent; what is being sent goes on."""
        self._forgotten.set()

    async def attached(self, epoch: Epoch, within_s: float) -> Standing:
        """Wait until the pair is usable. Raises what keeps it from being so, by name:

        LayoutMismatch or EpochMismatch at once, PeerUnavailable after ``within_s``.
        """
        try:
            async with asyncio.timeout(within_s):
                while self.standing is None:
                    if isinstance(self._problem, LayoutMismatch):
                        raise copy(self._problem)
                    await self._changed.next().wait()
        except TimeoutError:
            raise copy(self._problem) from None
        check_epoch(meant=epoch, actual=self.standing.receiver)
        return self.standing

    def open_push(self, stripe: int) -> PushCall:
        """A new Push stream on one stripe; it waits for a connection that is being remade.

        Raises PeerUnavailable when the pair was closed.
        """
        if self._is_closed:
            raise copy(self._problem)
        call: PushCall = self._channels[stripe].stream_stream(PUSH)(wait_for_ready=True)
        return call

    def enroll(self, transfer_id: TransferId, changes: Changes) -> None:
        """The transfer shares the credit from now on; ``changes`` says when it is its turn.

        Raises ProtocolViolation for an id that is being sent already.
        """
        if transfer_id in self._transfers:
            raise ProtocolViolation(f"transfer {transfer_id} is being sent already")
        self._transfers[transfer_id] = changes

    def dismiss(self, transfer_id: TransferId) -> None:
        del self._transfers[transfer_id]
        self.wake_next_in_line()
        self._changed.notify()

    def wake_next_in_line(self) -> None:
        """Call when credit came back or was taken: whose turn it is may be another."""
        next_in_line = self.credit.next_in_line()
        if next_in_line is not None:
            self._transfers[next_in_line].notify()

    async def _keep_attached(self) -> None:
        """Hold the Attach stream open, again and again; ends only when cancelled."""
        delay_s = FIRST_RETRY_S
        while True:
            try:
                await self._attach()
            except grpc.aio.AioRpcError as error:
                problem = error_from_rpc(error, self.name)
            except (LayoutMismatch, ProtocolViolation) as error:
                problem = error
            else:
                problem = PeerUnavailable(f"{self.name} ended the pair")
            delay_s = FIRST_RETRY_S if self.standing else min(2 * delay_s, LAST_RETRY_S)
            self._detach(problem)
            await asyncio.sleep(delay_s)

    async def _idle(self) -> None:
        """Wait until nothing is being sent."""
        while self._transfers:
            await self._changed.next().wait()

    async def _close(self) -> None:
        """Cut everything."""
        self._is_closed = True
        for channel in self._channels:
            await channel.close()

    async def _attach(self) -> None:
        request = encode_attach(AttachRequest(self.sender, self.layout, PROTOCOL))
        for channel in self._channels:
            channel.get_state(try_to_connect=True)
        attach: AttachCallable = self._channels[0].unary_stream(ATTACH)
        async for message in attach(request):
            standing = decode_standing(message)
            self.peer = standing.receiver
            check_standing(standing, self.layout)
            self._stand(standing)

    def _stand(self, standing: Standing) -> None:
        if self.standing is None:
            extra = {"epoch": standing.receiver.epoch}
            log.info("attached to %s at %s", self.name, self.address, extra=extra)
        self.standing = standing
        self.credit.grant(standing.credit_bytes)
        self.wake_next_in_line()
        self._notify()

    def _detach(self, problem: PdspanError) -> None:
        if self.standing is not None or str(problem) != str(self._problem):
            log.warning("not attached to %s at %s: %s", self.name, self.address, problem)
        self.standing = None
        self._problem = problem
        self._notify()

    def _notify(self) -> None:
        self._changed.notify()
        self._peers_changed.notify()
