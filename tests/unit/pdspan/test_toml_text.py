"""Settings written as TOML are read back as the same settings."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pdcore.cluster import NodeRole
from pdcore.settings import (
    ClusterSettings,
    EngineSettings,
    ModelSettings,
    NodeSettings,
    TlsSettings,
    TransferSettings,
    load_cluster,
)
from pdspan.toml_text import settings_to_toml

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
engines = st.builds(
    EngineSettings,
    threads=st.none() | st.integers(1, 64),
    page_tokens=st.integers(1, 256),
    attention=text,
    prefix_cache=st.booleans(),
)
nodes = st.builds(
    NodeSettings,
    name=text,
    role=st.sampled_from(NodeRole),
    bind=text,
    advertise=st.none() | text,
    engine=engines,
)
clusters = st.builds(
    ClusterSettings,
    name=text,
    insecure=st.booleans(),
    model=st.builds(ModelSettings, path=text, served_name=st.none() | text),
    transfer=st.builds(TransferSettings, stall_s=st.floats(0.001, 1e9), stripes=st.integers(1, 9)),
    tls=st.just(TlsSettings()) | st.builds(TlsSettings, ca=text, cert=text, key=text),
    nodes=st.lists(nodes, max_size=3, unique_by=lambda node: node.name).map(tuple),
)


@given(clusters)
def test_round_trip(tmp_path_factory, settings: ClusterSettings) -> None:  # type: ignore[no-untyped-def]
    path: Path = tmp_path_factory.mktemp("toml") / "cluster.toml"
    path.write_text(settings_to_toml(settings))
    assert load_cluster(path) == settings
