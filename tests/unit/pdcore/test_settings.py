"""Cluster files and overrides: layering, checks, and errors that a user can act on."""

from pathlib import Path
from typing import Any

import pytest

from pdcore.cluster import NodeRole
from pdcore.errors import ConfigError
from pdcore.settings import (
    ClusterSettings,
    EngineSettings,
    cluster_from_table,
    load_cluster,
    with_insecure,
)

PREFILL = {"name": "p", "role": "prefill", "bind": "127.0.0.1:7001"}
DECODE = {"name": "d", "role": "decode", "bind": "127.0.0.1:7002", "advertise": "host:7002"}


def test_empty_table_is_all_defaults() -> None:
    assert cluster_from_table({}) == ClusterSettings()


def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(
        'name = "two"\n[transfer]\nmode = "bulk"\nstall_s = 3\n'
        '[[nodes]]\nname = "p"\nrole = "prefill"\nbind = "127.0.0.1:7001"\n'
    )
    settings = load_cluster(path)
    assert (settings.name, settings.transfer.mode, settings.transfer.stall_s) == ("two", "bulk", 3)
    assert settings.node("p").role is NodeRole.PREFILL


def test_node_engine_is_laid_over_the_shared_one() -> None:
    table: dict[str, Any] = {
        "engine": {"dtype": "float32", "page_tokens": 64},
        "nodes": [PREFILL, {**DECODE, "engine": {"page_tokens": 16, "threads": 2}}],
    }
    settings = cluster_from_table(table)
    assert settings.node("p").engine == EngineSettings(dtype="float32", page_tokens=64)
    assert settings.node("d").engine == EngineSettings(dtype="float32", page_tokens=16, threads=2)


def test_override_of_the_shared_engine_reaches_nodes_that_do_not_say_otherwise() -> None:
    nodes = [PREFILL, {**DECODE, "engine": {"threads": 2}}]
    settings = cluster_from_table({"nodes": nodes}, ["engine.threads=7"])
    assert settings.node("p").engine.threads == 7
    assert settings.node("d").engine.threads == 2


@pytest.mark.parametrize(
    "override", ["transfer.mode=bulk", 'transfer.mode="bulk"', "transfer.mode = bulk"]
)
def test_override_takes_bare_and_quoted_words(override: str) -> None:
    assert cluster_from_table({}, [override]).transfer.mode == "bulk"


def test_later_override_wins_and_types_are_toml() -> None:
    settings = cluster_from_table(
        {"transfer": {"stripes": 2}},
        ["transfer.stripes=3", "transfer.stripes=5", "insecure=true", "transfer.stall_s=1.5"],
    )
    assert (settings.transfer.stripes, settings.insecure, settings.transfer.stall_s) == (
        5,
        True,
        1.5,
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["transfer.mode"], "--set transfer.mode: expected key=value"),
        (["=bulk"], "--set =bulk: expected key=value"),
        (["transfer.mood=bulk"], "cluster: transfer: unknown key 'mood'; did you mean 'mode'?"),
        (["transfer.stripes=four"], "cluster: transfer: stripes: expected a whole number"),
        (["transfer=bulk"], "cluster: transfer: expected a table"),
        (["engine.dtype=int8"], "cluster: engine: dtype is 'int8'; one of auto, bfloat16"),
        (["engine.page_tokens=0"], "cluster: engine: page_tokens is 0; it must be at least 1"),
        (["engine.num_pages=1"], "cluster: engine: num_pages is 1; it must be at least 2"),
        (["transfer.stripes=65"], "cluster: transfer: stripes is 65; it must be at least 1 and at"),
        (["transfer.credit_bytes=0"], "cluster: transfer: credit_bytes is 0; it must be at least"),
        (["transfer.resume_s=-1"], "cluster: transfer: resume_s is -1; it must be more than 0"),
        (["transfer.stall_s=nan"], "cluster: transfer: stall_s: nan is not a number that"),
        (["queue.drain_s=-3"], "cluster: queue: drain_s is -3; it must be at least 0"),
        (["router.default_timeout_s=0"], "cluster: router: default_timeout_s is 0; it must be"),
        (["log_level=loud"], "cluster: log_level is 'loud'; one of debug, info, warning, error"),
        (["tls.cert=a.pem"], "cluster: tls.cert and tls.key go together"),
        (["tls.mutual=true"], "cluster: tls.mutual needs tls.ca"),
    ],
)
def test_bad_override_is_one_clear_line(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cluster_from_table({}, overrides)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([PREFILL, PREFILL], "cluster: two nodes named 'p'"),
        ([{"name": "p", "role": "prefill"}], "cluster: nodes[0]: key 'bind' is missing"),
        ([{**PREFILL, "role": "encode"}], "cluster: nodes[0]: role is 'encode'; one of router"),
        ([{**PREFILL, "engine": {"dtype": "int8"}}], "cluster: nodes[0]: engine: dtype is 'int8'"),
        ([{**PREFILL, "engine": {"thread": 1}}], "cluster: nodes[0]: engine: unknown key 'thread'"),
        (["p"], "cluster: nodes[0]: expected a table, found a string"),
    ],
)
def test_bad_node_is_named(nodes: list[object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cluster_from_table({"nodes": nodes})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("table", [{"nodes": 3}, {"nodes": {"p": 1}}, {"engine": 3}])
def test_table_of_the_wrong_shape_is_a_config_error(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        cluster_from_table({"nodes": [PREFILL], **table})


@pytest.mark.parametrize("engine", [3, "fast", [1]])
def test_engine_that_is_no_table_is_a_config_error_of_a_node_too(engine: object) -> None:
    with pytest.raises(ConfigError, match="engine: expected a table"):
        cluster_from_table({"nodes": [{**PREFILL, "engine": engine}]})


def test_missing_file_and_broken_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no cluster file at"):
        load_cluster(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("name =\n")
    with pytest.raises(ConfigError, match=r"broken\.toml: not valid TOML: .*line 1"):
        load_cluster(broken)


def test_unknown_node_lists_the_known_ones() -> None:
    settings = cluster_from_table({"nodes": [PREFILL, DECODE]})
    with pytest.raises(ConfigError, match="no node named 'x' in the cluster file; it has: p, d"):
        settings.node("x")


def test_nodes_of_a_role_and_their_addresses() -> None:
    settings = cluster_from_table({"nodes": [PREFILL, DECODE]})
    assert [node.name for node in settings.nodes_of(NodeRole.DECODE)] == ["d"]
    assert settings.node("p").address == "127.0.0.1:7001"
    assert settings.node("d").address == "host:7002"


def test_with_insecure_changes_nothing_else() -> None:
    settings = cluster_from_table({"nodes": [PREFILL]})
    assert not settings.insecure
    assert with_insecure(settings) == cluster_from_table({"nodes": [PREFILL], "insecure": True})
