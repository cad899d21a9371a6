"""A measurement of the bars that fails leaves what was there before, and its logs to read."""

from pathlib import Path

import pytest

from pdcore.errors import PdspanError, PeerUnavailable
from pdlab import measured_bars
from pdlab.bench import Model

SCENARIOS = Path(__file__).parents[3] / "deploy/scenarios"


def test_what_fails_leaves_its_logs_and_the_earlier_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = tmp_path / measured_bars.FILE_NAME, tmp_path / "serving_smollm2.jsonl"
    for file in earlier:
        file.write_text("earlier")
    written: list[Path] = []

    def fails(*_: object, logs: Path) -> None:
        (logs / "decode.log").write_text("why")
        written.append(logs / "decode.log")
        raise PeerUnavailable(f"its logs: {logs}")

    monkeypatch.setattr(measured_bars, "run_serving", fails)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(PeerUnavailable):
        measured_bars.measure_bars(
            SCENARIOS, tmp_path, lambda _: Model(tmp_path, "m", ()), lambda task, fraction: None
        )
    assert written[0].read_text() == "why"
    assert [file.read_text() for file in earlier] == ["earlier", "earlier"]


def test_what_fails_later_leaves_the_earlier_results_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = [tmp_path / f"{name}.jsonl" for name in measured_bars.BARS]
    earlier.append(tmp_path / measured_bars.FILE_NAME)
    for file in earlier:
        file.write_text("earlier")
    runs: list[Path] = []

    def fails_second(*arguments: object, logs: Path) -> None:
        (draft,) = (argument for argument in arguments if isinstance(argument, Path))
        runs.append(draft)
        if len(runs) == 2:
            raise PeerUnavailable("the second one")
        draft.write_text("new")

    monkeypatch.setattr(measured_bars, "run_serving", fails_second)
    monkeypatch.setattr(measured_bars, "read_serving", lambda _: None)
    monkeypatch.setattr(measured_bars, "BARS", dict.fromkeys(measured_bars.BARS, lambda _: []))
    with pytest.raises(PeerUnavailable, match="the second one"):
        measured_bars.measure_bars(
            SCENARIOS, tmp_path, lambda _: Model(tmp_path, "m", ()), lambda task, fraction: None
        )
    assert {file.read_text() for file in earlier} == {"earlier"}


@pytest.mark.parametrize("out", ["a-file", "a-file/below"])
def test_where_nothing_can_be_written_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    (tmp_path / "a-file").write_text("")
    monkeypatch.setattr(measured_bars, "run_serving", lambda *_, **__: pytest.fail("was run"))
    with pytest.raises(PdspanError, match=r"a-file.*: cannot write"):
        measured_bars.measure_bars(
            SCENARIOS,
            tmp_path / out,
            lambda _: Model(tmp_path, "m", ()),
            lambda task, fraction: None,
        )
