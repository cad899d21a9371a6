"""One decode node as this prefill node reaches it: its connections, the Attach stream, its path.

Known by its address; which node is there, that node says itself. Invariant: ``standing`` is there
exactly while the Attach stream lives and the node on its other end fits this one. What a transfer
has in flight outlives a broken Attach stream: it has its own clock. Attach and pings have a
connection of their own, so that neither waits behind pages.
"""

import asyncio
import logging
from copy import copy
from time import monotonic

import grpc

from kvtransfer.changes import Changes
from kvtransfer.credit import Credit
from kvtransfer.data_channels import DataChannels, Dialer, PushStream
from kvtransfer.framing import decode_standing, encode_attach
from kvtransfer.handshake import PROTOCOL, check_epoch, check_standing
from kvtransfer.kernel_tcp import backs_off_on_loss, max_send_buffer_bytes
from kvtransfer.limits import MODES
from kvtransfer.messages import AttachRequest, Identity, Standing
from kvtransfer.path import PathEstimator
from kvtransfer.path_watch import pings, tcp_samples
from kvtransfer.stripe_policy import StripePolicy
from kvtransfer.tcp_backlog import TcpBacklog
from kvtransfer.warmer import Busy, Warmer
from pdcore.cluster import Epoch
from pdcore.errors import LayoutMismatch, PdspanError, PeerUnavailable, ProtocolViolation
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.rpc_errors import error_from_rpc
from pdcore.settings import TransferSettings

log = logging.getLogger(__name__)

ATTACH = "/pdwire.v1.KvTransfer/Attach"
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 2.0
UNANSWERED_S = 1.0  # after a ping without an answer

AttachCallable = grpc.aio.UnaryStreamMultiCallable[bytes, bytes]


