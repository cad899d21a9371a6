from kvtransfer.countdown import Countdown, first_of


def test_runs_out_only_while_it_runs() -> None:
    countdown = Countdown(2.0)
    assert countdown.until_s is None
    assert not countdown.ran_out(99.0)
    countdown.run(True, 10.0)
    countdown.run(True, 11.0)  # runs already
    assert countdown.until_s == 12.0
    assert not countdown.ran_out(11.9)
    assert countdown.ran_out(12.0)
    countdown.run(False, 11.0)
    assert not countdown.ran_out(99.0)


def test_restart_does_not_start() -> None:
    countdown = Countdown(2.0)
    countdown.restart(5.0)
    assert countdown.until_s is None
    countdown.run(True, 5.0)
    countdown.restart(6.0)
    assert countdown.until_s == 8.0


def test_first_of() -> None:
    early, late, stopped = Countdown(1.0), Countdown(2.0), Countdown(0.0)
    assert first_of(early, late, stopped) is None
    late.run(True, 0.0)
    assert first_of(early, late, stopped) == 2.0
    early.run(True, 0.5)
    assert first_of(early, late, stopped) == 1.5
