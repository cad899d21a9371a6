"""What is printed when the cluster is ready works when it is copied."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from pdcore.settings import ClusterSettings
from pdspan.announce import curl_line, ready_json, ready_text
from pdspan.local_cluster import UpOptions, local_cluster

RUN_DIR = Path("/run/x")


@pytest.fixture
def settings() -> ClusterSettings:
    return local_cluster(UpOptions("it's a model", 8123, 1, 2))


def children(settings: ClusterSettings) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(node=node, pid=100 + i, log_path=RUN_DIR / f"{node.name}.log")
        for i, node in enumerate(settings.nodes)
    ]


def test_curl_line_survives_the_shell(settings: ClusterSettings) -> None:
    words = shlex.split(curl_line(settings))
    assert words[:2] == ["curl", "http://127.0.0.1:8123/v1/chat/completions"]
    assert words[2:5] == ["-H", "Content-Type: application/json", "-d"]
    assert json.loads(words[5])["model"] == "it's a model"


def test_text_names_url_logs_and_settings(settings: ClusterSettings) -> None:
    text = ready_text(settings, children(settings), RUN_DIR, 6.28)
    assert "(1 prefill, 2 decode) at http://127.0.0.1:8123, ready after 6.3 s" in text
    for name in ("router.log", "prefill-1.log", "decode-2.log", "cluster.toml"):
        assert f"/run/x/{name}" in text
    assert curl_line(settings) in text


def test_text_says_colocated() -> None:
    settings = local_cluster(UpOptions("m", 8123, 0, 1))
    assert "serves m (colocated)" in ready_text(settings, children(settings), RUN_DIR, 1.0)


def test_json_is_one_line_for_programs(settings: ClusterSettings) -> None:
    text = ready_json(settings, children(settings), RUN_DIR, 6.28)
    assert "\n" not in text
    ready = json.loads(text)
    assert ready["url"] == "http://127.0.0.1:8123"
    assert [node["role"] for node in ready["nodes"]] == ["router", "prefill", "decode", "decode"]
    assert ready["nodes"][0] == {
        "name": "router",
        "role": "router",
        "pid": 100,
        "address": "127.0.0.1:8123",
        "metrics": None,
        "log": "/run/x/router.log",
    }
