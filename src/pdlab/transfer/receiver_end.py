"""``python -m pdlab.transfer.receiver_end``: the end of the link where pages arrive.

A move is announced first: its pages are wiped, then it is expected. When the sender has sent, the
runner collects it: every page is compared with the digest that the sender computed beforehand.
"""

import asyncio
from dataclasses import dataclass

from pdcore.errors import NotOurs, PdspanError, PeerUnavailable
from pdcore.settings import cluster_from_table
from pdlab.transfer.arm import Place, Receiving
from pdlab.transfer.arms import ARMS
from pdlab.transfer.end import OpenArms, run_end
from pdlab.transfer.messages import (
    ArmOpened,
    Collect,
    Collected,
    Expected,
    Expecting,
    Message,
    Move,
    OpenArm,
)
from pdlab.transfer.pool import Extent, Pool, joint_digest, num_wrong
from pdlab.transfer.usage import cpu_s, peak_rss_bytes, reset_peak_rss

SEED = 2


@dataclass(frozen=True, slots=True)
class _Arriving:
    move: Move
    task: "asyncio.Task[PdspanError | None]"
    cpu_before_s: float


class ReceiverEnd:
    def __init__(self, pool: Pool, tasks: asyncio.TaskGroup) -> None:
        self._pool = pool
        self._tasks = tasks
        self.arms: OpenArms[Receiving] = OpenArms(tasks)
        self._arriving: dict[str, _Arriving] = {}
        self._digests = ""

    async def answer(self, request: Message) -> Message:
        match request:
            case Expected():
                self._digests = request.digests
                return Expecting()
            case OpenArm():
                return ArmOpened((await self._open(request)).peer)
            case Move():
                return await self._expect(request)
            case Collect():
                return await self._collect(request.name)
            case _:
                raise NotOurs(f"a receiver does not understand {type(request).__name__}")

    async def _open(self, request: OpenArm) -> Receiving:
        settings = cluster_from_table({}, request.overrides).transfer
        place = Place(self._pool, request.host, settings)
        return await self.arms.open(request.arm, ARMS[request.arm].receiving(place))

    async def _expect(self, move: Move) -> Expecting:
        self._pool.wipe(_extent(move))
        reset_peak_rss()
        before_s, ready = cpu_s(), asyncio.Event()
        task = self._tasks.create_task(_receive(self.arms[move.arm], move, ready))
        self._arriving[move.name] = _Arriving(move, task, before_s)
        await ready.wait()
        return Expecting()

    async def _collect(self, name: str) -> Collected:
        arriving = self._arriving.pop(name)
        failure = await arriving.task
        if failure is not None:
            raise failure
        used_s, peak_bytes = cpu_s() - arriving.cpu_before_s, peak_rss_bytes()
        digests = self._pool.digests(_extent(arriving.move))
        wrong = num_wrong(digests, self._digests, arriving.move.first_page)
        return Collected(used_s, peak_bytes, wrong, joint_digest(digests))


async def _receive(arm: Receiving, move: Move, ready: asyncio.Event) -> PdspanError | None:
    """What went wrong is told to whoever collects it; this end goes on."""
    try:
        await arm.receive(move, ready)
    except PdspanError as error:
        return error
    except OSError as error:
        return PeerUnavailable(str(error))
    finally:
        ready.set()
    return None


def _extent(move: Move) -> Extent:
    return Extent(move.first_page, move.num_pages)


if __name__ == "__main__":
    run_end(SEED, ReceiverEnd)
