"""Whom the router's HTTP asks for a certificate."""

import ssl

import pytest

from pdcore.settings import TlsSettings
from router.app import uvicorn_config


async def no_app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("only the configuration is looked at")


@pytest.mark.parametrize(
    ("mutual", "mutual_http", "demanded"),
    [(False, True, False), (True, True, True), (True, False, False)],
)
def test_a_client_certificate_is_demanded_only_when_asked_for(
    mutual: bool, mutual_http: bool, demanded: bool
) -> None:
    tls = TlsSettings("ca.crt", "host.crt", "host.key", mutual, mutual_http)
    config = uvicorn_config(no_app, tls)
    assert (config.ssl_cert_reqs == ssl.CERT_REQUIRED) is demanded
    assert config.ssl_ca_certs == ("ca.crt" if demanded else None)
    assert (config.ssl_certfile, config.ssl_keyfile) == ("host.crt", "host.key")
