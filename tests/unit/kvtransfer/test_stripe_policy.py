"""How many connections: as buffers need, and as trials show to be worth it."""

from dataclasses import dataclass
from itertools import pairwise

import pytest

from kvtransfer.path import PathEstimator
from kvtransfer.stripe_policy import FIRST_WAIT_S, START_STRIPES, StripePolicy
from kvtransfer.tcp_sample import TcpSample

RTT_S = 0.05
LINE = 120e6
STOCK_BYTES = 4 * 2**20
NO_BYTES = TcpSample(RTT_S, RTT_S, 0.0, 0.0, 0.0, 0, 0, 0)


def path_with(rate: float, rtt_s: float = RTT_S) -> PathEstimator:
    path = PathEstimator()
    path.on_ping(rtt_s, now=0.0)
    marks = [path.sent(int(rate / 10), now=0.0) for _ in range(10)]
    for number, mark in enumerate(marks, start=1):
        path.delivered(mark, int(rate / 10), now=number / 10)
    assert path.rate_bytes_per_s == pytest.approx(rate)
    return path


@dataclass
class Connections:
    """As many as the policy wants carry pages, each up to ``each``, all up to ``LINE``."""

    policy: StripePolicy
    each: float
    busy: float = 1.0
    rwnd: float = 0.0
    sndbuf: float = 0.0
    resent: float = 0.0
    rtt_s: float = RTT_S
    starts_s: float = 0.0  # how long a new connection carries nothing

    def __post_init__(self) -> None:
        self.now = 0.0
        self.samples: list[TcpSample] = []
        self.opened_s: list[float] = []
        self.history: list[int] = []

    @property
    def rate(self) -> float:
        carrying = [at_s for at_s in self.opened_s if self.now >= at_s + self.starts_s]
        return min(min(len(carrying), self.policy.num_stripes()) * self.each, LINE)

    def run(self, seconds: float) -> int:
        """Says how many connections there are in the end."""
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            num = self.policy.num_stripes()
            while len(self.samples) < num:
                self.samples.append(NO_BYTES)
                self.opened_s.append(self.now)
            self.samples = [
                self._after(sample, self.rate / num if index < num else 0.0)
                for index, sample in enumerate(self.samples)
            ]
            self.policy.on_tcp(self.samples, now=self.now)
            self.history.append(self.policy.num_stripes())
        return self.history[-1]

    def num_trials(self) -> int:
        return sum(after > before for before, after in pairwise(self.history))

    def _after(self, sample: TcpSample, rate: float) -> TcpSample:
        busy_s = 0.1 * self.busy if rate else 0.0
        nbytes = int(0.1 * self.busy * rate)
        return TcpSample(
            rtt_s=self.rtt_s,
            min_rtt_s=RTT_S,
            busy_s=sample.busy_s + busy_s,
            sndbuf_limited_s=sample.sndbuf_limited_s + self.sndbuf * busy_s,
            rwnd_limited_s=sample.rwnd_limited_s + self.rwnd * busy_s,
            bytes_acked=sample.bytes_acked + nbytes,
            bytes_retransmitted=sample.bytes_retransmitted + int(self.resent * nbytes),
            notsent_bytes=0,
        )


def policy(
    send_buffer_bytes: int | None = None,
    *,
    rtt_s: float = RTT_S,
    backs_off_on_loss: bool = True,
) -> StripePolicy:
    return StripePolicy(
        path_with(LINE, rtt_s),
        send_buffer_bytes=send_buffer_bytes,
        backs_off_on_loss=backs_off_on_loss,
    )


def test_few_where_nothing_holds_back() -> None:
    assert StripePolicy(PathEstimator()).num_stripes() == START_STRIPES
    assert policy(64 * 2**20).num_stripes() == START_STRIPES
    assert Connections(policy(), LINE).run(60.0) == START_STRIPES


@pytest.mark.parametrize(("rtt_s", "num"), [(0.001, 1), (0.05, 3), (0.1, 5), (0.2, 8)])
def test_as_many_as_stock_buffers_need(rtt_s: float, num: int) -> None:
    path = path_with(LINE, rtt_s)
    assert StripePolicy(path, send_buffer_bytes=STOCK_BYTES).num_stripes() == num