class Pair:
    """Made and owned by ``Pairs``, which lets it ``run``."""

    def __init__(
        self,
        dialer: Dialer,
        sender: Identity,
        layout: KvLayout,
        settings: TransferSettings,
        peers_changed: Changes,
    ) -> None:
        self.address = dialer.address
        self.sender = sender
        self.layout = layout
        self.credit = Credit()
        self.path = PathEstimator()
        self.send_buffer_bytes = max_send_buffer_bytes()  # the most of one connection
        self.stripes = StripePolicy(
            self.path,
            send_buffer_bytes=self.send_buffer_bytes,
            backs_off_on_loss=backs_off_on_loss(),
        )
        self.peer: Identity | None = None  # the node that answered last, fitting or not
        self.standing: Standing | None = None
        self.tcp_rtt_s: float | None = None  # the least that the kernel saw of late
        self.tcp_backlog = TcpBacklog()
        self._settings = settings
        self._control = dialer.dial()
        self._data = DataChannels(dialer)
        self._busy = Busy()
        self._warmer = Warmer(
            self._data, self.path, self.stripes, self._busy, settings.warmup_bytes
        )
        self._forgotten = asyncio.Event()
        self._is_closed = False
        # Raised as a copy: every raise adds its caller's frames to the traceback.
        self._problem: PdspanError = PeerUnavailable(f"{self.address} is not connected yet")
        self._changed = Changes()
        self._peers_changed = peers_changed
        self._transfers: dict[TransferId, Changes] = {}

    @property
    def name(self) -> str:
        """For messages: the node, or its address while no node has answered there."""
        return self.address if self.peer is None else self.peer.node

    @property
    def warmup_bytes(self) -> int:
        """Sent to warm connections so far."""
        return self._warmer.warmup_bytes

    def take_warmup_bytes(self) -> int:
        """Those since the last call: what the transfer that asks was preceded by."""
        return self._warmer.take_unreported_bytes()

    async def run(self) -> None:
        """Attached until it is forgotten, then open until it is idle."""
        try:
            async with asyncio.TaskGroup() as tasks:
                attached = tasks.create_task(self._keep_attached())
                others = [self._keep_pinging(), self._watch_tcp(), self._warmer.run()]
                watching = [tasks.create_task(other) for other in others]
                await self._forgotten.wait()
                attached.cancel()
                self._detach(PeerUnavailable(f"{self.name} is no longer known"))
                await self._idle()
                for task in watching:
                    task.cancel()
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

    def expect_transfer(self, nbytes: int) -> None:
        """Call when a prompt is admitted whose pages are to come: cold connections are warmed."""
        self._warmer.expect(nbytes)

    def expect_pages(self, nbytes: int, at_s: float) -> None:
        """Call when the last pages of a transfer may be ready from ``at_s`` on, after a rest."""
        self._warmer.expect_later(nbytes, at_s=at_s)

    def frame_leaves(self) -> None:
        """Call when pages are about to be sent: a warm-up makes way."""
        self._warmer.frame_leaves()

    def open_push(self, transfer_id: TransferId) -> PushStream:
        """A new Push stream; it waits for a connection that is being remade.

        Raises PeerUnavailable when the pair was closed.
        """
        if self._is_closed:
            raise copy(self._problem)
        return self._data.open_push(transfer_id, self.name)

    def enroll(self, transfer_id: TransferId, changes: Changes) -> None:
        """The transfer shares the credit from now on; ``changes`` says when it is its turn.

        Raises ProtocolViolation for an id that is being sent already.
        """
        if transfer_id in self._transfers:
            raise ProtocolViolation(f"transfer {transfer_id} is being sent already")
        self._transfers[transfer_id] = changes
        self._busy.begin()

    def dismiss(self, transfer_id: TransferId) -> None:
        del self._transfers[transfer_id]
        self._busy.end()
        self.wake_next_in_line()
        self._changed.notify()

    def pass_turn(self, transfer_id: TransferId) -> None:
        """Call when that transfer sends nothing now: it may have left the line to another."""
        if self.credit.next_in_line() != transfer_id:
            self.wake_next_in_line()

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

    async def _keep_pinging(self) -> None:
        """While attached; ends only when cancelled."""
        while True:
            change = self._changed.next()
            if self.standing is None:
                await change.wait()
                continue
            async for pong in pings(self._control, self._busy.event):
                self.path.on_ping(pong.rtt_s, now=monotonic())
                self.wake_next_in_line()
                self._warmer.path_changed()
            await asyncio.sleep(UNANSWERED_S)

    async def _watch_tcp(self) -> None:
        """Ends only when cancelled."""
        async for samples in tcp_samples(self.address, self._data, self._busy.event, self.path):
            now = monotonic()
            self.stripes.on_tcp(samples, now=now)
            self.tcp_backlog.on_tcp(samples, now=now)
            self.path.is_lossy = self.stripes.is_lossy
            seen_s = (sample.min_rtt_s for sample in samples)
            self.tcp_rtt_s = min(seen_s, default=self.tcp_rtt_s)

    def _num_connections(self) -> int:
        """Those that are opened at once; a transfer that needs more opens them."""
        is_striped = MODES[self._settings.mode].striped
        return max(self.stripes.num_stripes(), self._settings.stripes if is_striped else 1)

    async def _idle(self) -> None:
        """Wait until nothing is being sent."""
        while self._transfers:
            await self._changed.next().wait()

    async def _close(self) -> None:
        """Cut everything."""
        self._is_closed = True
        await self._control.close()
        await self._data.close()

    async def _attach(self) -> None:
        request = encode_attach(AttachRequest(self.sender, self.layout, PROTOCOL))
        self._control.get_state(try_to_connect=True)
        attach: AttachCallable = self._control.unary_stream(ATTACH)
        async for message in attach(request):
            standing = decode_standing(message)
            self.peer = standing.receiver
            check_standing(standing, self.layout)
            self._stand(standing)

    def _stand(self, standing: Standing) -> None:
        if self.standing is None:
            extra = {"epoch": standing.receiver.epoch}
            log.info("attached to %s at %s", self.name, self.address, extra=extra)
            self._data.open(self._num_connections())
            self._warmer.opened()
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
