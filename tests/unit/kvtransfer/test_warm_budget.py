"""What a receiver grants to warm-ups."""

from kvtransfer.warm_budget import NUM_FULL_SPEED, REFILL_S, WarmBudget

ONE = 1000


def test_a_connection_gets_its_share_and_not_a_byte_more() -> None:
    budget = WarmBudget(ONE)
    assert budget.take("a", ONE, now=0.0)
    assert not budget.take("a", 1, now=0.0)
    assert budget.take("b", 1, now=0.0)


def test_what_is_refused_takes_nothing() -> None:
    budget = WarmBudget(ONE)
    assert not budget.take("a", ONE + 1, now=0.0)
    assert budget.take("a", ONE, now=0.0)


def test_it_fills_up_again_in_time_and_no_further() -> None:
    budget = WarmBudget(ONE)
    budget.take("a", ONE, now=0.0)
    assert not budget.take("a", ONE // 2 + 1, now=REFILL_S / 2)
    assert budget.take("a", ONE // 2, now=REFILL_S / 2)
    assert not budget.take("a", ONE + 1, now=100 * REFILL_S)


def test_many_connections_share_a_bound() -> None:
    budget = WarmBudget(ONE)
    granted = [budget.take(str(number), ONE, now=0.0) for number in range(NUM_FULL_SPEED + 3)]
    assert granted.count(True) == NUM_FULL_SPEED


def test_reconnecting_does_not_go_round_the_bound_of_all() -> None:
    budget = WarmBudget(ONE)
    num_granted, seconds = 0, 20 * int(REFILL_S)
    for tick in range(100 * seconds):
        num_granted += budget.take(f"connection {tick}", ONE // 10, now=tick / 100)
    assert num_granted * ONE // 10 <= NUM_FULL_SPEED * ONE * (1 + seconds / REFILL_S)


def test_only_connections_that_asked_lately_are_remembered() -> None:
    budget = WarmBudget(ONE)
    for number in range(5000):
        budget.take(str(number), 1, now=float(number))
    assert budget.num_remembered <= 2


def test_nothing_at_all() -> None:
    assert not WarmBudget(0).take("a", 1, now=0.0)
