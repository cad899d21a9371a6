"""The pair of a prefill and a decode node, over real loopback sockets."""

import asyncio
from dataclasses import replace

import pytest

from kvtransfer.channels import Pairs
from kvtransfer.messages import Identity
from kvtransfer.receiver import KvReceiver
from page_memory import RECEIVER, SENDER, PageMemory
from pdcore.cluster import Epoch
from pdcore.errors import EpochMismatch, LayoutMismatch, PeerUnavailable
from pdcore.settings import TlsSettings
from waiting import raises, until
from wired_pair import LAYOUT, SETTINGS, produce, serving, wired

OTHER_LIFE = Identity(RECEIVER.node, Epoch(21))


async def test_other_epoch_is_named() -> None:
    async with wired() as wire:
        sender = wire.sender("t", epoch=Epoch(21))
        with pytest.raises(EpochMismatch, match="decode-0 has epoch 16, 15 was meant"):
            await sender.run()


async def test_other_layout_is_named() -> None:
    async with wired(layout=replace(LAYOUT, page_tokens=32)) as wire:
        with pytest.raises(LayoutMismatch, match="page_tokens: 16 here, 32 there"):
            await wire.sender("t").run()


async def test_nobody_listens() -> None:
    async with wired() as wire:
        await wire.pair.attached(RECEIVER.epoch, 5.0)
        wire.relay.accepts = False
        wire.relay.cut()
        await until(lambda: wire.pair.standing is None)
        with pytest.raises(PeerUnavailable, match="decode-0"):
            await wire.sender("t").run()


async def test_peers_follow_the_attach_streams() -> None:
    receiver = KvReceiver(RECEIVER, LAYOUT, PageMemory(LAYOUT, 1), SETTINGS)
    async with Pairs(SENDER, LAYOUT, SETTINGS, TlsSettings()) as pairs:
        changes = pairs.watch_changes()
        assert await anext(changes) == frozenset()
        async with serving(receiver) as port:
            pairs.open(f"127.0.0.1:{port}")
            assert await anext(changes) == {(RECEIVER.node, RECEIVER.epoch)}
            receiver.close()
            assert await anext(changes) == frozenset()
        await changes.aclose()


async def test_a_pair_is_found_by_the_node_that_answered(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever address that node calls its own; also while the connection is being remade."""
    elsewhere = "decode.example:7001"
    async with wired() as wire:
        with pytest.raises(PeerUnavailable, match=r"prefill-0 has no connection to decode-0 \(ep"):
            wire.pairs.find(RECEIVER, elsewhere)
        with caplog.at_level("INFO"):
            await wire.pair.attached(RECEIVER.epoch, 5.0)
        assert f"attached to decode-0 at {wire.pair.address}" in caplog.messages
        assert wire.pairs.find(RECEIVER, elsewhere) is wire.pair
        wire.relay.accepts = False
        wire.relay.cut()
        await until(lambda: wire.pair.standing is None)
        assert wire.pairs.find(RECEIVER, elsewhere) is wire.pair
        with pytest.raises(PeerUnavailable, match="decode-0"):
            wire.pairs.find(OTHER_LIFE, elsewhere)
        wire.pairs.forget(wire.pair.address)
        with pytest.raises(PeerUnavailable, match="decode-0"):
            wire.pairs.find(RECEIVER, wire.pair.address)


async def test_a_pair_that_is_attached_comes_before_one_that_was() -> None:
    """A node behind two addresses."""
    async with wired() as wire, serving(wire.receiver) as port:
        await wire.pair.attached(RECEIVER.epoch, 5.0)
        second = wire.pairs.open(f"127.0.0.1:{port}")
        await second.attached(RECEIVER.epoch, 5.0)
        wire.relay.accepts = False
        wire.relay.cut()
        await until(lambda: wire.pair.standing is None)
        assert wire.pairs.find(RECEIVER, wire.pair.address) is second


async def test_another_life_of_the_node_at_that_address_is_named() -> None:
    """The decode node restarted, and the request or the pair does not know it yet."""
    async with wired() as wire:
        pair = wire.pairs.find(OTHER_LIFE, wire.pair.address)
        with pytest.raises(EpochMismatch, match="decode-0 has epoch 16, 15 was meant"):
            await pair.attached(OTHER_LIFE.epoch, 5.0)


async def test_an_address_is_opened_once() -> None:
    async with wired() as wire:
        assert wire.pairs.open(wire.pair.address) is wire.pair


async def test_a_forgotten_pair_finishes_what_it_sends() -> None:
    async with wired() as wire:
        sender = wire.sender("t")
        async with asyncio.TaskGroup() as tasks:
            received = tasks.create_task(wire.receive("t"))
            tasks.create_task(sender.run())
            sender.pages_ready(10)
            await until(lambda: wire.sink.num_writes.total() > 0)
            wire.pairs.forget(wire.pair.address)
            await until(lambda: wire.pair.standing is None)
            assert wire.pairs.peers == frozenset()
            await produce(sender)
        assert received.result().first_token_ids == (5, 6)
        with pytest.raises(PeerUnavailable, match="is no longer known"):
            await wire.sender("next").run()
        assert wire.pairs.open(wire.pair.address) is not wire.pair


async def test_closing_the_pairs_ends_what_is_sent() -> None:
    async with wired() as wire, asyncio.TaskGroup() as tasks:
        async with Pairs(SENDER, LAYOUT, SETTINGS, TlsSettings()) as pairs:
            wire.pair = pairs.open(wire.pair.address)
            sender = wire.sender("t")
            tasks.create_task(raises(PeerUnavailable, wire.receive("t")))
            sent = tasks.create_task(raises(PeerUnavailable, sender.run()))
            sender.pages_ready(10)
            await until(lambda: wire.sink.num_writes.total() > 0)
        await sent
        wire.assert_balanced()


async def test_states_are_one_for_each_node_that_answered() -> None:
    """A node behind two addresses is one, and nobody is told of an address where no node is."""
    async with wired() as wire:
        assert wire.pairs.states() == []
        async with serving(wire.receiver) as port:
            await wire.pair.attached(RECEIVER.epoch, 5.0)
            await wire.pairs.open(f"127.0.0.1:{port}").attached(RECEIVER.epoch, 5.0)
            wire.pairs.open("127.0.0.1:1")
            await until(lambda: wire.pair.path.rtt_s is not None)
            (state,) = wire.pairs.states()
    assert state.peer == RECEIVER.node
    assert state.credit_bytes == SETTINGS.credit_bytes
    assert state.window_bytes > 0
    assert state.in_flight_bytes == state.warmup_bytes == 0
