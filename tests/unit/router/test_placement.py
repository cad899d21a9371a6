"""One contract for every policy, then what each is for."""

from dataclasses import replace

import pytest

from cluster_views import LAYOUT, decode, prefill, whole_cluster
from pdcore.cluster import ClusterView, NodeLoad
from pdcore.errors import ConfigError, NoCapacity
from router.placement import POLICIES, Arm, Placement, RequestShape, open_placer

SHAPE = RequestShape(num_prompt_tokens=10, max_tokens=5, num_choices=1)


def names(placement: Placement | None) -> tuple[str | None, str]:
    assert placement is not None
    prefill_node = placement.prefill
    return (prefill_node.info.name if prefill_node else None, placement.decode.info.name)


@pytest.fixture(params=sorted(POLICIES))
def policy_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_an_empty_cluster_has_no_place(policy_name: str) -> None:
    assert POLICIES[policy_name]().choose(SHAPE, ClusterView()) is None


def test_only_nodes_of_the_view_that_take_work(policy_name: str) -> None:
    stopping = decode("d0", draining=True)
    ready = decode("d1")
    view = ClusterView(
        (prefill("p0", stopping, ready), prefill("p1", ready, draining=True)), (stopping, ready)
    )
    policy = POLICIES[policy_name]()
    chosen = {names(policy.choose(SHAPE, view)) for _ in range(6)}
    assert chosen == ({(None, "d1")} if policy_name == "colocated" else {("p0", "d1")})


def test_idle_nodes_all_get_their_turn(policy_name: str) -> None:
    policy = POLICIES[policy_name]()
    chosen = [names(policy.choose(SHAPE, whole_cluster(2, 2))) for _ in range(8)]
    num_places = 2 if policy_name == "colocated" else 4
    assert len(set(chosen)) == num_places
    assert chosen[:num_places] == chosen[num_places : 2 * num_places]


@pytest.mark.parametrize("name", ["round_robin", "least_loaded"])
def test_a_pair_needs_a_data_path(name: str) -> None:
    d0, d1 = decode("d0"), decode("d1", epoch=2)
    old_d1 = decode("d1", epoch=1)  # what p0 last heard of it
    view = ClusterView((prefill("p0", d0, old_d1),), (d0, d1))
    policy = POLICIES[name]()
    assert {names(policy.choose(SHAPE, view)) for _ in range(4)} == {("p0", "d0")}


@pytest.mark.parametrize("name", ["round_robin", "least_loaded"])
def test_a_pair_has_one_kv_layout(name: str) -> None:
    """While a model is exchanged, nodes of both may answer; KV of one is nothing to the other."""
    d0, d1 = decode("d0"), decode("d1", layout=replace(LAYOUT, model="its successor"))
    view = ClusterView((prefill("p0", d0, d1),), (d0, d1))
    policy = POLICIES[name]()
    assert {names(policy.choose(SHAPE, view)) for _ in range(4)} == {("p0", "d0")}


def test_least_loaded_goes_where_least_waits_and_runs() -> None:
    busy = decode("d0", load=NodeLoad(num_running=3))
    idle = decode("d1", load=NodeLoad(num_queued=1))
    view = ClusterView((prefill("p0", busy, idle),), (busy, idle))
    policy = POLICIES["least_loaded"]()
    assert {names(policy.choose(SHAPE, view)) for _ in range(3)} == {("p0", "d1")}


def test_a_request_may_ask_for_the_other_arm() -> None:
    view = whole_cluster(1, 1)
    for policy in POLICIES:
        placer = open_placer(policy)
        assert names(placer.place(SHAPE, view, Arm.COLOCATED)) == (None, "d0")
        assert names(placer.place(SHAPE, view, Arm.DISAGGREGATED)) == ("p0", "d0")
        expected = None if policy == "colocated" else "p0"
        assert names(placer.place(SHAPE, view, None))[0] == expected


D0 = decode("d0")


@pytest.mark.parametrize(
    ("view", "obstacle"),
    [
        (ClusterView(), "no decode node answers"),
        (ClusterView((), (decode("d0", draining=True),)), "every decode node is stopping"),
        (ClusterView((), (D0,)), "no prefill node answers"),
        (ClusterView((prefill("p0", D0, draining=True),), (D0,)), "every prefill node is stopping"),
        (ClusterView((prefill("p0"),), (D0,)), "no prefill node has a data path to a decode node"),
        (
            ClusterView(strangers=(decode("d0", model="other"),)),
            "no decode node serves this router's model: d0 serves 'other'",
        ),
        (
            ClusterView((), (D0,), (decode("d1", model="other"), prefill("p0", model="other"))),
            "no prefill node serves this router's model: p0 serves 'other'",
        ),
        (whole_cluster(1, 1), None),
    ],
)
def test_the_obstacle_is_named(view: ClusterView, obstacle: str | None) -> None:
    placer = open_placer("round_robin")
    assert placer.obstacle(view) == obstacle
    if obstacle is not None:
        with pytest.raises(NoCapacity, match=obstacle):
            placer.place(SHAPE, view, None)


def test_colocated_needs_no_prefill_node() -> None:
    assert open_placer("colocated").obstacle(ClusterView((), (D0,))) is None


def test_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="one of round_robin, least_loaded, colocated"):
        open_placer("fastest")
