"""``pdspan lab engine``: ours against vLLM's CPU build, and our variants, on this machine.

Exit status 0 when every bar that was measured is met, else 1.
"""

import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from pdspan.subcommand import Commands, add_command, whole

if TYPE_CHECKING:
    from pdlab.engine.arms import EngineArm


def add_to(actions: Commands) -> None:
    parser = add_command(
        actions,
        "engine",
        "Time prefill and decode of our engine, of it with int8 weights, and of vLLM's CPU build.",
        "pdspan lab engine --against none --repetitions 3 --out results/",
    )
    parser.add_argument(
        "--against",
        choices=("vllm", "none"),
        default="vllm",
        help="whose engine runs beside ours; vLLM is installed in an environment of its own"
        " (2 GB, default: %(default)s)",
    )
    parser.add_argument(
        "--model",
        default="smollm2-135m-instruct",
        metavar="MODEL",
        help="a name, or a checkpoint's directory (default: %(default)s)",
    )
    parser.add_argument(
        "--threads", type=whole(1), default=2, metavar="N", help="of each (default: %(default)s)"
    )
    parser.add_argument(
        "--repetitions",
        type=whole(1),
        default=5,
        metavar="N",
        help="of each task, interleaved (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("docs/results"),
        metavar="DIR",
        help="where the record and the page go (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> int:
    from pdlab.engine.page import PAGE, RECORD, judged, write_page
    from pdlab.engine.run import FIRST_TOKEN_TASK, TASKS, measure
    from pdlab.record_files import check_writable
    from pdspan.models import resolve_model
    from pdspan.progress import open_progress

    for name in (RECORD, PAGE):
        check_writable(arguments.out / name)
    with open_progress() as progress:
        model = resolve_model(arguments.model, progress.report)
        record = measure(
            _arms(arguments, model),
            scenario="pdspan " + shlex.join(sys.argv[1:]),
            threads=arguments.threads,
            repetitions=arguments.repetitions,
            tasks={**TASKS, **FIRST_TOKEN_TASK},
            progress=progress.report,
        )
    bars = judged(record)
    for bar, figure in bars:
        said = "not measured" if figure is None else f"{figure:.2f}"
        print(f"{bar.what}: {said}, {bar.bound}")
    write_page(arguments.out, record)
    print(f"{arguments.out / PAGE} has every cell")
    return int(any(figure is not None and not bar.is_met(figure) for bar, figure in bars))


def _arms(arguments: Namespace, model: Path) -> "list[EngineArm]":
    from pdlab.engine.arms import cluster_arm, pdspan_arm, vllm_arm
    from pdlab.engine.page import CLUSTER, IN_CHUNKS, INT8, OURS, VLLM
    from pdlab.engine.run import FIRST_TOKEN_TASK, TASKS

    place = model, arguments.threads
    arms = [
        pdspan_arm(OURS, *place, tasks=TASKS),
        pdspan_arm(INT8, *place, "--weights", "int8", tasks=TASKS),
        pdspan_arm(IN_CHUNKS, *place, "--chunk-tokens", "512", tasks=FIRST_TOKEN_TASK),
        cluster_arm(CLUSTER, *place, tasks=FIRST_TOKEN_TASK),
    ]
    if arguments.against == "vllm":
        arms.append(vllm_arm(VLLM, *place, tasks=TASKS))
    return arms
