"""``Prefill.Run``: compute a prompt and ship its pages; owns them here until the commit.

The transfer runs beside the computation: each time that more KV is final the sender is told, and
its mode decides what leaves when. Either side failing ends the other; ``finally`` gives all pages
back.
"""

import asyncio
from typing import Any

import grpc

from kvtransfer.channels import Pairs
from kvtransfer.limits import limits_for
from kvtransfer.sender import KvSender, OutgoingTransfer
from pdcore.cluster import Epoch, NodeInfo, NodeName
from pdcore.drain import Drain
from pdcore.errors import EpochMismatch, PdspanError
from pdcore.generation import GenerationRequest, TransferId
from pdcore.metrics import NodeMetrics
from pdcore.rpc_errors import aborting
from pdcore.settings import TransferSettings
from pdcore.timeline import TimelineRecorder
from pdcore.wire import request_from_proto
from pdengine.engine import Engine
from pdwire.v1 import prefill_pb2
from prefill_node.queue import Job
from prefill_node.worker import PrefillWorker

Context = grpc.aio.ServicerContext[Any, Any]
