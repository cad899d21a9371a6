"""deploy/measure_tls.py runs to its end and reports all three kinds of channel."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "deploy/measure_tls.py"


def test_every_kind_of_channel_is_measured() -> None:
    command = [sys.executable, SCRIPT, "--repetitions", "2", "--mib", "4", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert set(report["medians"]) == {"plain", "tls", "mutual"}
    assert len(report["samples"]) == 6
    for sample in report["samples"]:
        assert sample["gbit_per_s"] > 0
        assert sample["sender_cpu_s_per_gb"] > 0
        assert sample["receiver_cpu_s_per_gb"] > 0
