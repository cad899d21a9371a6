"""A limit on how long something may last; ``now`` is an argument, nothing is scheduled."""


class Countdown:
    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._since_s: float | None = None

    @property
    def until_s(self) -> float | None:
        """When it runs out; None while it is stopped."""
        return None if self._since_s is None else self._since_s + self.limit_s

    def run(self, running: bool, now: float) -> None:
        """Start it, unless it runs already, or stop it."""
        if not running:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now

    def restart(self, now: float) -> None:
        """From the beginning, if it runs."""
        if self._since_s is not None:
            self._since_s = now

    def ran_out(self, now: float) -> bool:
        until_s = self.until_s
        return until_s is not None and now >= until_s


def first_of(*countdowns: Countdown) -> float | None:
    """When the first of those that run will run out."""
    times = (countdown.until_s for countdown in countdowns)
    return min((time for time in times if time is not None), default=None)
