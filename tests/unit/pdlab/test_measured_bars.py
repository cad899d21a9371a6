"""A measurement of the bars that fails leaves no verdict of another one, and the logs to read."""

from pathlib import Path

import pytest

from pdcore.errors import PeerUnavailable
from pdlab import measured_bars
from pdlab.bench import Model

SCENARIOS = Path(__file__).parents[3] / "deploy/scenarios"


def test_what_fails_leaves_its_logs_and_no_old_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / measured_bars.FILE_NAME).write_text("{}")
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
    assert not (tmp_path / measured_bars.FILE_NAME).exists()
