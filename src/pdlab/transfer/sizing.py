"""How many pages a repetition moves, so that it ends within its time; and what is carried before.

An arm that waits for an acknowledgement after each frame is sized by the model, since what its
connections can carry says nothing; every other arm by the rate that it showed while it warmed up.
"""

from dataclasses import dataclass

from kvtransfer.limits import MODES, SendLimits
from kvtransfer.path_model import Path, sequential_bytes_per_s
from pdlab.link import LinkProfile
from pdlab.transfer.trial import Trial

LINE_SHARE = 0.965  # payload of a full packet: 1448 of 1500 bytes
USED_SHARE = 0.8  # of the time limit, since a prediction may be wrong
FRAME_COST_S = 0.0008  # a guess for small frames on a slow machine: too long is safe
BDPS_OF_A_WARM_MOVE = 2
LEAST_WARM_BYTES = 4 * 2**20
LEAST_FRAMES = 4


@dataclass(frozen=True, slots=True)
class WarmUp:
    """All arms alike: so many moves of so many pages, and one more before each repetition."""

    num_pages: int
    num_moves: int


def line_bytes_per_s(profile: LinkProfile, measured_bps: float) -> float:
    """What the link carries of payload."""
    if profile.rate_bps is None:
        return measured_bps / 8
    return LINE_SHARE * profile.rate_bps / 8


def warm_up(trial: Trial, line: float, pool_bytes: int) -> WarmUp:
    """Moves of two BDP, as far as the pool has so much; more of them where it has not."""
    wanted = max(BDPS_OF_A_WARM_MOVE * trial.profile.rtt_s * line, LEAST_WARM_BYTES)
    fitting = pool_bytes // trial.page_bytes
    move_pages = max(1, min(round(wanted / trial.page_bytes), fitting))
    num_moves = round(trial.warm_moves * wanted / (move_pages * trial.page_bytes))
    return WarmUp(move_pages, max(trial.warm_moves, num_moves))


def waits_for_each_frame(arm: str) -> bool:
    return arm in MODES and not MODES[arm].windowed


def pages_by_rate(trial: Trial, bytes_per_s: float) -> int:
    """Pages that the arm moves in its time, at the rate that it has shown."""
    fitting = int(USED_SHARE * trial.limit_s * bytes_per_s / trial.page_bytes)
    return max(1, min(fitting, trial.num_pages))


def pages_by_model(trial: Trial, line: float, limits: SendLimits, layer_bytes: int) -> int:
    """The same for an arm that sends one frame at a time."""
    frame_bytes = limits.frame.pages * limits.frame.layers * layer_bytes
    path = Path(trial.profile.rtt_s, line, FRAME_COST_S)
    fitting = pages_by_rate(trial, sequential_bytes_per_s(path, frame_bytes))
    least = -(-LEAST_FRAMES * frame_bytes // trial.page_bytes)
    return min(max(fitting, least), trial.num_pages)
