"""deploy/compose.yaml, as far as it can be checked without an engine for containers."""

from pathlib import Path

import yaml

from pdcore.rpc import split_address
from pdcore.settings import load_cluster
from pdspan.arguments import build_parser

DEPLOY = Path(__file__).parents[3] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
CLUSTER = load_cluster(DEPLOY / "clusters/compose.toml")
NODES = {name: service for name, service in SERVICES.items() if name != "model"}


def test_one_service_for_each_node() -> None:
    started = {build_parser().parse_args(service["command"]).node for service in NODES.values()}
    assert started == {node.name for node in CLUSTER.nodes}
    assert len(NODES) == len(CLUSTER.nodes)


def test_commands_name_the_right_role_and_the_mounted_file() -> None:
    for service in NODES.values():
        arguments = build_parser().parse_args(service["command"])
        assert CLUSTER.node(arguments.node).role is arguments.role
        assert arguments.insecure
        assert f"./clusters/compose.toml:{arguments.cluster}:ro" in service["volumes"]
        assert service["environment"]["PDSPAN_NODE"] == arguments.node


def test_service_names_are_the_advertised_hosts() -> None:
    for name, service in NODES.items():
        node = CLUSTER.node(service["environment"]["PDSPAN_NODE"])
        assert split_address(node.address) == (name, split_address(node.bind)[1])


def test_only_the_router_is_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in NODES.items() if "ports" in service}
    port = split_address(CLUSTER.node("router-0").bind)[1]
    assert published == {"router": [f"127.0.0.1:{port}:{port}"]}


def test_nodes_wait_for_the_model_and_share_its_volume() -> None:
    fetch = build_parser().parse_args(SERVICES["model"]["command"])
    assert fetch.command == "models fetch"
    assert fetch.name == CLUSTER.model.path
    (volume,) = SERVICES["model"]["volumes"]
    assert volume.split(":")[0] in COMPOSE["volumes"]
    for service in NODES.values():
        assert f"{volume}:ro" in service["volumes"]
        assert service["depends_on"]["model"]["condition"] == "service_completed_successfully"


def test_containers_outlast_the_drain() -> None:
    for service in NODES.values():
        assert int(service["stop_grace_period"].removesuffix("s")) > CLUSTER.queue.drain_s


def test_files_that_are_mounted_or_copied_exist() -> None:
    assert (DEPLOY / "clusters/compose.toml").is_file()
    build = SERVICES["model"]["build"]
    assert all(service["build"] == build for service in NODES.values())
    root = (DEPLOY / build["context"]).resolve()
    lines = (root / build["dockerfile"]).read_text().splitlines()
    copied = [
        source
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    allowed = (root / f"{build['dockerfile']}.dockerignore").read_text().splitlines()
    assert copied
    for source in copied:
        assert (root / source).exists()
        assert f"!{source}" in allowed


def test_image_runs_as_a_user_of_its_own() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert "USER pdspan" in lines
    assert lines.index("USER pdspan") < lines.index('ENTRYPOINT ["pdspan"]')
    assert any(line.startswith("HEALTHCHECK ") for line in lines)
