"""What is read and compared when a router starts."""

import json
import logging
from pathlib import Path

import pytest

from cluster_views import whole_cluster
from pdcore.cluster import NodeRole
from pdcore.settings import ClusterSettings, NodeSettings
from router.app import open_service
from router.placement import open_placer
from router_app import FakeCluster
from router_process import write_model_dir
from tiny_text import byte_level_tokenizer

NODE = NodeSettings("router", NodeRole.ROUTER, "127.0.0.1:1")


@pytest.mark.parametrize(("num_missing", "warned"), [(0, False), (1, True), (-20, False)])
def test_a_tokenizer_that_knows_more_tokens_than_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, num_missing: int, warned: bool
) -> None:
    """A warning, no refusal: the tokens that the model lacks may never be used."""
    write_model_dir(tmp_path)
    config_path = tmp_path / "config.json"
    config = json.loads(config_path.read_text())
    num_tokens = byte_level_tokenizer().get_vocab_size()
    config["vocab_size"] = num_tokens - num_missing
    config_path.write_text(json.dumps(config))
    with caplog.at_level(logging.WARNING, "router"):
        open_service(
            ClusterSettings(),
            NODE,
            tmp_path,
            FakeCluster(whole_cluster(1, 1)),
            open_placer("round_robin"),
        )
    expected = f"the tokenizer has ids up to {num_tokens - 1}, the model only up to"
    assert (expected in caplog.text) is warned
