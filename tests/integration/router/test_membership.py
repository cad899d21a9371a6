"""A node is in view exactly while it answers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import grpc
import pytest

from fake_nodes import FakeDecode, FakePrefill, FixedDiscovery, Pair, until
from pdcore.cluster import NodeView
from pdcore.discovery import Snapshot
from pdcore.errors import PeerUnavailable
from pdcore.settings import TlsSettings
from pdwire.v1 import node_pb2, node_pb2_grpc
from router import membership as membership_module
from router.membership import Membership, backoff_s

pytestmark = pytest.mark.timeout(20)


@asynccontextmanager
async def following(discovery: FixedDiscovery) -> AsyncIterator[Membership]:
    membership = Membership(discovery, TlsSettings(), linger_s=0.5, model="tiny")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(membership.run())
        yield membership
        task.cancel()


async def test_nodes_appear_and_their_loss_is_seen() -> None:
    async with Pair() as pair, following(FixedDiscovery(pair.snapshot)) as membership:
        await until(lambda: membership.view().pairs())
        view = membership.view()
        assert [node.info for node in view.prefill] == [pair.prefill.view.info]
        assert [node.info for node in view.decode] == [pair.decode.view.info]
        await pair.decode.server.stop(0)
        await until(lambda: not membership.view().decode)
        with pytest.raises(PeerUnavailable, match="d0 does not answer"):
            membership.channel(pair.decode.view.info)


async def test_a_restarted_node_replaces_its_old_self() -> None:
    async with Pair() as pair, following(FixedDiscovery(pair.snapshot)) as membership:
        await until(lambda: membership.view().pairs())
        port = int(pair.decode.address.rpartition(":")[2])
        await pair.decode.server.stop(0)
        reborn = FakeDecode()
        await reborn.start(epoch=2, port=port)
        await until(lambda: [node.info.epoch for node in membership.view().decode] == [2])
        assert membership.view().pairs() == ()  # prefill still knows the old epoch only
        await reborn.server.stop(0)


async def test_of_two_nodes_with_one_name_the_one_heard_last_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node that restarted at a new address while its old stream lingers, or a misnamed one: what
    is placed by the view goes to the node that the view means."""
    async with Pair() as pair:
        namesake = FakeDecode()
        await namesake.start(epoch=2)
        snapshot = pair.snapshot | {namesake.endpoint}
        async with following(FixedDiscovery(snapshot)) as membership:
            await until(lambda: len(membership._members) == 3)
            for node in (pair.decode, namesake, pair.decode):
                view = node.view
                node.status.changed()
                await until(partial(is_in_view, membership, view))
                assert await epoch_behind(membership.channel(view.info)) == view.info.epoch
        await namesake.server.stop(0)
    assert caplog.text.count("two nodes are named d0") == 1


def is_in_view(membership: Membership, node: NodeView) -> bool:
    return node in membership.view().decode


async def epoch_behind(channel: grpc.aio.Channel) -> int:
    call = node_pb2_grpc.NodeStub(channel).Watch(  # type: ignore[no-untyped-call]
        node_pb2.WatchRequest()
    )
    status = await call.read()
    call.cancel()
    epoch: int = status.info.epoch
    return epoch


async def test_changes_are_seen_at_once() -> None:
    async with Pair() as pair, following(FixedDiscovery(pair.snapshot)) as membership:
        await until(lambda: membership.view().pairs())
        await pair.prefill.status.drain()
        await until(lambda: membership.view().prefill[0].draining)


async def test_a_silent_node_is_out_of_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat comes every half second, so a limit below that makes every node silent."""
    monkeypatch.setattr(membership_module, "SILENCE_S", 0.2)
    async with Pair() as pair, following(FixedDiscovery(pair.snapshot)) as membership:
        await until(lambda: membership.view().decode)
        await until(lambda: not membership.view().decode)
        await until(lambda: membership.view().decode)  # it is asked again, and answers


async def test_a_stall_of_the_router_loses_no_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When it wakes, the timer has rung, and what the nodes said meanwhile still waits."""
    monkeypatch.setattr(membership_module, "SILENCE_S", 1.2)
    async with Pair() as pair, following(FixedDiscovery(pair.snapshot)) as membership:
        await until(lambda: membership.view().pairs())
        for _ in range(2):
            time.sleep(2)  # noqa: ASYNC251
            await asyncio.sleep(0.05)
            assert membership.view().pairs()
    assert "lost" not in caplog.text


async def test_snapshots_add_and_remove_nodes() -> None:
    empty: Snapshot = frozenset()
    async with Pair() as pair, following(FixedDiscovery(pair.snapshot)) as membership:
        discovery = membership._discovery
        assert isinstance(discovery, FixedDiscovery)
        await until(lambda: membership.view().pairs())
        second = FakePrefill("p1")
        await second.start()
        discovery.snapshots.put_nowait(pair.snapshot | {second.endpoint})
        await until(lambda: [node.info.name for node in membership.view().prefill] == ["p0", "p1"])
        discovery.snapshots.put_nowait(empty)
        await until(lambda: membership.view().prefill == membership.view().decode == ())
        await second.server.stop(0)


async def test_a_status_that_cannot_be_read_is_no_node() -> None:
    async with Pair() as pair:
        pair.decode.status._info = replace(pair.decode.view.info, role="overseer")  # type: ignore[arg-type]
        async with following(FixedDiscovery(pair.snapshot)) as membership:
            await until(lambda: membership.view().prefill)
            await asyncio.sleep(0.2)
            assert membership.view().decode == ()


async def test_nodes_of_another_model_are_not_offered(caplog: pytest.LogCaptureFixture) -> None:
    """Started with another directory, the router would send them token ids of its own model."""
    async with Pair() as pair:
        other = replace(pair.decode.view.info, model="other")
        pair.decode.status._info = other
        async with following(FixedDiscovery(pair.snapshot)) as membership:
            await until(lambda: membership.view().strangers and membership.view().prefill)
            view = membership.view()
    assert view.decode == () and [node.info for node in view.strangers] == [other]
    assert "node d0 serves model 'other', this router 'tiny'" in caplog.text


def test_backoff_grows_to_a_bound_and_is_spread() -> None:
    assert backoff_s(0, 0.0) == pytest.approx(0.05)
    assert backoff_s(0, 1.0) == pytest.approx(0.1)
    waits = [backoff_s(failures, 1.0) for failures in range(2000)]
    assert waits == sorted(waits) and waits[-1] == membership_module.MAX_BACKOFF_S
