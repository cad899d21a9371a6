"""What is asked of the cluster: a workload by name, each a pure function of (parameters, seed).

A scenario's ``[workload]`` table names one by ``kind``; its other keys are that workload's fields.
When requests arrive is a seam of its own (``[arrivals]``), which a trace brings along.
"""

from collections.abc import Mapping

from pdlab.workloads.arrivals import ARRIVALS, Arrivals, OneAtATime
from pdlab.workloads.lengths import Bimodal, Bucketed, Fixed, Uniform, Zipf
from pdlab.workloads.prompt_file import PromptFile
from pdlab.workloads.request import Prompt, Workload, WorkRequest
from pdlab.workloads.trace import Trace

__all__ = [
    "WORKLOADS",
    "ARRIVALS",
    "Arrivals",
    "OneAtATime",
    "Prompt",
    "Workload",
    "WorkRequest",
]

WORKLOADS: Mapping[str, type[Workload]] = {
    "fixed": Fixed,
    "uniform": Uniform,
    "bimodal": Bimodal,
    "zipf": Zipf,
    "bucketed": Bucketed,
    "trace": Trace,
    "prompt_file": PromptFile,
}
