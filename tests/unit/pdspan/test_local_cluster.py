"""The cluster of `pdspan up`: nodes, ports, threads, and what --set may change."""

import socket

import pytest

from pdcore.cluster import NodeRole
from pdcore.errors import ConfigError
from pdspan import local_cluster as module
from pdspan.local_cluster import (
    UpOptions,
    check_port_free,
    local_cluster,
    served_name,
    threads_per_node,
)
from router.placement import POLICIES


def options(num_prefill: int = 1, num_decode: int = 1, **others: object) -> UpOptions:
    return UpOptions("some/model", 8000, num_prefill, num_decode, **others)  # type: ignore[arg-type]


def test_one_process_per_node_on_loopback_ports_of_their_own() -> None:
    settings = local_cluster(options(2, 3))
    names = [node.name for node in settings.nodes]
    assert names == ["router", "prefill-1", "prefill-2", "decode-1", "decode-2", "decode-3"]
    assert settings.node("router").bind == "127.0.0.1:8000"
    assert all(node.bind.startswith("127.0.0.1:") for node in settings.nodes)
    assert len({node.bind for node in settings.nodes}) == 6


def test_colocated_has_no_prefill_node() -> None:
    settings = local_cluster(options(0, 1))
    assert settings.nodes_of(NodeRole.PREFILL) == ()
    assert len(settings.nodes_of(NodeRole.DECODE)) == 1
    assert settings.router.placement == "colocated"
    assert local_cluster(options(1, 1)).router.placement in POLICIES


def test_port_0_is_a_free_port() -> None:
    settings = local_cluster(UpOptions("m", 0, 1, 1))
    assert settings.node("router").bind.rpartition(":")[2] != "0"
    assert len({node.bind for node in settings.nodes}) == 3


def test_options_become_settings_of_every_node() -> None:
    settings = local_cluster(options(transfer="bulk", dtype="float32", weights="int8"))
    assert {node.engine.weights for node in settings.nodes} == {"int8"}
    assert settings.transfer.mode == "bulk"
    assert {node.engine.dtype for node in settings.nodes} == {"float32"}
    assert (settings.model.path, settings.model.served_name) == ("some/model", "some/model")


def test_set_is_laid_over_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "num_cores", lambda: 8)
    overrides = ("engine.dtype=float16", "transfer.mode=striped", "model.served_name=m")
    settings = local_cluster(options(transfer="bulk", dtype="float32", overrides=overrides))
    assert (settings.transfer.mode, settings.model.served_name) == ("striped", "m")
    assert {node.engine.dtype for node in settings.nodes} == {"float16"}
    assert {node.engine.threads for node in settings.nodes} == {8}
    one_thread = local_cluster(options(overrides=("engine.threads=1",)))
    assert {node.engine.threads for node in one_thread.nodes} == {1}


@pytest.mark.parametrize(
    ("num_cores", "num_prefill", "num_decode", "threads"),
    [(2, 1, 1, 2), (2, 0, 1, 2), (16, 1, 1, 16), (16, 1, 2, 10), (1, 1, 1, 1), (2, 2, 2, 1)],
)
def test_each_node_gets_twice_its_share_of_the_cores(
    num_cores: int, num_prefill: int, num_decode: int, threads: int
) -> None:
    assert threads_per_node(num_cores, options(num_prefill, num_decode)) == threads


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("transfer.mode=fast",), "transfer.mode is 'fast'; one of sequential_layer, "),
        (("transfer.mod=bulk",), "pdspan up: transfer: unknown key 'mod'; did you mean 'mode'"),
        (("engine.threads=two",), "pdspan up: engine: threads: expected a whole number"),
    ],
)
def test_mistakes_are_named(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        local_cluster(options(overrides=overrides))
    assert message in str(caught.value)


def test_served_name_of_a_directory_is_its_last_part(tmp_path, monkeypatch) -> None:
    (tmp_path / "my-model").mkdir()
    assert served_name(str(tmp_path / "my-model")) == "my-model"
    assert served_name(f"{tmp_path}/my-model/") == "my-model"
    monkeypatch.chdir(tmp_path / "my-model")
    assert served_name(".") == "my-model"
    assert served_name("org/name") == "org/name"


def test_port_that_is_taken_is_refused_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            check_port_free(port)
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --port"
    )
    check_port_free(port)
