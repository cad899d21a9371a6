"""deploy/make_certs.sh: what it makes verifies, wrong arguments are refused, nothing is lost."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "deploy/make_certs.sh"


def make_certs(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False)


def openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_certificates_verify_against_their_authority_only(tmp_path: Path) -> None:
    for directory in ("ours", "theirs"):
        assert make_certs(tmp_path / directory, "host-a", "192.0.2.1").returncode == 0
    cert = tmp_path / "ours/host-a.crt"
    for purpose in ("sslserver", "sslclient"):
        options = ("verify", "-purpose", purpose, "-CAfile")
        assert openssl(*options, tmp_path / "ours/ca.crt", cert).returncode == 0
        assert openssl(*options, tmp_path / "theirs/ca.crt", cert).returncode != 0


def test_every_address_is_in_the_certificate(tmp_path: Path) -> None:
    addresses = ("192.0.2.1", "2001:db8::7", "a.example.org", "decode", "*.nodes.example.org")
    assert make_certs(tmp_path, "host-a", *addresses).returncode == 0
    cert = tmp_path / "host-a.crt"
    for option, name in (
        ("-checkip", "192.0.2.1"),
        ("-checkip", "2001:db8::7"),
        ("-checkhost", "a.example.org"),
        ("-checkhost", "decode"),
        ("-checkhost", "7.nodes.example.org"),
    ):
        assert "does match" in openssl("x509", "-in", cert, "-noout", option, name).stdout
    other = openssl("x509", "-in", cert, "-noout", "-checkip", "192.0.2.2")
    assert "does NOT match" in other.stdout


def test_second_host_gets_the_same_authority(tmp_path: Path) -> None:
    make_certs(tmp_path, "host-a", "192.0.2.1")
    before = files(tmp_path)
    assert make_certs(tmp_path, "host-b", "192.0.2.2").returncode == 0
    after = files(tmp_path)
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {"host-b.crt", "host-b.key"}


def test_refuses_to_overwrite(tmp_path: Path) -> None:
    make_certs(tmp_path, "host-a", "192.0.2.1")
    before = files(tmp_path)
    again = make_certs(tmp_path, "host-a", "192.0.2.9")
    assert again.returncode == 2
    assert "host-a.crt or .key exists" in again.stderr
    (tmp_path / "host-a.crt").unlink()
    assert make_certs(tmp_path, "host-a", "192.0.2.9").returncode == 2
    assert files(tmp_path) == {name: data for name, data in before.items() if name != "host-a.crt"}


def test_half_an_authority_is_refused(tmp_path: Path) -> None:
    make_certs(tmp_path, "host-a", "192.0.2.1")
    (tmp_path / "ca.key").unlink()
    result = make_certs(tmp_path, "host-b", "192.0.2.2")
    assert result.returncode == 2
    assert "ca.crt has no ca.key beside it" in result.stderr


def test_only_certificates_can_be_read_by_others(tmp_path: Path) -> None:
    make_certs(tmp_path, "host-a", "192.0.2.1")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"ca.crt": 0o644, "ca.key": 0o600, "host-a.crt": 0o644, "host-a.key": 0o600}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "usage:"),
        (("host-a",), "usage:"),
        (("host-a", "192.0.2.1:7001"), "leave out port"),
        (("host-a", "192.0.2.999"), "neither an IP address nor a DNS name"),
        (("host-a", "https://a.example.org"), "leave out port and scheme"),
        (("host-a", "a.example.org,DNS:evil"), "neither an IP address"),
        (("host-a", "1:2:3"), "subjectAltName"),
        (("ca", "192.0.2.1"), "no name for a certificate"),
        (("../up", "192.0.2.1"), "no name for a certificate"),
    ],
)
def test_wrong_arguments_leave_no_certificate(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = make_certs(tmp_path / "certs", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert not list(tmp_path.glob("certs/host-a*"))
    assert not list(tmp_path.glob("certs/.make_certs*"))


@pytest.mark.parametrize("days", [(), ("0",), ("soon",)])
def test_days_must_be_a_number(tmp_path: Path, days: tuple[str, ...]) -> None:
    result = make_certs("--days", *days, tmp_path, "host-a", "192.0.2.1")
    assert result.returncode == 2


def test_help_goes_to_stdout() -> None:
    result = make_certs("--help")
    assert result.returncode == 0
    assert "make_certs.sh certs host-b" in result.stdout
