"""What is asked of the cluster: a workload by name, each a pure function of (parameters, seed).

A scenario's ``[workload]`` table names one by ``kind``; its other keys are that workload's fields.
When requests arrive is a seam of its own (``[arrivals]``), which a trace brings along.
"""

from collections.abc import Mapping

from pdlab.workloads.arrivals import ARRIVALS, Arrivals, scheduled
from pdlab.workloads.decode_under_transfers import DecodeUnderTransfers
from pdlab.workloads.lengths import Bimodal, Bucketed, Fixed, Uniform, Zipf
from pdlab.workloads.prompt_file import PromptFile
from pdlab.workloads.request import Workload, WorkRequest
from pdlab.workloads.trace import Trace
from pdlab.workloads.vocabulary import vocabulary_of

__all__ = [
    "WORKLOADS",
    "ARRIVALS",
    "Arrivals",
    "Workload",
    "WorkRequest",
    "scheduled",
    "vocabulary_of",
]

WORKLOADS: Mapping[str, type[Workload]] = {
    "fixed": Fixed,
    "uniform": Uniform,
    "bimodal": Bimodal,
    "zipf": Zipf,
    "bucketed": Bucketed,
    "decode_under_transfers": DecodeUnderTransfers,
    "trace": Trace,
    "prompt_file": PromptFile,
}