def test_full_buffers_ask_for_more_until_the_line_is_full() -> None:
    """What is seen grows with the connections: each holds three quarters of its buffer."""
    rtt_s, num, steps = 0.1, START_STRIPES, []
    while num not in steps:
        steps.append(num)
        rate = min(LINE, num * 0.75 * STOCK_BYTES / rtt_s)
        path = path_with(rate, rtt_s)
        num = StripePolicy(path, send_buffer_bytes=STOCK_BYTES).num_stripes()
    assert steps == [1, 2, 3, 4, 5]
    assert steps[-1] * 0.75 * STOCK_BYTES / rtt_s > LINE


@pytest.mark.parametrize("signs", [{"rwnd": 0.5}, {"sndbuf": 0.5}, {"resent": 1e-4}])
def test_more_are_kept_that_bring_more(signs: dict[str, float]) -> None:
    connections = Connections(policy(), LINE / 10, **signs)
    assert connections.run(6.0) == 8
    assert connections.rate == pytest.approx(0.8 * LINE)


@pytest.mark.parametrize("signs", [{"rwnd": 0.5}, {"sndbuf": 0.5}, {"resent": 1e-3}])
def test_more_that_bring_nothing_are_given_up_and_tried_ever_less_often(
    signs: dict[str, float],
) -> None:
    connections = Connections(policy(), LINE, **signs)
    assert connections.run(2.0) == START_STRIPES
    assert connections.num_trials() == 1
    connections.run(FIRST_WAIT_S + 1.0)
    assert connections.num_trials() == 2
    connections.run(120.0)
    assert 4 <= connections.num_trials() <= 6
    assert connections.history.count(START_STRIPES) > 0.9 * len(connections.history)


def test_connections_of_a_trial_may_start_slowly() -> None:
    connections = Connections(policy(), LINE / 10, resent=1e-4, starts_s=0.8)
    assert connections.run(6.0) == 8


def test_known_send_buffers_are_no_question_of_trials() -> None:
    connections = Connections(policy(64 * 2**20), LINE, sndbuf=0.9)
    assert connections.run(30.0) == START_STRIPES
    assert connections.num_trials() == 0


@pytest.mark.parametrize("calm", [policy(backs_off_on_loss=False), policy(rtt_s=0.0005)])
def test_losses_that_do_not_slow_down_ask_for_nothing(calm: StripePolicy) -> None:
    connections = Connections(calm, LINE / 10, resent=1e-3)
    connections.run(30.0)
    assert connections.num_trials() == 0


def test_losses_of_a_full_line_ask_for_nothing() -> None:
    connections = Connections(policy(), LINE, resent=1e-3, rtt_s=1.5 * RTT_S)
    connections.run(30.0)
    assert connections.num_trials() == 0


@pytest.mark.parametrize("backs_off_on_loss", [True, False])
def test_a_path_that_goes_on_losing_packets_is_lossy(backs_off_on_loss: bool) -> None:
    connections = Connections(policy(backs_off_on_loss=backs_off_on_loss), LINE, resent=1e-4)
    connections.run(1.5)
    assert not connections.policy.is_lossy
    connections.run(2.0)
    assert connections.policy.is_lossy
    connections.rtt_s = 1.5 * RTT_S
    connections.run(6.0)
    assert not connections.policy.is_lossy


def test_connections_that_mostly_wait_for_pages_say_nothing() -> None:
    connections = Connections(policy(), LINE / 10, rwnd=0.5, busy=0.5)
    connections.run(30.0)
    assert connections.num_trials() == 0


def test_what_a_trial_added_goes_when_nothing_holds_back_any_more() -> None:
    connections = Connections(policy(), LINE / 10, resent=1e-4)
    assert connections.run(6.0) == 8
    connections.resent = 0.0
    assert connections.run(60.0) <= START_STRIPES + 1


def test_samples_that_come_and_go() -> None:
    """Connections that were closed, or a kernel that does not tell."""
    told = policy()
    for now, num in enumerate([0, 0, 3, 1, 1, 0, 2, 2]):
        told.on_tcp([NO_BYTES] * num, now=float(now))
    assert told.num_stripes() == START_STRIPES
