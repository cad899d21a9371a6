"""The pair of a prefill and a decode node, over real loopback sockets."""

import asyncio
from dataclasses import replace

import pytest

from kvtransfer.channels import Pairs
from kvtransfer.receiver import KvReceiver
from page_memory import RECEIVER, SENDER, PageMemory
from pdcore.cluster import Epoch
from pdcore.errors import EpochMismatch, LayoutMismatch, PeerUnavailable
from pdcore.settings import TlsSettings
from waiting import raises, until
from wired_pair import LAYOUT, SETTINGS, produce, serving, wired


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
            pairs.pair(RECEIVER.node, f"127.0.0.1:{port}")
            assert await anext(changes) == {(RECEIVER.node, RECEIVER.epoch)}
            receiver.close()
            assert await anext(changes) == frozenset()
        await changes.aclose()


async def test_a_forgotten_pair_finishes_what_it_sends() -> None:
    async with wired() as wire:
        sender = wire.sender("t")
        async with asyncio.TaskGroup() as tasks:
            received = tasks.create_task(wire.receive("t"))
            tasks.create_task(sender.run())
            sender.pages_ready(10)
            await until(lambda: wire.sink.num_writes.total() > 0)
            wire.pairs.forget(RECEIVER.node, wire.pair.address)
            await until(lambda: wire.pair.standing is None)
            assert wire.pairs.peers == frozenset()
            await produce(sender)
        assert received.result().first_token_ids == (5, 6)
        with pytest.raises(PeerUnavailable, match="is no longer known"):
            await wire.sender("next").run()
        assert wire.pairs.pair(RECEIVER.node, wire.pair.address) is not wire.pair


async def test_closing_the_pairs_ends_what_is_sent() -> None:
    async with wired() as wire, asyncio.TaskGroup() as tasks:
        async with Pairs(SENDER, LAYOUT, SETTINGS, TlsSettings()) as pairs:
            wire.pair = pairs.pair(RECEIVER.node, wire.pair.address)
            sender = wire.sender("t")
            tasks.create_task(raises(PeerUnavailable, wire.receive("t")))
            sent = tasks.create_task(raises(PeerUnavailable, sender.run()))
            sender.pages_ready(10)
            await until(lambda: wire.sink.num_writes.total() > 0)
        await sent
        wire.assert_balanced()
