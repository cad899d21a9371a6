"""Addresses, bind rules and TLS files: what is wrong is said before anything is opened."""

from dataclasses import replace
from pathlib import Path

import pytest

from pdcore import rpc
from pdcore.cluster import NodeRole
from pdcore.errors import ConfigError
from pdcore.rpc import check_bind, is_loopback, open_channel, split_address
from pdcore.settings import ClusterSettings, NodeSettings, TlsSettings, TransferSettings


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:7001", ("127.0.0.1", 7001)),
        ("[::1]:7001", ("::1", 7001)),
        ("prefill-0.prefill:65535", ("prefill-0.prefill", 65535)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_an_address_is_split(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize(
    "address",
    ["", "host", ":7001", "host:", "host:0", "host:65536", "host:-1", "host:http", "[::1]"],
)
def test_what_is_no_address_is_shown_with_what_would_be(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_address(address)
    assert repr(address) in str(caught.value)
    assert "127.0.0.1:7001" in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(f"{host}:7001")


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "[::]", "10.0.0.1", "node.example", "localhost.example"]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(f"{host}:7001")


def node(bind: str = "127.0.0.1:7001", metrics: str | None = None) -> NodeSettings:
    return NodeSettings("d", NodeRole.DECODE, bind, metrics=metrics)


def test_plain_text_on_loopback_is_fine() -> None:
    check_bind(ClusterSettings(), node())
    check_bind(ClusterSettings(), node(metrics="127.0.0.1:9001"))


@pytest.mark.parametrize(
    "reachable", [node("0.0.0.0:7001"), node(metrics="10.0.0.1:9001")], ids=["bind", "metrics"]
)
def test_plain_text_where_others_can_reach_it_must_be_asked_for(reachable: NodeSettings) -> None:
    with pytest.raises(ConfigError, match=r"not a loopback address and TLS is off.*--insecure"):
        check_bind(ClusterSettings(), reachable)
    check_bind(ClusterSettings(insecure=True), reachable)
    check_bind(ClusterSettings(tls=TlsSettings(cert="c.pem", key="k.pem")), reachable)


def test_a_ca_alone_does_not_make_a_server_speak_tls() -> None:
    with pytest.raises(ConfigError, match="TLS is off"):
        check_bind(ClusterSettings(tls=TlsSettings(ca="ca.pem")), node("0.0.0.0:7001"))


@pytest.mark.parametrize("missing", ["ca", "cert", "key"])
async def test_a_missing_tls_file_is_named_with_its_setting(missing: str, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    for name, path in files.items():
        if name != missing:
            path.write_text("-----BEGIN NOTHING-----")
    tls = TlsSettings(**{name: str(path) for name, path in files.items()}, mutual=True)
    with pytest.raises(ConfigError) as caught:
        open_channel("127.0.0.1:7001", tls)
    assert str(caught.value) == (
        f"tls.{missing}: cannot read {files[missing]}: No such file or directory"
    )


@pytest.mark.parametrize("missing", ["cert", "key"])
async def test_a_server_names_its_missing_file_too(missing: str, tmp_path: Path) -> None:
    present = tmp_path / "present.pem"
    present.write_text("-----BEGIN NOTHING-----")
    tls = replace(TlsSettings(cert=str(present), key=str(present)), **{missing: "nowhere.pem"})
    with pytest.raises(ConfigError, match=rf"tls\.{missing}: cannot read nowhere\.pem"):
        rpc.bind_server(rpc.new_server(), node(), tls)


async def test_what_is_no_pem_file_is_named(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    with pytest.raises(ConfigError, match=r"tls\.ca: .*program is not a PEM file"):
        open_channel("127.0.0.1:7001", TlsSettings(ca=str(program)))


def test_a_message_holds_a_frame_of_any_mode() -> None:
    assert 4 * TransferSettings().frame_bytes <= rpc.MAX_MESSAGE_BYTES
    both = dict(rpc.CHANNEL_OPTIONS), dict(rpc.SERVER_OPTIONS)
    for options in both:
        assert options["grpc.max_send_message_length"] == rpc.MAX_MESSAGE_BYTES
        assert options["grpc.max_receive_message_length"] == rpc.MAX_MESSAGE_BYTES


def test_a_server_allows_the_pings_that_channels_send() -> None:
    allowed = dict(rpc.SERVER_OPTIONS)["grpc.http2.min_ping_interval_without_data_ms"]
    assert allowed < dict(rpc.CHANNEL_OPTIONS)["grpc.keepalive_time_ms"]
