"""``python -m pdlab.transfer.sender_end``: the end of the link that pages leave from."""

import asyncio
from contextlib import AbstractAsyncContextManager
from time import perf_counter

from pdcore.errors import NotOurs
from pdcore.settings import cluster_from_table
from pdlab.transfer.arm import Place, Sending
from pdlab.transfer.arms import ARMS
from pdlab.transfer.end import OpenArms, run_end
from pdlab.transfer.messages import (
    ArmOpened,
    Message,
    Move,
    OpenArm,
    Sent,
)
from pdlab.transfer.pool import Pool
from pdlab.transfer.usage import cpu_s, peak_rss_bytes, reset_peak_rss

SEED = 1


class SenderEnd:
    def __init__(self, pool: Pool, tasks: asyncio.TaskGroup) -> None:
        pool.fill()
        self._pool = pool
        self.arms: OpenArms[Sending] = OpenArms(tasks)

    async def answer(self, request: Message) -> Message:
        match request:
            case OpenArm():
                await self.arms.open(request.arm, self._sending(request))
                return ArmOpened()
            case Move():
                return await self._send(request)
            case _:
                raise NotOurs(f"a sender does not understand {type(request).__name__}")

    def _sending(self, request: OpenArm) -> AbstractAsyncContextManager[Sending]:
        settings = cluster_from_table({}, request.overrides).transfer
        place = Place(self._pool, request.host, settings)
        return ARMS[request.arm].sending(place, request.peer)

    async def _send(self, move: Move) -> Sent:
        sending = self.arms[move.arm]
        reset_peak_rss()
        cpu_before_s, before_s = cpu_s(), perf_counter()
        told = await sending.send(move)
        duration_s = perf_counter() - before_s
        return Sent(duration_s, cpu_s() - cpu_before_s, peak_rss_bytes(), told)


if __name__ == "__main__":
    run_end(SEED, SenderEnd)
